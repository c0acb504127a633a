"""Reading the ledger: what attempts held, with what their trials were for."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from resources.analysis.attempts import is_audit
from resources.analysis.costs.sums import AUDIT, FAILED, FINAL, OPEN, OTHERS, PRUNED, WINNER, Held
from resources.catalog import AttemptRow, ProjectRow, RungResultRow, SweepRow, TrialRow
from resources.catalog.held import held_seconds
from resources.catalog.trial_key import trial_key
from resources.search.state import Status

_PURPOSES = {Status.COMPLETED: OTHERS, Status.FAILED: FAILED, Status.PAUSED: PRUNED, Status.STOPPED: PRUNED}


def held_of(session: Session, now: float, *which: ColumnElement[bool], winners: dict[str, int] | None = None) -> list[Held]:
    """The attempts of sweeps, in the order in which they were handed out, each with the name that its project has now.

    Args:
        now: by the catalog's clock, in seconds since the epoch; what runs is counted until then, but not beyond its lease.
        which: of which sweeps and trials; all without.
        winners: sweep to the trial that leads, where that is known.
    """
    of = (RungResultRow.sweep, RungResultRow.trial, RungResultRow.attempt)
    told = select(*of, func.sum(RungResultRow.seconds).label("seconds")).where(RungResultRow.value.is_not(None)).group_by(*of).subquery()
    attempt = AttemptRow
    shown = (attempt.sweep, attempt.trial, attempt.attempt, attempt.rung, attempt.outcome, attempt.started_at, attempt.held_since)
    held = (attempt.ended_at, attempt.seconds, attempt.nodes, attempt.gpus, attempt.cpus, attempt.gpu_type, attempt.spot)
    query = (
        select(
            *(*shown, *held),
            *(SweepRow.name.label("model"), SweepRow.project.label("project")),
            *(TrialRow.status, TrialRow.final, TrialRow.audited, TrialRow.lease_until),
            func.coalesce(told.c.seconds, 0.0).label("with_result"),
        )
        .join(SweepRow, SweepRow.id == attempt.sweep)
        .join(TrialRow, (TrialRow.sweep == attempt.sweep) & (TrialRow.number == attempt.trial))
        .outerjoin(told, (told.c.sweep == attempt.sweep) & (told.c.trial == attempt.trial) & (told.c.attempt == attempt.attempt))
        .where(*which)
        .order_by(attempt.started_at, attempt.sweep, attempt.trial, attempt.attempt)
    )
    called = {former: row.name for row in session.scalars(select(ProjectRow)) for former in row.former_names}
    return [_held(row, called.get(row.project, row.project), now, winners or {}) for row in session.execute(query)]


def _held(row: Any, project: str, now: float, winners: dict[str, int]) -> Held:
    ended: datetime | None = row.ended_at
    return Held(
        sweep=row.sweep,
        project=project,
        model=row.model,
        trial=trial_key(row.sweep, row.trial),
        attempt=row.attempt,
        purpose=_purpose(row, winners.get(row.sweep)),
        outcome=row.outcome,
        month=f"{ended or datetime.fromtimestamp(now, UTC):%Y-%m}",
        seconds=row.seconds if ended else held_seconds(row.held_since, now, row.lease_until),
        with_result=row.with_result,
        nodes=row.nodes,
        gpus=row.gpus,
        cpus=row.cpus,
        gpu_type=row.gpu_type,
        spot=row.spot,
    )


def _purpose(row: Any, winner: int | None) -> str:
    if row.final is not None:
        return FINAL
    if is_audit(row.rung, row.audited):
        return AUDIT
    if row.trial == winner:
        return WINNER
    if row.audited is not None:  # pruned, whatever its audit made of it
        return PRUNED
    return _PURPOSES.get(Status(row.status), OPEN)
