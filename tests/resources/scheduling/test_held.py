"""The ledger of attempts: each has what it held and for how long, however it ends and whatever clocks say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.backend import Backend
from resources.catalog import AttemptRow, TrialRow
from resources.catalog.held_time import held_seconds
from resources.scheduling.assignment import Assignment
from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row

Spec = Callable[..., SweepSpec]
NOW = datetime(2026, 11, 26, tzinfo=UTC)
HOUR = 3600.0


class Shifted:
    """The catalog's clock, and as many seconds more as a test says."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.shift = 0.0

    def __call__(self) -> float:
        return self._backend.catalog.now() + self.shift


@pytest.fixture
def backend(backend: Backend) -> Backend:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    return backend


@pytest.fixture
def clock_of_catalog(backend: Backend) -> Shifted:
    return Shifted(backend)


def open_scheduler(backend: Backend, spec: SweepSpec, clock: Shifted, driver: str = "job") -> Scheduler:
    return Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, "sha256:s", driver=driver, commit=None).id, clock
    )


def next_assignment(scheduler: Scheduler, worker: str | None = "w") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment)
    return assignment


def rows(backend: Backend) -> list[AttemptRow]:
    with backend.catalog.read() as session:
        return list(session.scalars(select(AttemptRow).order_by(AttemptRow.trial, AttemptRow.attempt)))


def backdate_attempts(backend: Backend, seconds: float) -> None:
    """Attempts that are held since so many seconds earlier."""
    with backend.catalog.write() as session:
        for row in session.scalars(select(AttemptRow).where(AttemptRow.ended_at.is_(None))):
            row.held_since = (row.held_since or row.started_at) - timedelta(seconds=seconds)


END: dict[str, Callable[[Scheduler, Assignment], object]] = {
    "pause": lambda scheduler, assignment: scheduler.report_rung(
        assignment, ReachedRung(1, {"score": 0.1}, "sha256:c"), 7.0
    ),
    "complete": lambda scheduler, assignment: scheduler.report_return(
        assignment, ReturnedEarly(1, {"score": 0.1}, "sha256:c"), 7.0
    ),
    "retry": lambda scheduler, assignment: scheduler.report_crash(assignment, "boom", 7.0),
    "fail": lambda scheduler, assignment: scheduler.report_failure(assignment, "boom", 7.0, None),
    "preempted": lambda scheduler, assignment: scheduler.report_preemption(assignment, "reclaimed", 7.0),
    "requeue": lambda scheduler, assignment: scheduler.release(assignment, 7.0),
    "resized": lambda scheduler, assignment: scheduler.report_resize(assignment, 7.0),
    "halved": lambda scheduler, assignment: scheduler.report_out_of_memory(assignment, "out of memory", 7.0),
}


@pytest.mark.parametrize("outcome", END)
def test_an_attempt_held_its_resources_for_as_long_as_its_worker_says(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted, outcome: str
) -> None:
    resources = {"gpus": 2, "nodes": 3, "cpus": 4, "gpu_type": "a100", "spot": True}
    scheduler = open_scheduler(backend, small_spec(resources=resources, image="i"), clock_of_catalog)
    END[outcome](scheduler, next_assignment(scheduler))
    (row,) = rows(backend)
    assert (row.outcome, row.seconds) == (outcome, 7.0)
    assert (row.nodes, row.gpus, row.cpus, row.gpu_type, row.spot) == (3, 2, 4.0, "a100", True)


def test_an_attempt_that_goes_on_in_place_counts_all_of_its_rungs_once(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    spec = small_spec(
        strategy={"median": {"min_budget": 1, "max_budget": 9}}, resources={"gpus": {1: 1, 3: 1, 9: 1}}
    )
    scheduler = open_scheduler(backend, spec, clock_of_catalog)
    assignment = next_assignment(scheduler)
    for epoch, budget in enumerate(assignment.ladder[:-1], start=1):
        scheduler.report_rung(assignment, ReachedRung(budget, {"score": epoch / 10}, f"sha256:{epoch}"), 5.0)
    scheduler.report_crash(assignment, "boom", 2.0)
    assert rows(backend)[0].seconds == 5.0 * (len(assignment.ladder) - 1) + 2.0


def test_what_nobody_has_claimed_holds_nothing(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock_of_catalog, "sensors")
    waiting = next_assignment(scheduler, None)
    claimed = next_assignment(scheduler, None)
    scheduler.claim(claimed.trial, "w")
    backdate_attempts(backend, 60.0)
    scheduler.report_failed_launch(waiting, "its run was canceled")
    scheduler.report_failure(claimed, "it diverged", None, None)
    assert [row.seconds for row in rows(backend)] == [0.0, pytest.approx(60.0, abs=30.0)]


def test_a_lost_attempt_counts_until_its_last_lease_however_late_that_is_noticed(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock_of_catalog)
    assignment = next_assignment(scheduler)
    backdate_attempts(backend, HOUR)
    clock_of_catalog.shift = 7 * 24 * HOUR  # a weekend without a scheduler
    assert scheduler.requeue_lost() == []
    clock_of_catalog.shift += DOUBT_SECONDS + 1
    assert [lost.trial for lost in scheduler.requeue_lost()] == [assignment.trial]
    (row,) = rows(backend)
    assert row.outcome == "preempted"
    assert HOUR <= row.seconds <= HOUR + LEASE_SECONDS


def test_what_a_lost_attempt_has_told_before_is_not_counted_twice(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    scheduler = open_scheduler(
        backend, small_spec(strategy={"median": {"min_budget": 1, "max_budget": 9}}), clock_of_catalog
    )
    assignment = next_assignment(scheduler)
    backdate_attempts(backend, HOUR)
    scheduler.report_rung(assignment, ReachedRung(assignment.ladder[0], {"score": 0.1}, "sha256:c"), 1800.0)
    clock_of_catalog.shift = LEASE_SECONDS + 1
    scheduler.requeue_lost()
    clock_of_catalog.shift += DOUBT_SECONDS + 1
    assert scheduler.requeue_lost()
    assert HOUR <= rows(backend)[0].seconds <= HOUR + LEASE_SECONDS


def test_a_clock_that_is_wrong_makes_no_negative_and_no_endless_attempts() -> None:
    now = NOW.timestamp()
    assert held_seconds(NOW + timedelta(days=365), now, now + 15) == 0.0, (
        "taken by a clock that is a year ahead"
    )
    assert held_seconds(NOW - timedelta(seconds=60), now + 1e9, now) == 60.0, (
        "ended by a clock that is decades ahead"
    )
    assert held_seconds(NOW, now - 1e9, now) == 0.0
    assert held_seconds(None, now, now) == 0.0


def test_a_worker_whose_clock_runs_backwards_takes_nothing_from_the_ledger(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock_of_catalog)
    scheduler.release(next_assignment(scheduler), -100.0)
    assert rows(backend)[0].seconds == 0.0


def test_a_gang_that_begins_late_with_fewer_nodes_counts_from_then_with_those(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    scheduler = open_scheduler(
        backend, small_spec(resources={"gpus": 8, "nodes": 4}, image="i"), clock_of_catalog
    )
    assignment = next_assignment(scheduler)
    backdate_attempts(backend, HOUR)
    scheduler.begin_holding(assignment, 2)
    with backend.catalog.write() as session:
        session.execute(update(TrialRow).values(lease_until=backend.catalog.now() + LEASE_SECONDS))
    scheduler.report_failure(assignment, "it diverged", None, None)
    (row,) = rows(backend)
    assert (row.nodes, row.gpus) == (2, 8)
    assert row.seconds < HOUR / 2


def test_a_paused_sweeps_unclaimed_attempts_cost_nothing(
    backend: Backend, small_spec: Spec, clock_of_catalog: Shifted
) -> None:
    scheduler = open_scheduler(backend, small_spec(), clock_of_catalog, "sensors")
    next_assignment(scheduler, None)
    pause_sweep(backend.catalog, scheduler.id)
    scheduler.next_work(None)
    assert [(row.outcome, row.seconds) for row in rows(backend)] == [("requeue", 0.0)]
