"""Sweeps that ask for places, and what they do with those that they get."""

from collections.abc import Callable

from halving.trial.messages import ReachedRung
from resources.catalog import SweepRow
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import HeldBack, Scheduler
from resources.search.decide import Pause

Open = Callable[..., Scheduler]


def work(scheduler: Scheduler, worker: str = "w") -> Assignment:
    assignment = scheduler.next_work(worker)
    assert isinstance(assignment, Assignment), assignment
    return assignment


def waits(scheduler: Scheduler) -> str:
    assert isinstance(scheduler.next_work("w"), HeldBack)
    return row_of(scheduler).waiting or ""


def row_of(scheduler: Scheduler) -> SweepRow:
    with scheduler.catalog.read() as session:
        return scheduler.catalog.sweep(session, scheduler.id)


def pause_at_its_rung(scheduler: Scheduler, assignment: Assignment) -> None:
    report = ReachedRung(
        assignment.granted, {"score": 0.0}, f"sha256:{assignment.trial}-{assignment.granted}"
    )
    assert isinstance(scheduler.report_rung(assignment, report, 1.0), Pause)


def complete(scheduler: Scheduler, assignment: Assignment) -> None:
    scheduler.report_rung(
        assignment, ReachedRung(assignment.granted, {"score": 0.0}, f"sha256:{assignment.trial}"), 1.0
    )
