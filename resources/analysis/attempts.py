"""Attempts at trials, from the catalog: when each was handed out, what it ran on, and how it ended."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from halving.text import count_of
from resources.analysis.reasons import short_reason
from resources.catalog import AttemptRow, TrialRow
from resources.search.rules import rules_of
from resources.search.state import Rules
from resources.sweep_spec import SweepSpec


@dataclass(frozen=True)
class Attempt:
    """One attempt at a trial.

    Attributes:
        rung: the rung that it trained for first.
        audit: whether it trains a pruned trial on, for the audit.
        worker: None until a worker has claimed it.
        nodes, gpus, ranks: the numbers of all its nodes, GPUs and ranks.
        began: when it was handed out.
        ended: when it ended; None while it runs.
        outcome: how it ended, as in the catalog; None while it runs.
        error: why it failed or was preempted, with the stacks that were recorded.
        reason: the error in one line.
    """

    trial: int
    attempt: int
    bracket: int
    rung: int
    audit: bool
    worker: str | None
    nodes: int
    gpus: int
    ranks: int
    began: datetime
    ended: datetime | None
    outcome: str | None
    error: str | None
    reason: str | None

    @property
    def ran_on(self) -> str:
        """Its ranks, and the nodes and GPUs that they had: ``16 ranks, 2 nodes, 16 GPUs``."""
        counts = {"rank": self.ranks, "node": self.nodes, "GPU": self.gpus}
        return ", ".join(count_of(count, noun) for noun, count in counts.items() if count)


def searched_attempts(session: Session, sweep: str, spec: SweepSpec) -> list[Attempt]:
    """The attempts at all trials of a sweep's search, in order of time."""
    return _attempts(session, sweep, spec, TrialRow.final.is_(None))


def attempts_of(session: Session, sweep: str, spec: SweepSpec, trial: int) -> list[Attempt]:
    """The attempts at one trial, of the search or of the final training, in order of time."""
    return _attempts(session, sweep, spec, AttemptRow.trial == trial)


def _attempts(session: Session, sweep: str, spec: SweepSpec, which: ColumnElement[bool]) -> list[Attempt]:
    rules = rules_of(spec)
    query = select(AttemptRow, TrialRow.audited, TrialRow.final).join(
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
            nodes=row.nodes,
            gpus=row.nodes * row.gpus,
            ranks=row.nodes * spec.resources.at(_trains_to(row, spec, rules, final)).processes,
            began=row.started_at,
            ended=row.ended_at,
            outcome=row.outcome,
            error=row.error,
            reason=short_reason(row.error),
        )
        for row, audited, final in session.execute(query)
    ]


def _trains_to(row: AttemptRow, spec: SweepSpec, rules: Rules, final: int | None) -> int:
    """The number of epochs that decided which resources an attempt got: that of its first rung."""
    if final is not None:
        return spec.final_epochs
    return rules.ladder(row.trial)[row.rung]


def is_audit(rung: int, audited: int | None) -> bool:
    """Whether training for a rung belongs to an audit.

    Args:
        audited: how many results the trial had when it was pruned; None if it was not.
    """
    return audited is not None and rung >= audited
