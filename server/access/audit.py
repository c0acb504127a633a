"""The audit: every write that was asked of the server, and how it was answered."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import insert, select

from resources.catalog import AuditRow, Catalog, utcnow
from server.identity.tokens import without_tokens

_LONGEST = 500  # characters of a path
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def unaudited(endpoint: _Endpoint) -> _Endpoint:
    """Leave a route out of the audit, because programs call it many times a second and what they did is in rows of its own (ask, tell)."""
    endpoint.audited = False  # type: ignore[attr-defined]
    return endpoint


def record(catalog: Catalog, *, actor: str, method: str, route: str, target: str, status: int) -> None:
    """Add a write to the audit.

    Args:
        route: the route's template, ``/api/v1/models/{model}/versions/{version}/promote``.
        target: the path as it was asked for, without its query.
        status: that the write is answered with.
    """
    values = {"actor": actor, "method": method, "route": route, "target": without_tokens(target)[:_LONGEST], "status": status}
    with catalog.write() as session:
        session.execute(insert(AuditRow).values(at=utcnow(), **values))


def entries(
    catalog: Catalog, *, actor: str | None = None, since: datetime | None = None, before: int | None = None, limit: int = 200
) -> list[dict[str, Any]]:
    """The newest entries first.

    Args:
        actor: only this one's.
        since: only from then on.
        before: only entries with a smaller ``id``: the next page after one that ended with it.
    """
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    query = query if actor is None else query.where(AuditRow.actor == actor)
    query = query if since is None else query.where(AuditRow.at >= since)
    query = query if before is None else query.where(AuditRow.id < before)
    names = ("id", "at", "actor", "method", "route", "target", "status")
    with catalog.read() as session:
        return [{name: getattr(row, name) for name in names} for row in session.scalars(query)]
