"""What a sweep's user may ask of it while it runs: pause, resume, stop and extend, on every database."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.catalog import Catalog
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import (
    MAX_TRIALS,
    SweepEnded,
    extend_sweep,
    open_sweep,
    pause_sweep,
    resume_sweep,
    stop_sweep,
)
from resources.search.decide import Continue, Fail, Finish, Pause, Requeue, Wait
from resources.search.state import Control, Status
from resources.sweep_spec import SweepSpec, stored_spec
from resources.tenancy.projects import rename_project
from tests.backends import snapshot_row
from tests.clock import Clock

Spec = Callable[..., SweepSpec]


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    with either_backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return either_backend


def open_scheduler(backend: Backend, spec: SweepSpec, clock: Clock) -> Scheduler:
    row = open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None)
    return Scheduler(backend.catalog, row.id, clock)


def work(scheduler: Scheduler, worker: str | None = "w") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment)
    return assignment


def report(assignment: Assignment, value: float) -> ReachedRung:
    return ReachedRung(
        assignment.granted, {"score": value}, f"sha256:{assignment.trial}-{assignment.granted}"
    )


def reach(scheduler: Scheduler, assignment: Assignment, value: float) -> object:
    return scheduler.report_rung(assignment, report(assignment, value), 1.0)


def statuses(scheduler: Scheduler) -> list[str]:
    return [trial.status.value for trial in scheduler.state().trials]


def sweep_status(backend: Backend, scheduler: Scheduler) -> str:
    with backend.catalog.read() as session:
        return backend.catalog.sweep(session, scheduler.id).status


def to_its_end(scheduler: Scheduler, assignment: Assignment, value: float) -> None:
    """Train as long as the trial may go on in place."""
    for rung, epochs in enumerate(assignment.ladder[assignment.rung :], start=assignment.rung):
        if not isinstance(reach(scheduler, replace(assignment, rung=rung, granted=epochs), value), Continue):
            return


def finish(scheduler: Scheduler) -> None:
    """Work until there is nothing left."""
    while not isinstance(assignment := scheduler.next_work("w"), Finish):
        assert isinstance(assignment, Assignment)
        to_its_end(scheduler, assignment, assignment.params["x"])


TPE = {"asha": {"sampler": "tpe", "max_budget": 9}}


@pytest.mark.parametrize("strategy", [None, TPE], ids=["random", "tpe"])
def test_nothing_is_handed_out_while_a_sweep_is_paused(
    backend: Backend, small_spec: Spec, clock: Clock, strategy: Any
) -> None:
    scheduler = open_scheduler(backend, small_spec(**({"strategy": strategy} if strategy else {})), clock)
    assignment = work(scheduler)
    pause_sweep(backend.catalog, scheduler.id)
    assert isinstance(scheduler.next_work("w"), Wait)
    assert scheduler.suggest_ahead(3) == 0
    assert scheduler.heartbeat(assignment) is Control.PAUSE
    assert isinstance(scheduler.release(assignment, 1.0), Requeue)
    assert isinstance(scheduler.next_work("w"), Wait)
    assert sweep_status(backend, scheduler) == "searching"
    resume_sweep(backend.catalog, scheduler.id)
    again = work(scheduler)
    assert (again.trial, again.attempt, again.params) == (assignment.trial, 2, assignment.params)
    assert scheduler.state().trials[0].failures == scheduler.state().trials[0].preemptions == 0


def test_a_trial_that_reaches_its_rung_in_a_pause_keeps_its_result_and_goes_on(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    trials = [work(scheduler) for _ in range(4)]
    pause_sweep(backend.catalog, scheduler.id)
    assert [
        type(reach(scheduler, assignment, value))
        for assignment, value in zip(trials[:3], (0.1, 0.2, 0.9), strict=True)
    ] == [
        Pause,
        Pause,
        Requeue,
    ]
    resume_sweep(backend.catalog, scheduler.id)
    again = work(scheduler)
    assert (again.trial, again.rung, again.granted, again.attempt) == (2, 1, 3, 2)


def test_a_worker_that_is_lost_while_paused_costs_its_trial_nothing_but_the_attempt(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    assignment = work(scheduler)
    pause_sweep(backend.catalog, scheduler.id)
    clock.lose_all(scheduler)
    assert isinstance(scheduler.next_work("w"), Wait)
    assert statuses(scheduler) == [Status.QUEUED]
    resume_sweep(backend.catalog, scheduler.id)
    assert work(scheduler).trial == assignment.trial


def test_a_stop_lets_the_running_trials_go_and_evaluates_what_was_found(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    trials = [work(scheduler) for _ in range(4)]
    reach(scheduler, trials[0], 0.5)
    scheduler.release(trials[1], 1.0)
    stop_sweep(backend.catalog, scheduler.id)
    assert isinstance(scheduler.next_work("w"), Wait)  # for the two that still run
    assert scheduler.heartbeat(trials[2]) is Control.STOP
    assert isinstance(scheduler.release(trials[2], 1.0), Requeue)
    clock.lose_all(scheduler)  # and the other's worker is gone
    assert isinstance(scheduler.next_work("w"), Finish)
    assert statuses(scheduler) == ["paused", "stopped", "stopped", "stopped"]
    assert sweep_status(backend, scheduler) == "evaluating"
    assert isinstance(scheduler.next_work("w"), Finish)


def test_a_sweep_that_is_stopped_before_any_result_has_failed(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    scheduler.release(work(scheduler), 1.0)
    stop_sweep(backend.catalog, scheduler.id)
    assert isinstance(scheduler.next_work("w"), Finish)
    assert sweep_status(backend, scheduler) == "failed"


def test_a_stop_is_taken_back_by_a_resume_before_it_has_come_to_its_end(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    first = work(scheduler)
    second = work(scheduler)
    stop_sweep(backend.catalog, scheduler.id)
    scheduler.release(first, 1.0)
    resume_sweep(backend.catalog, scheduler.id)
    assert scheduler.heartbeat(second) is Control.RUN
    assert work(scheduler).trial == 0
    assert statuses(scheduler) == ["running", "running"]


def test_suggestions_made_ahead_are_started_after_a_pause_and_left_alone_by_a_stop(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(strategy=TPE), clock)
    assert scheduler.suggest_ahead(3) == 3
    reach(scheduler, work(scheduler), 0.5)
    pause_sweep(backend.catalog, scheduler.id)
    assert isinstance(scheduler.next_work("w"), Wait)
    resume_sweep(backend.catalog, scheduler.id)
    running = work(scheduler)
    assert running.trial == 1
    stop_sweep(backend.catalog, scheduler.id)
    scheduler.release(running, 1.0)
    assert isinstance(scheduler.next_work("w"), Finish)
    assert statuses(scheduler) == ["paused", "stopped", "suggested"]


def test_a_suggestion_that_a_stop_overtook_comes_to_nothing(
    backend: Backend, small_spec: Spec, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = open_scheduler(backend, small_spec(strategy=TPE), clock)
    reach(scheduler, work(scheduler), 0.5)
    suggest = scheduler._turns.suggester.suggest

    def slowly(number: int) -> Any:
        stop_sweep(backend.catalog, scheduler.id)
        assert isinstance(Scheduler(backend.catalog, scheduler.id, clock).next_work("other"), Finish)
        return suggest(number)

    monkeypatch.setattr(scheduler._turns.suggester, "suggest", slowly)
    assert scheduler.suggest_ahead(1) == 0
    assert statuses(scheduler) == ["paused"]


def test_the_turn_of_a_gone_process_to_choose_ends_though_the_clock_was_set_back(
    backend: Backend, small_spec: Spec, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = open_scheduler(backend, small_spec(strategy=TPE), clock)
    other = Scheduler(backend.catalog, scheduler.id, clock)
    suggest = scheduler._turns.suggester.suggest

    def outlast_the_turn(number: int) -> Any:
        assert other.suggest_ahead(1) == 0
        clock.set_back()
        assert other.suggest_ahead(1) == 1
        return suggest(number)

    monkeypatch.setattr(scheduler._turns.suggester, "suggest", outlast_the_turn)
    assert scheduler.suggest_ahead(1) == 0
    assert statuses(scheduler) == ["suggested"]


def test_a_process_whose_clock_lags_takes_no_turn_to_choose_that_another_has(
    backend: Backend, lagging: Catalog, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = open_sweep(backend.catalog, small_spec(strategy=TPE), "sha256:s", driver="job", commit=None)
    scheduler = Scheduler(backend.catalog, row.id)
    late = Scheduler(lagging, scheduler.id)
    suggest = scheduler._turns.suggester.suggest

    def meanwhile(number: int) -> Any:
        assert late.suggest_ahead(1) == 0
        return suggest(number)

    monkeypatch.setattr(scheduler._turns.suggester, "suggest", meanwhile)
    assert scheduler.suggest_ahead(1) == 1


@pytest.mark.parametrize("strategy", [None, TPE], ids=["random", "tpe"])
def test_an_extended_sweep_starts_more_trials(
    backend: Backend, small_spec: Spec, clock: Clock, strategy: Any
) -> None:
    spec = small_spec(max_trials=2, **({"strategy": strategy} if strategy else {}))
    scheduler = open_scheduler(backend, spec, clock)
    unextended = open_scheduler(
        backend, small_spec(max_trials=4, **({"strategy": strategy} if strategy else {})), clock
    )
    assignments = [work(scheduler), work(scheduler)]
    assert isinstance(scheduler.next_work("w"), Wait)
    extend_sweep(backend.catalog, scheduler.id, 4)
    assignments += [work(scheduler), work(scheduler)]
    assert isinstance(scheduler.next_work("w"), Wait)
    assert [trial.params for trial in assignments] == [work(unextended).params for _ in range(4)]
    assert Scheduler(backend.catalog, scheduler.id).state().max_trials == 4


def test_a_sweep_extended_during_its_audit_searches_on_and_audits_later(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    strategy = {"asha": {"sampler": "random", "max_budget": 9, "audit": 1.0}}
    scheduler = open_scheduler(backend, small_spec(max_trials=3, strategy=strategy), clock)
    for value in (0.3, 0.2, 0.1):
        reach(scheduler, work(scheduler), value)
    reach(scheduler, work(scheduler), 0.3)  # the best one, promoted, waits at the second rung
    audit = work(scheduler)
    assert scheduler.state().trials[audit.trial].audited is not None
    extend_sweep(backend.catalog, scheduler.id, 5)
    more = [work(scheduler), work(scheduler)]
    assert [assignment.trial for assignment in more] == [3, 4]
    # A fourth result of the search's own at the first rung; the audit's is at a rung of its own.
    to_its_end(scheduler, audit, 99.0)
    assert isinstance(reach(scheduler, more[0], 0.4), Continue)
    assert isinstance(reach(scheduler, more[1], 0.01), Pause)
    assert isinstance(scheduler.next_work("w"), Wait)
    scheduler.report_failure(more[0], "NaN", 1.0, None)
    finish(scheduler)
    audited = [trial.audited is not None for trial in scheduler.state().trials]
    assert audited == [True, True, True, False, True]
    assert sweep_status(backend, scheduler) == "evaluating"


REFUSED = [
    (2, r"max_trials = 2 is not accepted: give more than the 9 of now, at most 90000"),
    (9, r"max_trials = 9 is not accepted"),
    (MAX_TRIALS + 1, r"max_trials = 90001 is not accepted"),
]


@pytest.mark.parametrize(("wanted", "message"), REFUSED)
def test_a_sweep_is_extended_to_more_trials_only(
    backend: Backend, small_spec: Spec, clock: Clock, wanted: int, message: str
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    with pytest.raises(InvalidInput, match=message):
        extend_sweep(backend.catalog, scheduler.id, wanted)
    assert scheduler.state().max_trials == 9


def test_a_grid_is_not_extended(backend: Backend, small_spec: Spec, clock: Clock) -> None:
    scheduler = open_scheduler(backend, small_spec(strategy={"grid": {"points": 3}}), clock)
    with pytest.raises(
        InvalidInput, match=r"is a grid of 3 points and tries them all: launch another with more points"
    ):
        extend_sweep(backend.catalog, scheduler.id, 5)


def test_an_ended_sweep_refuses_every_order_and_says_what_to_do_instead(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_trials=1), clock)
    finish(scheduler)
    for order in (
        pause_sweep,
        resume_sweep,
        stop_sweep,
        lambda catalog, sweep: extend_sweep(catalog, sweep, 5),
    ):
        with pytest.raises(
            SweepEnded, match=rf"sweep {scheduler.id} is evaluating.*warm_start: \[{scheduler.id}\]"
        ):
            order(backend.catalog, scheduler.id)
        with pytest.raises(
            NotFound, match=rf"no sweep 'other' in the catalog; the newest are \['{scheduler.id}'\]"
        ):
            order(backend.catalog, "other")


def test_a_trial_is_given_up_when_its_workers_are_lost_too_often(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_preemptions=2, max_retries=0, max_trials=2), clock)
    for attempt in (1, 2, 3):
        assignment = work(scheduler, "lost")
        assert (assignment.trial, assignment.attempt) == (0, attempt)
        clock.lose_all(scheduler)
    assert [lost.attempt for lost in scheduler.requeue_lost()] == [3]
    trial = scheduler.state().trials[0]
    assert (trial.status, trial.preemptions, trial.failures, trial.results) == (Status.FAILED, 3, 0, (None,))
    with backend.catalog.read() as session:
        row = backend.catalog.trials(session, scheduler.id)[0]
    assert row.error == "attempt 3 was lost: worker lost stopped sending heartbeats"
    assert isinstance(reach(scheduler, work(scheduler), 0.5), Pause)


def test_crashes_and_lost_workers_are_counted_apart(backend: Backend, small_spec: Spec, clock: Clock) -> None:
    scheduler = open_scheduler(backend, small_spec(max_preemptions=1, max_retries=1), clock)
    work(scheduler)
    clock.lose_all(scheduler)
    scheduler.report_crash(work(scheduler), "boom", 1.0)
    assert isinstance(scheduler.report_crash(work(scheduler), "boom again", 1.0), Fail)


def test_the_same_spec_with_another_priority_goes_on_with_that(backend: Backend, small_spec: Spec) -> None:
    def launch_spec(**changes: Any) -> tuple[str, int, int]:
        row = open_sweep(backend.catalog, small_spec(**changes), "sha256:s", driver="job", commit=None)
        return row.id, row.priority, stored_spec(row.spec).priority

    sweep = launch_spec(project="vision", priority=2)[0]
    assert launch_spec(project="vision", priority=5) == (sweep, 5, 5)
    assert launch_spec(project="vision") == (sweep, 0, 0)
    with backend.catalog.write() as session:
        backend.catalog.sweep(
            session, sweep
        ).spec_digest = "sha256:of an earlier version, in which it counted"
    assert launch_spec(project="vision", priority=7) == (sweep, 7, 7)
    asked_for = open_sweep(
        backend.catalog, small_spec(project="vision"), "sha256:s", driver="job", commit=None, sweep=sweep
    )
    assert (asked_for.id, asked_for.priority) == (sweep, 7), (
        "whoever carries an intent out once more does not change it"
    )


def test_a_spec_goes_on_in_its_project_by_each_name_that_this_had_and_in_no_other(
    backend: Backend, small_spec: Spec
) -> None:
    def launch_spec(project: str) -> tuple[str, str]:
        row = open_sweep(backend.catalog, small_spec(project=project), "sha256:s", driver="job", commit=None)
        return row.id, row.project

    vision = launch_spec("vision")
    rename_project(backend.catalog, "vision", "sight")
    assert [launch_spec("vision"), launch_spec("sight")] == [vision, vision], "its runs stay where they are"
    speech = launch_spec("speech")
    assert speech[0] != vision[0]
    assert [launch_spec("speech"), launch_spec("sight")] == [speech, vision]
    with pytest.raises(AlreadyExists, match="exists with another spec"):
        open_sweep(
            backend.catalog,
            small_spec(project="speech"),
            "sha256:s",
            driver="job",
            commit=None,
            sweep=vision[0],
        )
    with backend.catalog.write() as session:
        for sweep in (vision[0], speech[0]):
            backend.catalog.sweep(session, sweep).spec_digest = f"sha256:of an earlier version, {sweep}"
    assert [launch_spec("speech"), launch_spec("sight")] == [speech, vision]
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, vision[0]).status = "finished"
    assert launch_spec("sight")[0] not in (vision[0], speech[0])
