"""What happened in a sweep and when: every attempt at a trial, and every result at a rung."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from resources.catalog import AttemptRow, Catalog, RungResultRow, TrialRow
from resources.search.rules import rules_of
from resources.sweep_spec import parse_spec


@dataclass(frozen=True)
class Milestone:
    """A trial's result at a rung, or its failure on the way there (``value`` is None).

    ``decision`` is the scheduler's word: continue, pause, stop, complete, fail, requeue. ``audit`` says that the search
    had pruned the trial before.
    """

    trial: int
    attempt: int
    bracket: int
    rung: int
    epochs: int
    value: float | None
    violation: float
    decision: str
    audit: bool
    at: datetime


@dataclass(frozen=True)
class Stint:
    """One attempt at a trial: from its hand-out to how it ended; ``ended`` and ``outcome`` are None while it runs."""

    trial: int
    attempt: int
    bracket: int
    rung: int
    audit: bool
    began: datetime
    ended: datetime | None
    outcome: str | None


@dataclass(frozen=True)
class Timeline:
    """A sweep's stints and milestones, each in the order of time."""

    stints: list[Stint]
    milestones: list[Milestone]

    @property
    def began(self) -> datetime | None:
        """When the first trial was handed out."""
        return min((*(stint.began for stint in self.stints), *(milestone.at for milestone in self.milestones)), default=None)

    @property
    def ended(self) -> datetime | None:
        """When the last thing happened that is known."""
        known = [moment for stint in self.stints for moment in (stint.began, stint.ended) if moment]
        return max((*known, *(milestone.at for milestone in self.milestones)), default=None)


def timeline_of(catalog: Catalog, sweep: str) -> Timeline:
    """A sweep's timeline from the catalog.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        rules = rules_of(parse_spec(catalog.sweep(session, sweep).spec))
        trials = session.execute(select(TrialRow.number, TrialRow.audited).where(TrialRow.sweep == sweep))
        audited = {row.number: row.audited for row in trials}
        attempts = session.scalars(select(AttemptRow).where(AttemptRow.sweep == sweep).order_by(AttemptRow.started_at)).all()
        results = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep).order_by(RungResultRow.reached_at)).all()

    def of_audit(trial: int, rung: int) -> bool:
        pruned_at = audited[trial]
        return pruned_at is not None and rung >= pruned_at

    stints = [
        Stint(
            row.trial,
            row.attempt,
            rules.bracket(row.trial),
            row.rung,
            of_audit(row.trial, row.rung),
            row.started_at,
            row.ended_at,
            row.outcome,
        )
        for row in attempts
    ]
    milestones = [
        Milestone(
            row.trial,
            row.attempt,
            rules.bracket(row.trial),
            row.rung,
            row.epochs,
            row.value,
            row.violation,
            row.decision,
            of_audit(row.trial, row.rung),
            row.reached_at,
        )
        for row in results
    ]
    return Timeline(stints, milestones)
