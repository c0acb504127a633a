"""What the outbox holds, as plain data: alerts with what became of them, and dead letters."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from resources.alerts.outbox import DEAD
from resources.catalog import AlertDeliveryRow, AlertMessageRow, AlertRow

MAX_ALERTS = 1_000
"""In an answer."""


def list_alerts(
    session: Session,
    *,
    projects: Collection[str] | None = None,
    event: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Alerts, newest first, each with its deliveries: channel, state, tries, error.

    Args:
        projects: only alerts of these, and those of all projects; None for all.
        before: only alerts with a smaller id: the next page.
    """
    query = select(AlertRow).order_by(AlertRow.id.desc()).limit(limit)
    if projects is not None:
        query = query.where(or_(AlertRow.project.in_(projects), AlertRow.project.is_(None)))
    if event is not None:
        query = query.where(AlertRow.event == event)
    if before is not None:
        query = query.where(AlertRow.id < before)
    rows = session.scalars(query).all()
    deliveries: dict[int, list[dict[str, Any]]] = {row.id: [] for row in rows}
    joined = select(AlertDeliveryRow.alert, AlertDeliveryRow.channel, AlertMessageRow).outerjoin(
        AlertMessageRow, AlertMessageRow.id == AlertDeliveryRow.message
    )
    of_these = joined.where(AlertDeliveryRow.alert.in_(list(deliveries)))
    for alert, channel, message in session.execute(of_these.order_by(AlertDeliveryRow.channel)):
        deliveries[alert].append(_delivery_as_dict(channel, message))
    return [{**_alert_as_dict(row), "deliveries": deliveries[row.id]} for row in rows]


def list_dead_letters(session: Session, limit: int = 100) -> list[dict[str, Any]]:
    """Messages that did not reach their channel, newest first, with the reason and what they told of."""
    rows = session.scalars(
        select(AlertMessageRow)
        .where(AlertMessageRow.state == DEAD)
        .order_by(AlertMessageRow.created.desc(), AlertMessageRow.id)
        .limit(limit)
    ).all()
    titles: dict[str, list[str]] = {row.id: [] for row in rows}
    joined = (
        select(AlertDeliveryRow.message, AlertRow.title)
        .join(AlertRow, AlertRow.id == AlertDeliveryRow.alert)
        .where(AlertDeliveryRow.message.in_(list(titles)))
        .order_by(AlertRow.id)
    )
    for message, title in session.execute(joined):
        titles[str(message)].append(title)
    return [
        {
            "message": row.id,
            "channel": row.channel,
            "created": _time(row.created),
            "tries": row.tries,
            "error": row.error,
            "alerts": titles[row.id],
        }
        for row in rows
    ]


def _alert_as_dict(row: AlertRow) -> dict[str, Any]:
    names = ("id", "event", "level", "project", "kind", "subject", "title", "text")
    return {**{name: getattr(row, name) for name in names}, "at": _time(row.at)}


def _delivery_as_dict(channel: str, message: AlertMessageRow | None) -> dict[str, Any]:
    if message is None:
        return {"channel": channel, "state": "waiting", "tries": 0, "error": None}
    return {"channel": channel, "state": message.state, "tries": message.tries, "error": message.error}


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
