"""Retention that nobody asks for: on a machine's own disk, after ``halving sweep``, at most once a day, and what it did the last time."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select

from halving import Store
from halving.errors import NotFound
from halving.store.json_files import to_json
from resources.catalog import Catalog, SweepRow
from resources.retention.carry_out import Outcome
from resources.retention.policy import SHORTEST_GRACE, Policy

_LAST = "retention/last.json"
_EVERY = timedelta(days=1)


def is_due(store: Store, catalog: Catalog, policy: Policy, now: datetime | None = None) -> bool:
    """Whether the policy is to be carried out now without being asked.

    Not in an object store, which has a schedule of its own and no disk to run full; nor where the catalog has no sweep that is old enough
    for anything to go; nor where it was done within a day.
    """
    if not policy.automatic or store.folder is None:
        return False
    moment = now or datetime.now(UTC)
    with catalog.read() as session:
        oldest = session.scalar(select(func.min(SweepRow.created_at)))
    if oldest is None or moment - oldest < timedelta(days=SHORTEST_GRACE):
        return False
    last = last_time(store)
    return last is None or moment.timestamp() - last["time"] >= _EVERY.total_seconds()


def note(store: Store, done: Outcome) -> None:
    """Write down that it was done, and what went."""
    content = {"time": time.time(), "bytes": done.bytes, "gone": [row._asdict() for row in done.gone]}
    store.replace(_LAST, to_json({**content, "policy": done.policy.source, "shipped": done.policy.shipped}))


def last_time(store: Store) -> dict[str, Any] | None:
    """What :func:`note` has written last; ``time`` in seconds since 1970."""
    try:
        found: dict[str, Any] = json.loads(store.read(_LAST))
    except (NotFound, ValueError):
        return None
    return found
