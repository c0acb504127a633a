"""Pods, nodes and services taken away in the middle of a sweep: nothing is lost, and nothing is trained twice
at the same time.
"""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, select, text
from sqlalchemy.exc import OperationalError

from halving import sql
from halving.checkpoints import interval
from halving.records.run_record import RunRecords
from resources.catalog import AttemptRow, RungResultRow
from resources.catalog.trial_key import trial_key
from tests.kubernetes.installation.harness import Installation
from tests.kubernetes.installation.specs import (
    CLOCK_SECONDS,
    assert_exclusive,
    assert_nothing_lost,
    attempts,
    held,
    name_of,
    pod_of,
    pods_of,
    release,
    slow,
    spells,
    sweep_of,
    trials,
)
from tests.kubernetes.services import SESSION
from tests.kubernetes.trainables import HELD_EPOCH
from tests.kubernetes.trainables import held as is_held
from tests.waiting import wait_for

LEASE_SECONDS = 90  # a lease, its doubt, and the ticks that see them, on a machine with much to do
STANDSTILL_SECONDS = 5  # an epoch, the 2 s that a checkpoint may ask an absent store for, and a busy machine


def wait_until_opened(installation: Installation, spec: dict[str, Any]) -> str:
    """The id of the sweep that was submitted under a spec's name."""
    return installation.wait_for(
        lambda: sweep_of(installation.backend, spec["name"]), f"the sweep {spec['name']} to be opened"
    ).id


def trains(installation: Installation, sweep: str, trial: int = 0) -> AttemptRow | None:
    """The first attempt at a trial, if it is in the epoch in which trials are held, or behind it."""
    rows = [row for row in attempts(installation.backend, sweep, trial) if row.attempt == 1 and row.worker]
    if not rows or not installation.backend.store.exists(is_held(trial_key(sweep, trial))):
        # costs less than to look for its points
        return None
    if max(times(installation, sweep, trial, "begun", attempt=1), default=0) < HELD_EPOCH:
        return None
    return rows[0]


def training(installation: Installation, sweep: str) -> AttemptRow:
    """The first attempt at a sweep's first trial, once it trains."""
    return installation.wait_for(lambda: trains(installation, sweep), f"the trial of {sweep} to train")


def wait_for_end(installation: Installation, sweep: str) -> None:
    """Wait until the search is over, whatever becomes of its report."""
    installation.wait_for(
        lambda: status_of(installation, sweep) != "searching", f"the end of the search {sweep}", every=1
    )


def status_of(installation: Installation, sweep: str) -> str:
    with installation.backend.catalog.read() as session:
        return installation.backend.catalog.sweep(session, sweep).status


def test_a_lost_pod_costs_its_trial_only_the_epochs_since_its_last_checkpoint(
    installation: Installation,
) -> None:
    """Reclaimed with a grace period, by both drivers; killed without one; the trial's process killed; out of
    memory.
    """
    # a busy machine takes its time, and a pod ends as soon as it has saved
    patient = {"cpus": 0.25, "grace_seconds": 120}
    by_sensors = held("taken-away", trials=3, resources=patient)
    in_one_job = held("reclaimed-worker", resources=patient)
    wanted = {"cpus": 0.25, "memory": "1Gi", "grace_seconds": 5}
    hungry = slow("hungry", epochs=3, trainable="tests.kubernetes.trainables:train_hungry", resources=wanted)
    for spec in (by_sensors, in_one_job, hungry):
        installation.submit("sweep" if spec is in_one_job else "launch_sweep", spec)
    sensors_sweep, job_sweep, hungry_sweep = (
        wait_until_opened(installation, spec) for spec in (by_sensors, in_one_job, hungry)
    )
    trial_of = {
        "reclaimed": (sensors_sweep, 0),
        "killed": (sensors_sweep, 1),
        "shot": (sensors_sweep, 2),
        "reclaimed worker": (job_sweep, 0),
        "hungry": (hungry_sweep, 0),
    }
    faults = {
        "reclaimed": installation.delete_pod,
        "reclaimed worker": installation.delete_pod,
        "killed": lambda pod: installation.delete_pod(pod, grace_seconds=0),
        "shot": lambda pod: installation.kill_newest(pod, "multiprocessing.forkserver"),
    }
    first: dict[str, str] = {}

    def all_taken_away() -> bool:
        for name in faults.keys() - first.keys():
            if attempt := trains(installation, *trial_of[name]):
                first[name] = pod_of(attempt)
                faults[name](first[name])
        return faults.keys() == first.keys()

    installation.wait_for(all_taken_away, "every trial to train, and then to be taken away")
    release(installation.backend, sensors_sweep, job_sweep)
    for sweep in (sensors_sweep, job_sweep, hungry_sweep):
        wait_for_end(installation, sweep)
        assert_nothing_lost(installation.backend, sweep)
        assert_exclusive(spells(installation.backend, sweep))
    reasons = {}
    for name, (sweep, number) in trial_of.items():
        history = attempts(installation.backend, sweep, number)
        outcome = "retry" if name in ("shot", "hungry") else "preempted"
        assert [row.outcome for row in history] == [outcome, "complete"], (name, history[0].error)
        reasons[name] = history[0].error or ""
        assert_one_interval_lost(installation, sweep, number)
        if name.startswith("reclaimed"):
            assert last_checkpoint(installation, sweep, number, attempt=1) == HELD_EPOCH, (
                "written in the grace period"
            )
    assert first["killed"] in reasons["killed"]
    assert "SIGKILL" in reasons["shot"]
    assert "out of memory (the limit is 1024Mi)" in reasons["hungry"]


def test_sweeps_go_on_while_everything_around_them_is_restarted(installation: Installation) -> None:
    """Daemon, webserver, code location, the coordinator of a one-job sweep, and Postgres, twice."""
    strategy = {"asha": {"sampler": "random", "min_budget": 3, "max_budget": 12, "reduction_factor": 2}}
    specs = {"launch_sweep": held("restarts", trials=3, strategy=strategy), "sweep": held("coordinator")}
    runs = {job: installation.submit(job, spec) for job, spec in specs.items()}
    by_sensors, in_one_job = (wait_until_opened(installation, spec) for spec in specs.values())
    training(installation, in_one_job)
    before = installation.wait_for(lambda: results(installation, by_sensors), "a finished rung")
    (coordinator,) = installation.pods(
        f"app.kubernetes.io/component=run_worker,dagster/run-id={runs['sweep']}", phase="Running"
    )
    installation.delete_pod(coordinator.metadata.name, grace_seconds=0)
    everything_else = partial(installation.restart, "daemon", "webserver", "code-location")
    # Trials come to their rungs and ends while the rest is restarted.
    for restart in (partial(release, installation.backend, by_sensors, in_one_job), everything_else):
        restart()
        installation.postgres.stop()
        installation.postgres.start()
    wait_for_end(installation, by_sensors)
    assert before.items() <= results(installation, by_sensors).items()
    assert_exclusive(spells(installation.backend, by_sensors))
    assert {trial.status for trial in trials(installation.backend, by_sensors)} <= {
        "completed",
        "paused",
        "pruned",
        "stopped",
    }
    installation.wait_for(lambda: status_of(installation, in_one_job) == "finished", "the job's end", every=2)
    assert_nothing_lost(installation.backend, in_one_job)
    assert_exclusive(spells(installation.backend, in_one_job))


def test_pods_that_cannot_start_say_so_within_a_minute_and_free_their_place(
    installation: Installation,
) -> None:
    """More GPUs than there are, by both drivers; a kind of GPU that no node has; an image that is nowhere."""
    too_big = {"cpus": 0.25, "gpus": 99, "start_timeout_seconds": 30}
    elsewhere = {"cpus": 0.25, "gpu_type": "nowhere", "gpus": 1, "start_timeout_seconds": 30}
    job = installation.submit("sweep", slow("too-big-job", trials=2, resources=too_big))
    specs = {
        "Insufficient nvidia.com/gpu": slow("too-big", resources=too_big, max_retries=0),
        "node affinity": slow("elsewhere", resources=elsewhere, max_retries=0),
        "ImagePull": slow(
            "no-image",
            image="localhost/nowhere:1",
            resources={"cpus": 0.25, "start_timeout_seconds": 30},
            max_retries=0,
        ),
    }
    for spec in specs.values():
        installation.submit("launch_sweep", spec)
    sweeps = {reason: wait_until_opened(installation, spec) for reason, spec in specs.items()}
    for reason, sweep in sweeps.items():
        is_shown = partial(waits_for, installation, sweep, reason)
        installation.wait_for(is_shown, f"{reason!r} on the trial", seconds=60, every=0.2)
    for reason, sweep in sweeps.items():
        wait_for_end(installation, sweep)
        (trial,) = trials(installation.backend, sweep)
        assert trial.status == "failed"
        assert "start_timeout_seconds = 30" in (trial.error or "")
        assert reason in (trial.error or "")
    installation.wait_for_run(job, status="FAILURE")
    log = installation.log_of(job)
    assert "Insufficient nvidia.com/gpu" in log
    assert "start_timeout_seconds = 30" in log
    gone = [*(f"halving/sweep={sweep}" for sweep in sweeps.values()), f"dagster/run-id={job}"]
    nothing_left = partial(no_pod_waits, installation, gone)
    installation.wait_for(nothing_left, "the pods to be gone", seconds=60)


def waits_for(installation: Installation, sweep: str, reason: str) -> bool:
    return any(
        reason in (trial.waiting or trial.error or "") for trial in trials(installation.backend, sweep)
    )


def no_pod_waits(installation: Installation, selectors: list[str]) -> bool:
    return not any(installation.pods(selector, phase="Pending") for selector in selectors)


@pytest.mark.usefixtures("gpus")
def test_a_job_ends_although_one_of_its_workers_never_gets_a_node(installation: Installation) -> None:
    wanted = {"cpus": 0.25, "gpus": 1, "start_timeout_seconds": 20}
    with installation.one_gpu_left():
        job = installation.submit(
            "sweep", slow("crowded", trials=2, epochs=2, max_trials=4, resources=wanted)
        )
        installation.wait_for_run(job)
    sweep = installation.instance.get_run_by_id(job).tags["halving/sweep"]
    assert len(pods_of(installation.backend, sweep)) == 1
    assert status_of(installation, sweep) == "finished"
    assert "Insufficient nvidia.com/gpu" in installation.log_of(job)


def test_a_store_or_database_outage_slows_nobody_and_loses_nothing(
    installation: Installation,
) -> None:
    """S3 unavailable for half a minute; then Postgres without a connection to spare, not even for those that
    had one.
    """
    epochs = 80
    spec = slow("outages", epochs=epochs)
    installation.submit("launch_sweep", spec)
    sweep = wait_until_opened(installation, spec)
    for outage, seconds in (
        (installation.s3.gate.outage(), 30),
        (no_connections_left(installation.backend.catalog.url), 15),
    ):
        training(installation, sweep)
        with outage:
            time.sleep(seconds)
        assert status_of(installation, sweep) == "searching", "it still trained when the outage ended"
    wait_for_end(installation, sweep)
    assert [row.outcome for row in attempts(installation.backend, sweep)] == ["complete"]
    assert_nothing_lost(installation.backend, sweep)
    paces = seconds_between_epochs(installation, sweep)
    assert max(paces) < STANDSTILL_SECONDS, sorted(paces)[-5:]
    (spell,) = spells(installation.backend, sweep)
    assert spell.end - spell.begin < 1.1 * epochs


@contextmanager
def no_connections_left(url: str) -> Iterator[None]:
    """Take every connection that the server gives, those of others among them."""
    engine = create_engine(url, pool_size=1000, isolation_level="AUTOCOMMIT")
    taken: list[Connection] = []

    def take_all() -> bool:
        with suppress(OperationalError):  # the server has no more
            while True:
                taken.append(engine.connect())
        others = (
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where backend_type = 'client "
            "backend' and pid <> all(:own)"
        )
        own = [connection.scalar(text("select pg_backend_pid()")) for connection in taken]
        return taken[0].scalar(text(others), {"own": own}) == 0

    try:
        wait_for(take_all, 60, "all connections")
        yield
    finally:
        for connection in taken:
            connection.close()
        engine.dispose()


def seconds_between_epochs(installation: Installation, sweep: str) -> list[float]:
    query = (
        f"select wall_time from points where key = 'train/loss' and run like '{sweep}.%' order by wall_time"
    )
    times = [
        row["wall_time"].timestamp() for row in sql(query, root=installation.backend.store.root).to_pylist()
    ]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@contextmanager
def kubelet_stopped(installation: Installation) -> Iterator[None]:
    """The node's kubelet frozen, where the node is this machine.

    For the last of these tests: what they leave is on this node. Others that run beside them need it as well,
    and so are waited for.
    """
    listing = subprocess.run(
        ["pgrep", "-x", "kubelet"], capture_output=True, text=True, check=False
    ).stdout.split()
    if not listing:
        pytest.skip("needs the node's kubelet on this machine")
    installation.wait_for(lambda: not others(installation), "the other tests on this cluster to end", every=1)
    os.kill(int(listing[0]), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(int(listing[0]), signal.SIGCONT)
        installation.wait_until_served()  # a node that was not ready is behind no service


def others(installation: Installation) -> list[str]:
    """Namespaces of the other tests of this session."""
    label = ",".join(f"{name}={value}" for name, value in SESSION.items())
    names = [
        namespace.metadata.name for namespace in installation.core.list_namespace(label_selector=label).items
    ]
    return [name for name in names if name != installation.namespace]


def processes_of(pod: Any) -> list[int]:
    """The processes of a pod on this machine, as its control groups tell."""
    marks = (pod.metadata.uid, pod.metadata.uid.replace("-", "_"))
    processes = []
    for entry in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            command_line = entry.read_text()
        except OSError:
            continue
        if any(mark in command_line for mark in marks):
            processes.append(int(entry.parent.name))
    return processes


def test_a_lost_node_costs_one_lease_and_its_trial_is_queued_once(installation: Installation) -> None:
    specs = {job: held(f"lost-node-{job}") for job in ("launch_sweep", "sweep")}
    for job, spec in specs.items():
        installation.submit(job, spec)
    sweeps = {job: wait_until_opened(installation, spec) for job, spec in specs.items()}
    pods = [
        installation.core.read_namespaced_pod(pod_of(training(installation, sweep)), installation.namespace)
        for sweep in sweeps.values()
    ]
    with kubelet_stopped(installation):
        for process in itertools.chain(*map(processes_of, pods)):
            with suppress(ProcessLookupError):  # the first process of a container takes the others along
                os.kill(process, signal.SIGKILL)
        for driver, sweep in sweeps.items():
            lost = partial(lost_once, installation, sweep)
            installation.wait_for(lost, f"the lost trial of {driver} to be queued", seconds=LEASE_SECONDS)
    release(installation.backend, *sweeps.values())
    for sweep in sweeps.values():
        wait_for_end(installation, sweep)
        assert [row.outcome for row in attempts(installation.backend, sweep)] == ["preempted", "complete"]
        assert_nothing_lost(installation.backend, sweep)
        assert_exclusive(spells(installation.backend, sweep))


def lost_once(installation: Installation, sweep: str) -> bool:
    (trial,) = trials(installation.backend, sweep)
    return trial.preemptions == 1


def results(installation: Installation, sweep: str) -> dict[tuple[int, int], tuple[int, float | None]]:
    with installation.backend.catalog.read() as session:
        rows = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep))
        return {(row.trial, row.rung): (row.epochs, row.value) for row in rows}


def last_checkpoint(installation: Installation, sweep: str, trial: int, *, attempt: int) -> int:
    """The epoch of an attempt's last checkpoint."""
    records = RunRecords(
        installation.backend.store, name_of(installation.backend, sweep), trial_key(sweep, trial)
    )
    return max(saved.epoch for saved in records.checkpoints() if saved.attempt == attempt)


def times(installation: Installation, sweep: str, trial: int, key: str, *, attempt: int) -> dict[int, float]:
    """When an attempt logged ``key`` in each epoch, in seconds since the epoch."""
    run = trial_key(sweep, trial)
    query = (
        f"select step, wall_time from points where key = '{key}' and attempt = {attempt} and run = '{run}'"
    )
    return {
        row["step"]: row["wall_time"].timestamp()
        for row in sql(query, root=installation.backend.store.root).to_pylist()
    }


def assert_one_interval_lost(installation: Installation, sweep: str, trial: int) -> None:
    """The second attempt goes on at the first one's last checkpoint, and none was due when an epoch ended
    that is lost and had a successor.

    That of the last epoch may have been due, and written when its process was killed.
    """
    last = last_checkpoint(installation, sweep, trial, attempt=1)
    begun, completed = (times(installation, sweep, trial, key, attempt=1) for key in ("begun", "train/loss"))
    assert min(times(installation, sweep, trial, "begun", attempt=2)) == last + 1
    if lost := [ended for epoch, ended in completed.items() if epoch > last and epoch + 1 in begun]:
        saved = begun[last + 1]
        assert max(lost) <= saved + (saved - completed[last]) / interval.SHARE + CLOCK_SECONDS
