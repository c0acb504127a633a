"""Who waits for GPUs that workers and sensors' runs share, and how; devices are only names here."""

import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from pipelines.sensors import hand_out
from resources.backend import Backend
from resources.catalog import AttemptRow, TrialRow
from resources.execution import attempt_loop, gpu_processes, watches
from resources.execution.gpu_processes import GpuProcess
from resources.execution.held_gpus import HeldGpus, process_id
from resources.execution.waiting_note import WaitingNote
from resources.execution.wiring import make_runner, make_scheduler
from resources.execution.worker import work, worker_name
from resources.scheduling.assignment import Assignment
from resources.scheduling.leases import DOUBT_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep, stop_sweep
from resources.search.state import Status
from resources.sweep_spec import SweepSpec
from tests.resources.execution.worked_sweeps import WorkedSweep
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
DEVICES = ["GPU-8f1c", "MIG-77aa", "2"]
SHORT = {"trainable": "tests.search_trainables:train_nothing", "strategy": {"random": {"budget": 1}}}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(DEVICES))
    monkeypatch.setattr(gpu_processes, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(attempt_loop, "_WAITS_SECONDS", 0.0)
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)


def another(backend: Backend, snapshot: str, spec: SweepSpec) -> Assignment:
    """An attempt of another sweep, which has a worker on this machine."""
    row = open_sweep(backend.catalog, spec, snapshot, driver="sensors", commit=None)
    assignment = Scheduler(backend.catalog, row.id).next_work(worker_name())
    assert isinstance(assignment, Assignment)
    return assignment


def attempt_of(ran: WorkedSweep) -> AttemptRow | None:
    with ran.backend.catalog.read() as session:
        return session.scalar(
            select(AttemptRow).where(AttemptRow.sweep == ran.sweep).order_by(AttemptRow.attempt.desc())
        )


def held_since(ran: WorkedSweep) -> Any:
    attempt = attempt_of(ran)
    return attempt and attempt.held_since


@contextmanager
def at_work(*workers: Callable[[], object]) -> Iterator[None]:
    """Each worker in a thread, whose end is waited for."""
    threads = [threading.Thread(target=worker, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


@pytest.mark.slow
def test_a_trial_waits_for_the_gpus_of_its_rung_holding_none_and_gives_them_back(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, small_spec(**SHORT, max_trials=1, resources={"gpus": {1: 2}}))
    other = another(backend, ran.snapshot.digest, small_spec(name="other", resources={"gpus": 2}))
    held = HeldGpus(backend.catalog, DEVICES)
    assert held.take(other, 2) == DEVICES[:2]
    with at_work(ran.work):
        wait_for(lambda: [row.waiting for row in ran.rows() if row.waiting], 60, "the reason why it waits")
        assert str(ran.rows()[0].waiting).startswith("for 2 GPUs of ")
        assert str(ran.rows()[0].waiting).endswith(": 1 of 3 are free")
        before = held_since(ran)
        wait_for(lambda: held_since(ran) > before, 60, "a note that it holds nothing yet")
        assert ran.records(0).checkpoints() == []
        held.give(other)
    (row,) = ran.rows()
    assert (row.status, row.waiting, row.failures, row.attempt) == ("completed", None, 0, 1)
    assert held.free() == 3


def test_a_trial_that_waits_for_gpus_is_given_back_by_a_pause_without_a_failure(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, small_spec(**SHORT, max_trials=1, resources={"gpus": 3}))
    other = another(backend, ran.snapshot.digest, small_spec(name="other", resources={"gpus": 1}))
    held = HeldGpus(backend.catalog, DEVICES)
    assert held.take(other, 1)
    with at_work(ran.work):
        wait_for(lambda: [row.waiting for row in ran.rows() if row.waiting], 60, "the reason why it waits")
        pause_sweep(backend.catalog, ran.sweep)
        wait_for(lambda: ran.rows()[0].status == Status.QUEUED, 60, "a trial that is given back")
        stop_sweep(backend.catalog, ran.sweep)
    (row,) = ran.rows()
    assert (row.failures, row.preemptions, row.seconds, row.attempt) == (0, 0, 0.0, 1)


def test_a_trial_that_waits_for_gpus_is_given_back_where_its_place_is_wanted(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, small_spec(**SHORT, max_trials=1, resources={"gpus": 3}))
    other = another(backend, ran.snapshot.digest, small_spec(name="other", resources={"gpus": 1}))
    held = HeldGpus(backend.catalog, DEVICES)
    assert held.take(other, 1)
    with at_work(ran.work):
        wait_for(lambda: [row.waiting for row in ran.rows() if row.waiting], 60, "the reason why it waits")
        with backend.catalog.write() as session:
            session.execute(update(TrialRow).where(TrialRow.sweep == ran.sweep).values(asked_back=True))
        wait_for(lambda: ran.rows()[0].attempt == 2, 60, "a trial that was given back, and asks again")
        stop_sweep(backend.catalog, ran.sweep)
    (row,) = ran.rows()
    assert (row.failures, row.preemptions, row.seconds) == (0, 0, 0.0)


@pytest.mark.slow
def test_a_trial_waits_on_while_the_database_is_unavailable(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def fails_once(owner: type, name: str) -> None:
        done = getattr(owner, name)

        def do(*arguments: Any, **options: Any) -> Any:
            if name in failed or threading.current_thread() is threading.main_thread():
                return done(*arguments, **options)
            failed.append(name)
            raise OperationalError(name, {}, sqlite3.OperationalError("database is locked"))

        monkeypatch.setattr(owner, name, do)

    for owner, name in (
        (HeldGpus, "take"),
        (HeldGpus, "free"),
        (Scheduler, "note_waiting"),
        (Scheduler, "begin_holding"),
    ):
        fails_once(owner, name)
    ran = WorkedSweep(backend, small_spec(**SHORT, max_trials=1, resources={"gpus": 3}))
    other = another(backend, ran.snapshot.digest, small_spec(name="other", resources={"gpus": 1}))
    held = HeldGpus(backend.catalog, DEVICES)
    assert held.take(other, 1)
    with at_work(ran.work):
        wait_for(lambda: len(failed) == 4, 60, "each of them fails")
        held.give(other)
    assert (ran.rows()[0].status, ran.rows()[0].failures) == ("completed", 0)


def test_a_worker_that_goes_from_trial_to_trial_is_not_there_before_those_who_wait(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, small_spec(**SHORT, resources={"gpus": 3}))
    next_one = ran.scheduler.next_work(worker_name())
    assert isinstance(next_one, Assignment)
    waiting = another(backend, ran.snapshot.digest, small_spec(name="other", resources={"gpus": 3}))
    started: list[list[str]] = []

    class Starts:
        def __init__(self, gpus: list[str]) -> None:
            self.start = lambda: started.append(gpus)

    held = HeldGpus(backend.catalog, DEVICES)
    prepare: Any = Starts
    process = GpuProcess(prepare, held, next_one, 3, WaitingNote("trial", lambda reason: None))
    Scheduler(backend.catalog, waiting.sweep).note_waiting(waiting, "for 3 GPUs")
    process.start()
    assert (process.alive, process.started, held.free()) == (True, False, 3)
    while not started:
        process.receive(1.0)  # now it looks as often as the others
    assert (started, held.free()) == ([DEVICES], 0)


@pytest.mark.slow
def test_no_two_trials_share_a_gpu_and_a_killed_workers_is_used_once_it_is_lost(
    backend: Backend, small_spec: Spec
) -> None:
    own = {
        "trainable": "tests.search_trainables:train_with_gpus_of_its_own",
        "strategy": {"random": {"budget": 2}},
        "max_retries": 0,
    }
    own |= {"resources": {"gpus": 1, "cpus": 0.1}, "max_trials": 6}
    job = WorkedSweep(backend, small_spec(**own))
    used = Path(backend.store.root, "used")
    killed = another(backend, job.snapshot.digest, small_spec(name="killed", resources={"gpus": 1}))
    with subprocess.Popen(["sleep", "600"]) as worker:
        theirs = HeldGpus(backend.catalog, DEVICES, process=process_id(worker.pid))
        assert theirs.take(killed, 1) == DEVICES[:1]
        worker.kill()
    sensors = open_sweep(
        backend.catalog,
        small_spec(**own, name="sensors", concurrency=2),
        job.snapshot.digest,
        driver="sensors",
        commit=None,
    ).id
    turn = threading.Lock()

    def by_job() -> None:
        scheduler = make_scheduler(backend, job.sweep)
        work(scheduler, make_runner(backend, scheduler, dagster_run="job"), lambda changed: None)

    def by_sensors() -> None:
        scheduler = make_scheduler(backend, sensors)
        while scheduler.searching():
            with turn:
                handed_out = hand_out(scheduler)
                assignment = scheduler.claim(handed_out[0].trial, worker_name()) if handed_out else None
            if assignment is not None:
                make_runner(backend, scheduler, dagster_run="run").run(assignment, lambda changed: None)

    with at_work(by_job, by_job, by_sensors, by_sensors):
        wait_for(used.exists, 120, "the first trial")
        assert DEVICES[0] not in used.read_text()
        lost = backend.catalog.now() - DOUBT_SECONDS - 1
        with backend.catalog.write() as session:
            session.execute(update(TrialRow).where(TrialRow.sweep == killed.sweep).values(lease_until=lost))
    with backend.catalog.read() as session:
        trials = list(session.scalars(select(TrialRow).where(TrialRow.sweep != killed.sweep)))
    assert [(row.status, row.error) for row in trials] == [("completed", None)] * 12
    assert set(used.read_text().split()) == set(DEVICES)
    assert theirs.free() == 3
