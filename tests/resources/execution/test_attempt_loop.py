"""Attempts that end before their rung: by a pause, by a stop, or because their metrics diverged."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import select

from halving import Store
from halving.checkpoints.restoring import saved_state
from halving.distributed.ranks import ALONE
from halving.distributed.training import distribute
from halving.query import api as query
from halving.query.divergence_watch import DivergenceWatch
from halving.query.runs import read_run
from resources.backend import Backend
from resources.catalog import AttemptRow
from resources.execution import attempt_loop, local_processes, watches
from resources.execution.local_processes import LocalProcess
from resources.execution.watches import StreamWatch
from resources.execution.worker import work
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import pause_sweep, resume_sweep, stop_sweep
from resources.search.decide import ranking
from resources.search.state import Control, Status
from resources.sweep_spec import SweepSpec
from tests.resources.execution.worked_sweeps import WorkedSweep, count_epochs
from tests.sdk.distributed.trainings import CPU, Net, batch, loss
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]


@pytest.fixture(autouse=True)
def _quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(watches, "FOLDER_LOOK_SECONDS", 0.1)


def endless(small_spec: Spec) -> SweepSpec:
    return small_spec(
        trainable="tests.search_trainables:train_until_stopped",
        max_trials=1,
        strategy={"random": {"budget": 100_000}},
    )


def once_it_trains(ran: WorkedSweep, act: Callable[[Backend], object]) -> None:
    """Act from another thread, with another connection, as soon as the trial has saved something."""

    def watch() -> None:
        wait_for(ran.records(0).checkpoints, 60, "a checkpoint", every=0.02)
        act(Backend(root=ran.backend.store.root))

    threading.Thread(target=watch, daemon=True).start()


@pytest.mark.slow
def test_a_paused_sweep_gets_its_trial_back_and_goes_on_from_its_last_epoch(
    backend: Backend, small_spec: Spec
) -> None:
    ran = WorkedSweep(backend, endless(small_spec))

    def pause_and_resume(other: Backend) -> None:
        pause_sweep(other.catalog, ran.sweep)
        watching = Scheduler(other.catalog, ran.sweep)
        wait_for(
            lambda: watching.state().trials[0].status is Status.QUEUED,
            60,
            "the trial in the queue",
            every=0.05,
        )
        epochs_at_pause.append(ran.records(0).checkpoints()[-1].epoch)
        resume_sweep(other.catalog, ran.sweep)
        wait_for(
            lambda: ran.records(0).checkpoints()[-1].epoch > epochs_at_pause[0],
            60,
            "an epoch of the second attempt",
        )
        stop_sweep(other.catalog, ran.sweep)

    epochs_at_pause: list[int] = []
    once_it_trains(ran, pause_and_resume)
    ran.work()
    (row,) = ran.rows()
    assert (row.status, row.failures, row.preemptions, row.error) == ("stopped", 0, 0, None)
    epochs = [epoch for epoch, _ in count_epochs(ran, 0)]
    assert epochs == list(range(1, len(epochs) + 1))
    assert {count for _, count in count_epochs(ran, 0)} == {1}, "an epoch was trained twice"
    assert 1 <= epochs_at_pause[0] < len(epochs)
    with backend.catalog.read() as session:
        outcomes = list(session.scalars(select(AttemptRow.outcome).order_by(AttemptRow.attempt)))
    assert outcomes[0] == "requeue"
    assert outcomes[-1] == "requeue"


def values_logged(ran: WorkedSweep, key: str) -> list[float]:
    """Each value that a trial logged, over all of its attempts, by step."""
    points = query.curves(
        [f"{ran.sweep}.0000"], key, project="small", root=ran.backend.store, max_points=None, attempts="raw"
    )
    return [
        value
        for _, value in sorted(zip(points["step"].to_pylist(), points["value"].to_pylist(), strict=True))
    ]


@pytest.mark.slow
def test_a_trial_goes_on_with_the_resources_of_its_next_rung_and_the_same_losses(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    fields = {"trainable": "tests.search_trainables:train_on_all_ranks", "max_trials": 1}
    fields["strategy"] = {"median": {"min_budget": 1, "max_budget": 4, "interval": 1}}
    ran = WorkedSweep(backend, small_spec(**fields, resources={"gpus": {1: 1, 2: 2, 4: 2}})).work()
    (row,) = ran.rows()
    assert (row.status, row.attempt, row.failures, row.preemptions, row.error) == ("completed", 2, 0, 0, None)
    assert values_logged(ran, "ranks") == values_logged(ran, "gpus") == [1, 2, 2, 2], "and no epoch twice"
    run = read_run(backend.store, "small", f"{ran.sweep}.0000")
    assert [start["trial"]["resources"]["processes"] for start in (run.record, *run.starts.values())] == [
        1,
        2,
    ]
    with backend.catalog.read() as session:
        attempts = list(session.scalars(select(AttemptRow).order_by(AttemptRow.attempt)))
    assert [(attempt.rung, attempt.outcome) for attempt in attempts] == [(0, "resized"), (1, "complete")]
    assert [result.decision for result in ran.results()] == 3 * ["continue"] + ["complete"]
    torch.manual_seed(run.record["seed"])
    model = Net()
    alone = distribute(
        ALONE, CPU, model, torch.optim.AdamW(model.parameters(), lr=0.02), seed=run.record["seed"]
    )
    losses = [alone.step(loss, *batch(step, ALONE)).item() for step in range(3, 15)]
    assert values_logged(ran, "loss") == pytest.approx(losses[2::3], rel=1e-6)


def ends_of_attempts(ran: WorkedSweep) -> list[tuple[str | None, str | None]]:
    """How each attempt of the one trial ended, and the last line of its error."""
    with ran.backend.catalog.read() as session:
        attempts = list(session.scalars(select(AttemptRow).order_by(AttemptRow.attempt)))
    return [(attempt.outcome, attempt.error and attempt.error.splitlines()[-1]) for attempt in attempts]


@pytest.fixture
def short_of_memory(backend: Backend, small_spec: Spec) -> Callable[..., WorkedSweep]:
    """Works off a sweep of one trial that may not crash, with a trainable that is short of memory."""

    def worked_off(trainable: str, processes: int) -> WorkedSweep:
        spec = small_spec(
            trainable=f"tests.search_trainables:{trainable}",
            strategy={"random": {"budget": 3}},
            resources={"processes": processes},
            max_trials=1,
            max_retries=0,
            max_preemptions=0,
        )
        return WorkedSweep(backend, spec).work()

    return worked_off


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "outcomes"), [(1, ["complete"]), (2, ["halved", "complete"])])
def test_a_trial_out_of_memory_gets_one_more_try_with_half_the_micro_batch(
    short_of_memory: Callable[..., WorkedSweep], processes: int, outcomes: list[str]
) -> None:
    ran = short_of_memory("train_with_memory_for_four_rows", processes)
    (row,) = ran.rows()
    assert (row.status, row.failures, row.preemptions) == ("completed", 0, 0)
    assert [outcome for outcome, _ in ends_of_attempts(ran)] == outcomes
    assert values_logged(ran, "rows") == [8, 4, 4], "and no epoch twice"


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "outcomes"), [(1, ["fail"]), (2, ["halved", "fail"])])
def test_a_trial_that_runs_out_of_memory_with_the_half_too_has_failed(
    short_of_memory: Callable[..., WorkedSweep], processes: int, outcomes: list[str]
) -> None:
    ran = short_of_memory("train_with_memory_for_two_rows", processes)
    (row,) = ran.rows()
    assert (row.status, row.failures) == ("failed", 0)
    assert [outcome for outcome, _ in ends_of_attempts(ran)] == outcomes
    said = (
        f"rank {processes - 1} ran out of memory in step 2, with 2 micro-batches of 4 rows: the process "
        "had taken"
    )
    assert said in str(ends_of_attempts(ran)[-1][1])


@pytest.mark.slow
def test_a_trial_that_runs_out_of_memory_has_failed_where_no_half_is_allowed(
    short_of_memory: Callable[..., WorkedSweep],
) -> None:
    ran = short_of_memory("train_as_it_is_or_not_at_all", 2)
    assert [outcome for outcome, _ in ends_of_attempts(ran)] == ["fail"]
    assert "rank 1 ran out of memory in step 2, with 1 micro-batches of 8 rows: the process had taken" in str(
        ends_of_attempts(ran)[0][1]
    )


@pytest.mark.slow
def test_nan_on_one_rank_ends_a_trial_as_diverged_with_its_last_good_checkpoint(
    backend: Backend, small_spec: Spec
) -> None:
    fields: dict[str, Any] = {
        "trainable": "tests.search_trainables:train_until_rank_1_has_nan",
        "max_trials": 1,
        "max_retries": 2,
    }
    ran = WorkedSweep(
        backend, small_spec(**fields, strategy={"random": {"budget": 5}}, resources={"processes": 2})
    ).work()
    (row,) = ran.rows()
    assert (row.status, row.attempt, row.failures) == ("failed", 1, 0), "it would diverge again"
    assert "Diverged: the loss of rank 1 was NaN or infinite at step 2: 1 in a row" in str(
        ends_of_attempts(ran)[0][1]
    )
    good = ran.records(0).latest_checkpoint()
    assert good is not None, "it was being written when the training ended"
    assert (good.epoch, good.digest) == (1, row.checkpoint)
    state = saved_state(backend.store, good.digest)
    assert state["training"]["steps"] == 1
    model = Net()
    model.load_state_dict(state["model"])
    assert all(bool(each.isfinite().all()) for each in model.parameters())


@pytest.mark.slow
def test_a_trial_whose_process_dies_or_hangs_between_resources_goes_on_all_the_same(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    monkeypatch.setattr(attempt_loop, "_END_WITHIN_SECONDS", 0.5)
    monkeypatch.setattr(local_processes, "_END_SECONDS", 0.5)
    spec = small_spec(
        trainable="tests.search_trainables:train_and_end_badly",
        strategy={"median": {"min_budget": 1, "max_budget": 3}},
        resources={"gpus": {1: 1, 2: 2, 3: 1}, "processes": 1},
        max_trials=1,
        max_retries=0,
        max_preemptions=0,
    )
    ran = WorkedSweep(backend, spec).work()
    (row,) = ran.rows()
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 3, 0, 0)
    assert count_epochs(ran, 0) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.slow
def test_a_stopped_sweep_with_results_goes_on_to_its_evaluation(backend: Backend, small_spec: Spec) -> None:
    spec = small_spec(
        trainable="tests.search_trainables:train_until_stopped",
        max_trials=50,
        strategy={"asha": {"sampler": "random"}},
    )
    ran = WorkedSweep(backend, spec)
    done: list[object] = []

    def stop_after_three(changed: object) -> None:
        done.append(changed)
        if len(done) == 3:
            stop_sweep(backend.catalog, ran.sweep)

    work(ran.scheduler, ran.runner, stop_after_three)
    assert len(ran.rows()) < 50
    with backend.catalog.read() as session:
        assert backend.catalog.sweep(session, ran.sweep).status == "evaluating"


@pytest.mark.slow
def test_a_trial_whose_streamed_loss_is_nan_is_stopped_at_once_and_fails_alone(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(
        trainable="tests.search_trainables:stream_nan",
        max_trials=1,
        divergence={"train/loss": {"max": 100.0}},
    )
    began = time.monotonic()
    ran = WorkedSweep(backend, spec).work()
    (row,) = ran.rows()
    assert (row.status, row.attempt) == ("failed", 1)
    assert "'train/loss' became nan at step 2" in str(row.error)
    assert time.monotonic() - began < 30, "it would have slept for ten minutes"


@pytest.mark.slow
def test_a_worker_that_is_cut_off_for_long_gives_its_trial_up_with_a_checkpoint(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "UNHEARD_SECONDS", 0.5)
    spec = small_spec(
        trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 25}}
    )
    ran = WorkedSweep(backend, spec)

    def unheard(assignment: Assignment) -> Control:
        if assignment.attempt == 1 and ran.records(0).checkpoints():
            raise ConnectionError("the database is unavailable")
        return Control.RUN

    monkeypatch.setattr(ran.scheduler, "heartbeat", unheard)
    ran.work()
    (row,) = ran.rows()
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 1)
    with backend.catalog.read() as session:
        errors = list(session.scalars(select(AttemptRow.error).order_by(AttemptRow.attempt)))
    assert re.fullmatch(
        r"its worker could not renew the lease for \d+ s: the database is unavailable", str(errors[0])
    )
    assert {count for _, count in count_epochs(ran, 0)} == {1}, "an epoch was trained twice"


@pytest.mark.parametrize(("root", "seconds"), [("folder", 0.1), ("s3://bucket/prefix", 60.0)])
def test_streamed_metrics_are_looked_at_less_often_in_an_object_store(
    backend: Backend,
    small_spec: Spec,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    root: str,
    seconds: float,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(DivergenceWatch, "check", lambda _: "diverged")
    ran = WorkedSweep(backend, small_spec())
    assignment = ran.scheduler.next_work("w:1")
    assert isinstance(assignment, Assignment)
    watch = StreamWatch(Store(root if "://" in root else tmp_path / root), ran.scheduler.spec, assignment)
    monkeypatch.setattr(watch._closed, "wait", waits.append)
    watch.run()
    assert waits == [seconds]
    assert watch.diverged == "diverged"


@pytest.mark.slow
def test_the_time_that_a_process_waits_to_be_started_is_not_the_trials(
    backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    def has_started(_: LocalProcess) -> bool:
        times.append(time.monotonic())  # once a second
        return len(times) > 2

    monkeypatch.setattr(LocalProcess, "started", property(has_started))
    spec = small_spec(
        trainable="tests.trainables:train_slowly", max_trials=1, strategy={"random": {"budget": 20}}
    )
    ran = WorkedSweep(backend, spec).work()
    (row,) = ran.rows()
    assert 0 < row.seconds < time.monotonic() - times[2]


@pytest.mark.slow
def test_a_trial_out_of_bounds_ranks_after_every_trial_within_them(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(
        trainable="tests.search_trainables:exceed_bounds",
        strategy={"random": {"budget": 1}},
        max_trials=4,
        start_from=[{"x": 0.9}, {"x": 0.1}, {"x": 0.4}, {"x": 0.6}],
        bounds={"latency_ms": {"max": 50.0}},
    )
    ran = WorkedSweep(backend, spec).work()
    assert [trial.number for trial, _ in ranking(ran.scheduler.state())] == [2, 1, 3, 0]
    violations = {result.trial: round(result.violation, 6) for result in ran.results()}
    assert violations == {0: 0.8, 1: 0.0, 2: 0.0, 3: 0.2}
    assert ran.results()[0].metrics == {"score": 0.9, "latency_ms": 90.0}
