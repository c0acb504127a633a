"""Only Dagster's records of old sweeps are deleted, on a real instance in SQLite."""

import functools
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.run_request import InstigatorType

from pipelines import dagster_records, maintenance
from pipelines.dagster_records import UPKEEP, forget_sweeps, forget_sweeps_of_home
from pipelines.dagster_storage import open_instance
from pipelines.definitions import defs
from resources.backend import Backend
from resources.catalog import SweepRow, utcnow
from resources.execution.kubernetes.pod_manifests import SWEEP_LABEL
from resources.retention.gone import Gone
from resources.retention.policy import parse_policy
from tests.backends import CHECKOUT, add_version, snapshot_row

POLICY = parse_policy({"dagster": {"days": 90}, "projects": {"kept": {"dagster": {"days": None}}}}, "test")
LATER = datetime.now(UTC) + timedelta(days=100)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        yield instance


def add_sweep(
    backend: Backend, instance: dg.DagsterInstance, sweep: str, status: str = "finished", name: str = "p"
) -> None:
    """A sweep with three trials' partitions, and a run of Dagster's that has ended."""
    with backend.catalog.write() as session:
        if session.get(type(snapshot_row("sha256:s")), "sha256:s") is None:
            session.add(snapshot_row("sha256:s"))
            session.flush()
        ended = None if status == "searching" else utcnow()
        about = {
            "spec": {},
            "spec_digest": sweep,
            "snapshot": "sha256:s",
            "driver": "sensors",
            "ordinal": 0,
            "created_at": utcnow(),
        }
        session.add(SweepRow(id=sweep, name=name, status=status, finished_at=ended, **about))
    instance.add_dynamic_partitions("sweeps", [sweep])
    instance.add_dynamic_partitions("trials", [f"{sweep}.{number:04d}" for number in range(3)])


def add_run(instance: dg.DagsterInstance, sweep: str) -> str:
    """A run of the sweep that really ran: its first trial was materialized, and its step wrote logs."""

    @dg.op
    def train(context: dg.OpExecutionContext) -> None:
        context.log_event(dg.AssetMaterialization("trial", partition=f"{sweep}.0000"))

    @dg.job
    def attempt() -> None:
        train()

    return attempt.execute_in_process(instance=instance, tags={SWEEP_LABEL: sweep}).run_id


def materialized_partitions(instance: dg.DagsterInstance) -> set[str | None]:
    records = instance.fetch_materializations(dg.AssetKey("trial"), limit=100).records
    return {record.partition_key for record in records}


@pytest.mark.slow
def test_records_of_old_sweeps_go_and_those_of_open_sweeps_and_champions_stay(
    backend: Backend, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    for sweep, status, name in (
        ("old-1", "finished", "p"),
        ("open-1", "searching", "p"),
        ("best-1", "finished", "p"),
        ("k-1", "failed", "kept"),
    ):
        add_sweep(backend, instance, sweep, status, name)
    with backend.catalog.write() as session:
        add_version(session, model="p", version="1.0.0", stage="champion", sweep="best-1")
    old = add_run(instance, "old-1")
    best = add_run(instance, "best-1")
    assert materialized_partitions(instance) == {"old-1.0000", "best-1.0000"}
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER - timedelta(days=20)) == []
    would = forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER, dry_run=True)
    assert would == [Gone("p", "Dagster partitions", 4, 0), Gone("p", "Dagster runs", 1, 0)]
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER, project="kept") == []
    assert instance.has_run(old)
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER) == would
    assert (instance.has_run(old), instance.has_run(best)) == (False, True)
    assert materialized_partitions(instance) == {"best-1.0000"}
    assert [path.name for path in (tmp_path / "dagster").rglob(f"*{old}*")] == []
    assert set(instance.get_dynamic_partitions("sweeps")) == {"open-1", "best-1", "k-1"}
    assert not any(key.startswith("old-1") for key in instance.get_dynamic_partitions("trials"))
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER) == []


def test_a_call_is_bounded_and_whoever_is_killed_leaves_the_rest_to_the_next_one(
    backend: Backend, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_sweep(backend, instance, "old-1")
    for _ in range(2):
        instance.create_run_for_job(_empty, tags={SWEEP_LABEL: "old-1"}, status=dg.DagsterRunStatus.SUCCESS)

    def partitions() -> int:
        return len(instance.get_dynamic_partitions("trials")) + len(instance.get_dynamic_partitions("sweeps"))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(instance.run_storage, "delete_run", die)
        with pytest.raises(KeyboardInterrupt):
            forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER)
    states = []
    for _ in range(4):
        forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER, limit=2)
        states.append(
            (instance.get_runs_count(), partitions(), instance.has_dynamic_partition("sweeps", "old-1"))
        )
    assert states == [(0, 4, True), (0, 2, True), (0, 0, False), (0, 0, False)]


def test_a_sweep_of_which_a_run_goes_on_is_left_alone(backend: Backend, instance: dg.DagsterInstance) -> None:
    add_sweep(backend, instance, "old-1")
    instance.create_run_for_job(_empty, tags={SWEEP_LABEL: "old-1"}, status=dg.DagsterRunStatus.STARTED)
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER) == []
    assert instance.get_runs_count() == 1


def test_only_runs_of_upkeep_and_of_launches_without_a_sweep_go_by_their_age(
    backend: Backend, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dagster_records, "_RUNS_AT_ONCE", 2)
    add_sweep(backend, instance, "open-1", "searching")
    ended = dg.DagsterRunStatus.SUCCESS
    launched = {SWEEP_LABEL: "open-1"}
    for job in (*UPKEEP, *UPKEEP, *UPKEEP):
        instance.create_run_for_job(job_named(job), status=ended)
    goes = [("launch_sweep", dg.DagsterRunStatus.FAILURE, {}), ("sweep", dg.DagsterRunStatus.CANCELED, {})]
    stays = [
        ("launch_sweep", ended, launched),
        ("sweep", ended, {SWEEP_LABEL: "unknown-1"}),
        ("compact_metrics", dg.DagsterRunStatus.STARTED, {}),
        ("materialize_clicks", ended, {}),
    ]
    gone = [
        instance.create_run_for_job(job_named(job), status=status, tags=tags).run_id
        for job, status, tags in goes
    ]
    kept = {
        instance.create_run_for_job(job_named(job), status=status, tags=tags).run_id
        for job, status, tags in stays
    }
    count = 3 * len(UPKEEP) + len(gone)
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER - timedelta(days=20)) == []
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER, project="p") == []
    assert forget_sweeps(instance, backend.catalog, parse_policy({}, "test"), is_own=True, now=LATER) == []
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER, dry_run=True) == [
        Gone("", "Dagster runs", count, 0)
    ]
    assert instance.get_runs_count() == count + len(kept)
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER, limit=3) == [
        Gone("", "Dagster runs", 3, 0)
    ]
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True, now=LATER) == [
        Gone("", "Dagster runs", count - 3, 0)
    ]
    assert {run.run_id for run in instance.get_runs()} == kept


def test_the_jobs_of_upkeep_are_all_there_and_none_of_them_materializes_an_asset() -> None:
    jobs = {job.name: job for job in defs.resolve_all_job_defs()}
    assert set(UPKEEP) <= jobs.keys()
    assert not any(jobs[name].asset_layer.executable_asset_keys for name in UPKEEP)
    left = {name for name in jobs if not name.startswith(("__", "materialize_"))} - set(UPKEEP)
    assert left == {
        "sweep",
        "launch_sweep",
        "run_trial",
        "conclude_sweep",
    }  # a new one is of a sweep, or of upkeep


def test_logs_of_old_sweeps_go_with_their_records_and_no_other_files(backend: Backend) -> None:
    home = Path(backend.store.root) / "dagster"
    logs = home / "logs"
    logs.mkdir(parents=True)
    old = "small-20260101-120000-77"
    new = "small-20260301-120000-78"
    for name, days in (
        (f"{old}.log", 100),
        (f"{old}.yaml", 100),
        (f"{new}.log", 80),
        ("notes.log", 100),
        ("daemon-2026.log", 100),
    ):
        (logs / name).write_text("said")
        os.utime(logs / name, (time.time() - days * 86_400,) * 2)
    gone = [Gone("", "Dagster logs", 2, 8)]
    forget = functools.partial(forget_sweeps_of_home, home, backend.store, backend.catalog, POLICY)
    assert forget(dry_run=True) == gone
    assert forget(project="p") == []
    assert forget() == gone
    assert set(os.listdir(logs)) == {f"{new}.log", "notes.log", "daemon-2026.log"}


def test_on_an_instance_that_stores_share_what_does_not_say_whose_it_is_stays(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "shared"
    log = tmp_path / "shared" / "logs" / "small-20260101-120000-77.log"
    log.parent.mkdir(parents=True)
    log.write_text("said")
    os.utime(log, (time.time() - 100 * 86_400,) * 2)
    with open_instance(home) as instance:
        add_sweep(backend, instance, "old-1")
    runs = [
        ("sweep", {SWEEP_LABEL: "of-another-store-1"}),
        ("launch_sweep", {}),
        ("promote_version", {}),
        ("sweep", {SWEEP_LABEL: "old-1"}),
    ]
    with open_instance(home) as instance:
        ids = [
            instance.create_run_for_job(job_named(job), status=dg.DagsterRunStatus.SUCCESS, tags=tags).run_id
            for job, tags in runs
        ]
    true = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: true + 100 * 86_400)
        patch.setattr(backend.catalog, "now", lambda: true + 100 * 86_400)
        gone = forget_sweeps_of_home(home, backend.store, backend.catalog, POLICY)
    assert gone == [Gone("p", "Dagster partitions", 4, 0), Gone("p", "Dagster runs", 1, 0)]
    assert log.exists()
    with open_instance(home) as instance:
        assert {run.run_id for run in instance.get_runs()} == set(ids[:-1])


@pytest.mark.slow  # Dagster captures a run's output with processes
@pytest.mark.parametrize(
    ("home", "cluster", "goes"),
    [("root/dagster", False, True), ("shared", False, False), ("shared", True, True)],
)
def test_the_job_deletes_runs_of_upkeep_in_the_stores_own_instance_and_in_a_clusters(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, cluster: bool, goes: bool
) -> None:
    if cluster:
        (tmp_path / "cluster.yaml").write_text("{}")
        monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    monkeypatch.setattr(maintenance, "forget_sweeps", functools.partial(forget_sweeps, now=LATER))
    (tmp_path / home).mkdir()
    backend.store.create("retention.yaml", b"dagster: {days: 90}")
    with open_instance(tmp_path / home) as instance:
        old = instance.create_run_for_job(job_named("promote_version"), status=dg.DagsterRunStatus.SUCCESS)
        job = defs.resolve_job_def("apply_retention")
        assert job.execute_in_process(instance=instance, resources={"backend": backend}).success
        assert instance.has_run(old.run_id) is not goes


@pytest.mark.parametrize("file", ["dagster.yaml", "deploy/kubernetes/base/dagster.yaml"])
def test_ticks_of_every_status_are_purged_after_some_days(tmp_path: Path, file: str) -> None:
    """Of Dagster's defaults all but a sensor's skipped ticks stay for ever.

    What else the cluster's file says needs a cluster.
    """
    read: dict[str, Any] = yaml.safe_load((CHECKOUT / file).read_text())
    (tmp_path / "dagster.yaml").write_text(
        yaml.safe_dump({"retention": read["retention"]} if "deploy" in file else read)
    )
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        for kind in (InstigatorType.SENSOR, InstigatorType.SCHEDULE):
            assert all(0 < days <= 90 for days in instance.get_tick_retention_settings(kind).values())


def test_a_clock_of_this_machine_that_runs_ahead_forgets_nothing(
    backend: Backend, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_sweep(backend, instance, "old-1")
    true = time.time()
    monkeypatch.setattr(time, "time", lambda: true + 100 * 86_400)  # the catalog's clock is another machine's
    monkeypatch.setattr(backend.catalog, "now", lambda: true)
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True) == []
    monkeypatch.setattr(backend.catalog, "now", lambda: true + 100 * 86_400)
    assert forget_sweeps(instance, backend.catalog, POLICY, is_own=True) == [
        Gone("p", "Dagster partitions", 4, 0)
    ]


@dg.job
def _empty() -> None:
    pass


def job_named(name: str) -> dg.JobDefinition:
    return dg.GraphDefinition(name, node_defs=[]).to_job()
