"""Attempts at trials, from the catalog: when each was handed out, which worker had it, and how it ended."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from resources.catalog import AttemptRow, TrialRow
from resources.search.state import Rules


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial.

    Attributes:
        rung: the rung that it trained for first.
        audit: whether it trains a pruned trial on, for the audit.
        worker: None until a worker has claimed it.
        began: when it was handed out.
        ended, outcome: None while it runs.
        error: why it failed or was preempted.
    """

    trial: int
    attempt: int
    bracket: int
    rung: int
    audit: bool
    worker: str | None
    began: datetime
    ended: datetime | None
    outcome: str | None
    error: str | None


def searched_attempts(session: Session, sweep: str, rules: Rules) -> list[Attempt]:
    """The attempts at all trials of a sweep's search, in order of time."""
    return _attempts(session, sweep, rules, TrialRow.final.is_(None))


def attempts_of(session: Session, sweep: str, rules: Rules, trial: int) -> list[Attempt]:
    """The attempts at one trial, of the search or of the final training, in order of time."""
    return _attempts(session, sweep, rules, AttemptRow.trial == trial)


def _attempts(session: Session, sweep: str, rules: Rules, which: ColumnElement[bool]) -> list[Attempt]:
    query = select(AttemptRow, TrialRow.audited).join(
        TrialRow, (TrialRow.sweep == AttemptRow.sweep) & (TrialRow.number == AttemptRow.trial)
    )
    query = query.where(AttemptRow.sweep == sweep, which).order_by(AttemptRow.started_at, AttemptRow.attempt)
    return [
        Attempt(
            trial=row.trial,
            attempt=row.attempt,
            bracket=rules.bracket(row.trial),
            rung=row.rung,
            audit=is_audit(row.rung, audited),
            worker=row.worker,
            began=row.started_at,
            ended=row.ended_at,
            outcome=row.outcome,
            error=row.error,
        )
        for row, audited in session.execute(query)
    ]


def is_audit(rung: int, audited: int | None) -> bool:
    """Whether training for ``rung`` belongs to an audit; ``audited`` is how many results the trial had when it was pruned, or None."""
    return audited is not None and rung >= audited
