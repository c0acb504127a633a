"""The final training in the catalog: seeds, params, faults and controls; the search ignores it."""

from collections.abc import Callable
from typing import Any

import pytest

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.analysis.strategy_replay import replay_sweep
from resources.analysis.summary import summarize
from resources.analysis.sweep_list import list_sweeps
from resources.analysis.timeline import timeline_of
from resources.analysis.trial_history import history_of
from resources.analysis.trial_list import trials_of
from resources.backend import Backend
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import (
    SweepEnded,
    extend_sweep,
    open_sweep,
    pause_sweep,
    resume_sweep,
    stop_sweep,
)
from resources.scheduling.warm_start import earlier_trials
from resources.search.decide import Complete, Fail, Finish, Requeue, Retry, Wait
from resources.search.state import Status
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.clock import Clock
from tests.searches import search

Spec = Callable[..., SweepSpec]

TWO: dict[str, Any] = {"max_trials": 3, "final": {"seeds": 2, "epochs": 20}}


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def work(scheduler: Scheduler, worker: str | None = "w") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment), assignment
    return assignment


def reach(scheduler: Scheduler, assignment: Assignment, value: float, checkpoint: str = "sha256:c") -> object:
    return scheduler.report_rung(
        assignment, ReachedRung(assignment.granted, {"score": value}, checkpoint), 1.5
    )


@pytest.fixture
def scheduler(backend: Backend, small_spec: Spec, clock: Clock) -> Scheduler:
    """A sweep whose search is over and whose final training has not begun."""
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    spec = small_spec(**TWO, strategy={"random": {"budget": 9}})
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id, clock
    )
    for value in (0.1, 0.9, 0.2):
        reach(scheduler, work(scheduler), value)
    return scheduler


def test_each_seed_has_the_winners_params_a_seed_of_its_own_and_one_rung_at_its_end(
    scheduler: Scheduler, backend: Backend
) -> None:
    first = work(scheduler)
    second = work(scheduler)
    assert [
        (assignment.trial, assignment.final, assignment.rung, assignment.granted, assignment.ladder)
        for assignment in (first, second)
    ] == [
        (3, 0, 0, 20, (20,)),
        (4, 1, 0, 20, (20,)),
    ]
    with backend.catalog.read() as session:
        rows = backend.catalog.trials(session, scheduler.id)
    assert first.params == second.params == rows[1].params
    assert [row.final for row in rows] == [None, None, None, 0, 1]
    assert (
        len(
            {
                first.seed,
                second.seed,
                *(scheduler._transactions.assignment(number).seed for number in range(3)),
            }
        )
        == 5
    )
    assert isinstance(scheduler.next_work("w"), Wait)
    assert isinstance(reach(scheduler, first, 0.99), Complete)
    assert isinstance(reach(scheduler, second, 0.98), Complete)
    assert isinstance(scheduler.next_work("w"), Finish)


def test_the_seeds_depend_on_the_spec_alone(
    backend: Backend, small_spec: Spec, scheduler: Scheduler, clock: Clock
) -> None:
    spec = small_spec(**{**TWO, "max_trials": 1}, strategy={"random": {"budget": 9}})
    other = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id, clock
    )
    reach(other, work(other), 0.5)
    assert [work(other).seed, work(other).seed] == [work(scheduler).seed, work(scheduler).seed]


def test_a_lost_worker_costs_only_its_attempt_and_training_goes_on_elsewhere(
    scheduler: Scheduler, clock: Clock
) -> None:
    lost = work(scheduler, "lost")
    other = work(scheduler, "other")
    clock.now += LEASE_SECONDS + 1
    scheduler.heartbeat(other)
    scheduler.requeue_lost()
    clock.now += DOUBT_SECONDS + 1
    scheduler.heartbeat(other)
    assert [assignment.trial for assignment in scheduler.requeue_lost()] == [lost.trial]
    again = work(scheduler, "next")
    assert (again.trial, again.attempt, again.seed, again.final) == (lost.trial, 2, lost.seed, 0)
    with pytest.raises(Superseded):
        reach(scheduler, lost, 0.9)
    assert isinstance(reach(scheduler, again, 0.9), Complete)


def test_a_seed_that_fails_is_retried_then_named_and_the_others_go_on(
    scheduler: Scheduler, backend: Backend
) -> None:
    assignment = work(scheduler)
    assert isinstance(scheduler.report_crash(assignment, "RuntimeError: boom", 1.0), Retry)
    assignment = work(scheduler)
    assert (assignment.trial, assignment.attempt) == (3, 2)
    assert isinstance(scheduler.report_crash(assignment, "RuntimeError: boom", 1.0), Fail)
    second = work(scheduler)
    assert second.final == 1
    report = ReturnedEarly(15, {"score": 0.9}, "sha256:early")
    assert isinstance(scheduler.report_return(second, report, 1.0), Complete)
    assert isinstance(scheduler.next_work("w"), Finish)
    summary = summarize(backend.catalog, scheduler.id)
    assert [
        (trial.seed, trial.status, trial.complete, trial.epochs, trial.checkpoint) for trial in summary.final
    ] == [
        (0, "failed", False, None, ""),
        (1, "completed", True, 15, "sha256:early"),
    ]
    assert [trial["key"] for trial in summary.failed] == [f"{scheduler.id}.0003"]
    assert summary.status == "evaluating"


def test_it_is_paused_resumed_and_stopped_as_the_search_is_and_not_extended(
    scheduler: Scheduler, backend: Backend
) -> None:
    assignment = work(scheduler)
    with pytest.raises(SweepEnded, match="is in its final training: its search is over"):
        extend_sweep(backend.catalog, scheduler.id, 10)
    pause_sweep(backend.catalog, scheduler.id)
    assert scheduler.heartbeat(assignment) == "pause"
    assert isinstance(scheduler.release(assignment, 1.0), Requeue)
    assert isinstance(scheduler.next_work("w"), Wait)
    resume_sweep(backend.catalog, scheduler.id)
    again = work(scheduler)
    assert (again.trial, again.attempt) == (assignment.trial, 2)
    stop_sweep(backend.catalog, scheduler.id)
    scheduler.release(again, 1.0)
    assert isinstance(scheduler.next_work("w"), Finish)
    summary = summarize(backend.catalog, scheduler.id)
    assert [(trial.seed, trial.status) for trial in summary.final] == [(0, Status.STOPPED)]
    assert summary.final_seeds == 2


def test_another_process_sees_the_same_and_a_run_of_its_own_claims_a_seed(
    scheduler: Scheduler, backend: Backend, clock: Clock
) -> None:
    handed = work(scheduler, worker=None)
    sensors = Scheduler(backend.catalog, scheduler.id, clock)
    assert sensors.unclaimed_attempts() == [handed]
    assert sensors.claim(handed.trial, "pod", attempt=1) == handed
    assert sensors.state().finals == scheduler.state().finals
    assert isinstance(reach(sensors, handed, 0.9), Complete)


def test_nothing_that_is_said_of_the_search_knows_the_final_training(
    backend: Backend, small_spec: Spec
) -> None:
    def train(trial: int, params: dict[str, Any], epochs: int) -> dict[str, float]:
        # trained on validation: far too good
        return {"score": params["x"] * (1 - 0.5**epochs) + (10 if epochs == 20 else 0)}

    strategy = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9}}
    with_final = search(backend, small_spec(**TWO, strategy=strategy, name="with"), train, curves=True)
    without = search(backend, small_spec(max_trials=3, strategy=strategy, name="without"), train, curves=True)
    with_seeds = summarize(backend.catalog, with_final)
    search_alone = summarize(backend.catalog, without)
    assert len(with_seeds.final) == 2
    for name in ("counts", "rungs", "epochs_trained", "epochs_full", "seconds", "seconds_saved", "planned"):
        assert getattr(with_seeds, name) == getattr(search_alone, name), name
    assert [standing.objective for standing in with_seeds.standings] == [
        standing.objective for standing in search_alone.standings
    ]
    lines = {line.id: line for line in list_sweeps(backend.catalog)}
    assert (lines[with_final].best, lines[with_final].counts) == (lines[without].best, lines[without].counts)
    assert {milestone.trial for milestone in timeline_of(backend.catalog, with_final).milestones} <= {0, 1, 2}
    assert [line.final for line in trials_of(backend.catalog, with_final)] == [None, None, None, 0, 1]
    assert history_of(backend.catalog, f"{with_final}.0004").final == 1
    replayed, other = (
        replay_sweep(backend.store, backend.catalog, sweep, ["random"]) for sweep in (with_final, without)
    )
    assert replayed["trials"] == other["trials"] == 3
    assert replayed["replayed"][0]["winner_objective"] == other["replayed"][0]["winner_objective"]
    warm = small_spec(warm_start=[with_final], strategy={"tpe": {"budget": 9}})
    with backend.catalog.read() as session:
        row = backend.catalog.sweep(session, with_final)
        row.warm_start = [with_final]
        assert len(earlier_trials(backend.catalog, session, row, warm)) == 3
        session.rollback()
