"""Decisions carried out on the catalog: leases, attempts, resuming, and workers that ask at once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from sqlalchemy import select

from halving.trial.messages import ReachedRung
from resources.backend import Backend
from resources.catalog import AttemptRow, Catalog, SnapshotRow
from resources.catalog.trial_key import parse_trial_key, trial_key
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Complete, Continue, Fail, Finish, Pause, Requeue, Retry, Wait
from resources.search.state import Status
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row
from tests.clock import Clock

Spec = Callable[..., SweepSpec]


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


def open_scheduler(backend: Backend, spec: SweepSpec, clock: Clock, driver: str = "job") -> Scheduler:
    with backend.catalog.write() as session:
        if session.get(SnapshotRow, "sha256:s") is None:
            session.add(snapshot_row("sha256:s"))
    row = open_sweep(backend.catalog, spec, "sha256:s", driver=driver, commit="c0ffee")
    return Scheduler(backend.catalog, row.id, clock)


def work(scheduler: Scheduler, worker: str | None = "w") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment)
    return assignment


def reach(scheduler: Scheduler, assignment: Assignment, value: float) -> object:
    return scheduler.report_rung(assignment, report(value, assignment.granted), 1.5)


def report(value: float, epochs: int) -> ReachedRung:
    return ReachedRung(epochs, {"score": value}, "sha256:c")


def test_a_trial_goes_on_in_place_pauses_and_resumes_with_the_next_attempt(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_trials=3), clock)
    first = work(scheduler)
    second = work(scheduler)
    third = work(scheduler)
    assert (first.granted, first.rung, first.attempt) == (1, 0, 1)
    assert isinstance(reach(scheduler, first, 0.9), Pause)
    assert isinstance(reach(scheduler, second, 0.1), Pause)
    assert isinstance(reach(scheduler, third, 0.95), Continue)
    assert isinstance(scheduler.next_work("w"), Wait)
    assert isinstance(scheduler.report_rung(third, report(0.96, 3), 1.0), Pause)
    assert isinstance(scheduler.next_work("w"), Finish)


def test_a_promoted_pause_resumes_at_the_next_rung_with_the_next_attempt(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_trials=3), clock)
    for value in (0.9, 0.1, 0.2):
        reach(scheduler, work(scheduler), value)
    resumed = work(scheduler)
    assert (resumed.trial, resumed.attempt, resumed.rung, resumed.granted) == (0, 2, 1, 3)
    assert resumed.run_key == f"{scheduler.id}.0000/r1/a2"


def test_the_same_launch_is_resumed_until_it_ends_and_then_a_new_one_begins(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    assert open_scheduler(backend, small_spec(), clock).id == scheduler.id
    assert open_scheduler(backend, small_spec(seed=5), clock).id != scheduler.id
    assert open_scheduler(backend, small_spec(), clock, driver="sensors").id != scheduler.id
    backend.catalog.end_sweep(scheduler.id, "finished")
    again = open_scheduler(backend, small_spec(), clock)
    assert again.id != scheduler.id
    assert again.id.startswith("small-")


def test_params_and_seed_of_a_trial_never_change(backend: Backend, small_spec: Spec, clock: Clock) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    first = work(scheduler)
    scheduler.report_crash(first, "boom", 0.1)
    second = work(scheduler)
    assert (second.trial, second.params, second.seed) == (first.trial, first.params, first.seed)
    assert work(scheduler).seed != first.seed


def test_a_lost_lease_gives_the_trial_to_another_worker_and_refuses_the_first(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    first = work(scheduler, "first")
    clock.lose_all(scheduler)
    second = work(scheduler, "second")
    assert (second.trial, second.attempt) == (first.trial, 2)
    for call in (
        lambda: reach(scheduler, first, 0.5),
        lambda: scheduler.heartbeat(first),
        lambda: scheduler.report_crash(first, "late", 0),
        lambda: scheduler.release(first, 0),
    ):
        with pytest.raises(Superseded, match=r"attempt 1 .* lost its lease: attempt 2 is running"):
            call()
    assert isinstance(reach(scheduler, second, 0.5), Pause)


def test_heartbeats_keep_a_lease(backend: Backend, small_spec: Spec, clock: Clock) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock)
    first = work(scheduler)
    for _ in range(5):
        clock.now += LEASE_SECONDS - 1
        scheduler.heartbeat(first)
    assert scheduler.requeue_lost() == []
    assert work(scheduler).trial == 1


def test_a_trial_is_given_up_after_its_retries_with_its_error(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_retries=1), clock)
    assert isinstance(scheduler.report_crash(work(scheduler), "first", 0.5), Retry)
    assert isinstance(scheduler.report_crash(work(scheduler), "second", 0.5), Fail)
    with backend.catalog.read() as session:
        row = backend.catalog.trials(session, scheduler.id)[0]
    assert (row.status, row.error, row.failures, row.seconds) == ("failed", "second", 2, 1.0)
    assert scheduler.state().trials[0].results == (None,)


def test_a_released_trial_goes_on_elsewhere_without_a_failure_counted(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_retries=0), clock)
    scheduler.release(work(scheduler), 1.0)
    again = work(scheduler)
    assert (again.trial, again.attempt) == (0, 2)
    assert scheduler.state().trials[0].failures == 0


def test_a_resized_trial_is_handed_out_first_however_often_that_is_reported(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    median = {"median": {"min_budget": 1, "max_budget": 3}}
    scheduler = open_scheduler(backend, small_spec(strategy=median, max_retries=0, max_preemptions=0), clock)
    first = work(scheduler)
    assert isinstance(reach(scheduler, first, 0.5), Continue)
    for _ in range(2):  # the answer to the first COMMIT may have been lost
        assert scheduler.report_resize(first, 1.0) == Requeue(first.trial)
    again = work(scheduler)
    assert (again.trial, again.attempt, again.rung, again.granted) == (first.trial, 2, 1, 2)
    assert (scheduler.state().trials[0].failures, scheduler.state().trials[0].preemptions) == (0, 0)


def test_a_trial_out_of_memory_has_not_failed_however_often_that_is_reported(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_retries=0, max_preemptions=0), clock)
    first = work(scheduler)
    for _ in range(2):  # the answer to the first COMMIT may have been lost
        assert scheduler.report_out_of_memory(first, "rank 1 ran out of memory", 1.0) == Requeue(first.trial)
    again = work(scheduler)
    assert (again.trial, again.attempt) == (first.trial, 2)
    assert (scheduler.state().trials[0].failures, scheduler.state().trials[0].preemptions) == (0, 0)
    with backend.catalog.read() as session:
        (row,) = session.scalars(select(AttemptRow).where(AttemptRow.attempt == 1))
    assert (row.outcome, row.error) == ("halved", "rank 1 ran out of memory")


def test_a_sweep_without_any_result_fails_and_one_with_a_result_is_evaluated(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    for seed, value, status in ((0, None, "failed"), (1, 0.5, "evaluating")):
        scheduler = open_scheduler(backend, small_spec(max_trials=1, seed=seed), clock)
        assignment = work(scheduler)
        if value is None:
            scheduler.report_failure(assignment, "NaN", 0.1, None)
        else:
            reach(scheduler, assignment, value)
        assert isinstance(scheduler.next_work("w"), Finish)
        with backend.catalog.read() as session:
            assert backend.catalog.sweep(session, scheduler.id).status == status


def test_a_trial_that_was_handed_out_is_asked_for_again_until_one_run_claims_it(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock, driver="sensors")
    assignment = work(scheduler, None)
    assert (
        [waiting.run_key for waiting in scheduler.unclaimed_attempts()]
        == [assignment.run_key]
        == [f"{scheduler.id}.0000/r0/a1"]
    )
    assert scheduler.unclaimed_attempts() == scheduler.unclaimed_attempts()
    assert scheduler.claim(0, "run-1") == assignment
    assert scheduler.unclaimed_attempts() == []
    with pytest.raises(Superseded, match="not waiting for a worker: it is running, worker run-1"):
        scheduler.claim(0, "run-2")
    with pytest.raises(Superseded, match="there is no such trial"):
        scheduler.claim(7, "run-2")


def test_a_run_of_an_attempt_that_was_given_up_does_not_claim_the_next_one(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_trials=1), clock, driver="sensors")
    assert scheduler.report_failed_launch(work(scheduler, None), "its pod did not start")
    second = work(scheduler, None)
    with pytest.raises(
        Superseded, match=r"attempt 1 at trial .*0000 was given up: attempt 2 waits for a run of its own"
    ):
        scheduler.claim(0, "run-1", attempt=1)
    assert scheduler.claim(0, "run-2", attempt=2) == second


def test_a_trial_may_wait_for_its_run_as_long_as_it_has_to(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock, driver="sensors")
    assignment = work(scheduler, None)
    clock.now += 1e6
    assert scheduler.requeue_lost() == []
    assert scheduler.claim(assignment.trial, "run") == assignment


def test_a_trial_whose_run_never_began_is_handed_out_again_and_finally_given_up(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    scheduler = open_scheduler(backend, small_spec(max_retries=1), clock, driver="sensors")
    assignment = work(scheduler, None)
    assert scheduler.report_failed_launch(assignment, "no image")
    assert not scheduler.report_failed_launch(assignment, "no image")
    second = work(scheduler, None)
    assert (second.trial, second.attempt) == (assignment.trial, 2)
    assert scheduler.report_failed_launch(second, "no image")
    assert scheduler.state().trials[0].status is Status.FAILED
    third = work(scheduler, None)
    scheduler.claim(third.trial, "run")
    assert not scheduler.report_failed_launch(third, "it runs")


def test_workers_that_come_at_once_never_get_the_same_attempt(
    backend: Backend, small_spec: Spec, clock: Clock
) -> None:
    spec = small_spec(max_trials=12, strategy={"asha": {"sampler": "random", "max_budget": 9}})
    sweep = open_scheduler(backend, spec, clock).id
    ran: list[tuple[int, int]] = []

    def pull() -> None:
        with closing(Catalog(backend.catalog.url)) as catalog:
            own = Scheduler(catalog, sweep)
            while not isinstance(assignment := own.next_work(threading.current_thread().name), Finish):
                if isinstance(assignment, Assignment):
                    ran.append((assignment.trial, assignment.attempt))
                    for epochs in assignment.ladder[assignment.rung :]:
                        if not isinstance(
                            own.report_rung(assignment, report(assignment.params["x"], epochs), 0.0), Continue
                        ):
                            break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: pull(), range(4)))
    assert len(ran) == len(set(ran))
    state = Scheduler(backend.catalog, sweep).state()
    assert len(state.trials) == 12
    assert {trial.status for trial in state.trials} <= {Status.PAUSED, Status.COMPLETED}


def test_the_last_rung_completes_a_trial(backend: Backend, small_spec: Spec, clock: Clock) -> None:
    scheduler = open_scheduler(backend, small_spec(strategy={"random": {"budget": 5}}, max_trials=1), clock)
    assignment = work(scheduler)
    assert assignment.granted == 5
    assert isinstance(reach(scheduler, assignment, 0.1), Complete)


def test_a_trial_key_names_its_sweep_and_number() -> None:
    assert trial_key("digits-7f3a", 7) == "digits-7f3a.0007"
    assert parse_trial_key("my.sweep-7f3a.12345") == ("my.sweep-7f3a", 12345)
