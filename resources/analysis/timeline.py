"""The timeline of a search without its final training: every attempt, and every result at a rung."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from resources.analysis.attempts import Attempt, is_audit, searched_attempts
from resources.catalog import Catalog, RungResultRow, TrialRow
from resources.sweep_spec import stored_spec


@dataclass(frozen=True)
class Milestone:
    """A trial's result at a rung, or its failure on the way there.

    Attributes:
        value: None for a failure.
        decision: continue, pause, stop, complete, fail or requeue.
        audit: whether the trial had been pruned before.
    """

    trial: int
    attempt: int
    rung: int
    epochs: int
    value: float | None
    violation: float
    decision: str
    audit: bool
    at: datetime


@dataclass(frozen=True)
class Timeline:
    """A sweep's attempts and milestones, each in order of time."""

    attempts: list[Attempt]
    milestones: list[Milestone]

    @property
    def began(self) -> datetime | None:
        """When the first trial was handed out."""
        return min(
            (*(attempt.began for attempt in self.attempts), *(milestone.at for milestone in self.milestones)),
            default=None,
        )

    @property
    def ended(self) -> datetime | None:
        """When the last event happened."""
        times = [milestone.at for milestone in self.milestones]
        times += [attempt.began for attempt in self.attempts]
        times += [attempt.ended for attempt in self.attempts if attempt.ended]
        return max(times, default=None)


def timeline_of(catalog: Catalog, sweep: str) -> Timeline:
    """The timeline of a sweep.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        attempts = searched_attempts(session, sweep, stored_spec(catalog.sweep(session, sweep).spec))
        reached = select(RungResultRow, TrialRow.audited).join(
            TrialRow, (TrialRow.sweep == RungResultRow.sweep) & (TrialRow.number == RungResultRow.trial)
        )
        results = session.execute(
            reached.where(RungResultRow.sweep == sweep, TrialRow.final.is_(None)).order_by(
                RungResultRow.reached_at
            )
        ).all()
    copied = ("trial", "attempt", "rung", "epochs", "value", "violation", "decision")
    milestones = [
        Milestone(
            **{name: getattr(row, name) for name in copied},
            audit=is_audit(row.rung, audited),
            at=row.reached_at,
        )
        for row, audited in results
    ]
    return Timeline(attempts, milestones)
