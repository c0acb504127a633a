"""Deletes what was told long ago, so that the outbox does not grow for ever."""

from collections.abc import Sequence

from sqlalchemy import delete, exists, select, tuple_
from sqlalchemy.orm import Session

from resources.alerts.outbox import DEAD, SENT
from resources.catalog import AlertDeliveryRow, AlertMessageRow, AlertRow, Catalog, RunRow

KEPT_SECONDS = 90 * 86_400.0
"""How long alerts are kept, and messages that were sent or are dead letters."""
_AT_ONCE = 500  # rows of a transaction, so that it does not occupy SQLite's one writer for long
_NO_ROWS = {"synchronize_session": False}


def delete_old_alerts(catalog: Catalog) -> int:
    """Delete alerts and messages that are older than :data:`KEPT_SECONDS`; return how many alerts.

    A message that waits stays with its alerts, and so do alerts of runs that still train, because a bound is
    told once for each run, and the alert says that it was.
    """
    before = catalog.now() - KEPT_SECONDS
    while _delete_messages(catalog, before):
        pass
    deleted = 0
    last: int | None = 0
    while last is not None:
        last, count = _delete_alerts(catalog, before, last)
        deleted += count
    return deleted


def _delete_messages(catalog: Catalog, before: float) -> int:
    old = select(AlertMessageRow.id).where(
        AlertMessageRow.state.in_((SENT, DEAD)), AlertMessageRow.created < before
    )
    with catalog.read() as session:
        if session.scalar(old.limit(1)) is None:
            return 0
    with catalog.write(exclusive=True) as session:
        messages = session.scalars(old.limit(_AT_ONCE)).all()
        _delete(session, AlertDeliveryRow, AlertDeliveryRow.message.in_(messages))
        _delete(session, AlertMessageRow, AlertMessageRow.id.in_(messages))
    return len(messages)


def _delete_alerts(catalog: Catalog, before: float, after: int) -> tuple[int | None, int]:
    """Delete the next old alerts after an id; return the last one looked at, and how many were deleted."""
    waits = exists().where(AlertDeliveryRow.alert == AlertRow.id)
    old = (
        select(AlertRow.id, AlertRow.kind, AlertRow.subject)
        .where(AlertRow.at < before, AlertRow.id > after, ~waits)
        .order_by(AlertRow.id)
        .limit(_AT_ONCE)
    )
    with catalog.read() as session:
        if session.execute(old.limit(1)).first() is None:
            return None, 0
    with catalog.write(exclusive=True) as session:
        rows = session.execute(old).all()
        if not rows:
            return None, 0
        training = _running(session, [row.subject for row in rows if row.kind == "run"])
        ids = [row.id for row in rows if row.subject not in training]
        _delete(session, AlertRow, AlertRow.id.in_(ids))
    return rows[-1].id, len(ids)


def _running(session: Session, subjects: Sequence[str]) -> set[str]:
    """Those of some runs that are running."""
    pairs = sorted({tuple(subject.split("/", 1)) for subject in subjects})
    rows = session.execute(
        select(RunRow.project, RunRow.run).where(
            tuple_(RunRow.project, RunRow.run).in_(pairs), RunRow.status == "running"
        )
    )
    return {f"{project}/{run}" for project, run in rows}


def _delete(session: Session, row: type, condition: object) -> None:
    session.execute(delete(row).where(condition), execution_options=_NO_ROWS)  # type: ignore[arg-type]
