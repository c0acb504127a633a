"""Histories of features for the tests: rows by hand, materialised as a user's are, and what was known of them
by the plainest code.
"""

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from halving import Store
from resources.features.join import join_features
from resources.features.materialize import materialize_all
from resources.features.view import FeatureView, parse_view

START = datetime(2026, 3, 1, tzinfo=UTC)
MICROS = pa.timestamp("us", tz="UTC")
SOURCE: dict[str, Any] = {}
"""What the source functions return, by the day that is asked for or not."""


@dataclass(frozen=True)
class Row:
    """A row of a view: times in minutes since :data:`START`."""

    user: Any
    event: float
    known_at: float
    value: Any = 0.0


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def source_rows() -> Any:
    """The source of :func:`view`."""
    return SOURCE["rows"]


def table(rows: Iterable[Row], kind: pa.DataType | None = None, user: pa.DataType | None = None) -> pa.Table:
    rows = list(rows)
    return pa.table(
        {
            "user": pa.array([row.user for row in rows], user or pa.int64()),
            "ts": pa.array([at(row.event) for row in rows], MICROS),
            "loaded": pa.array([at(row.known_at) for row in rows], MICROS),
            "value": pa.array([row.value for row in rows], kind or pa.float64()),
        }
    )


def view(**changes: Any) -> FeatureView:
    """A view of :func:`source_rows`; a change to None leaves a field out."""
    data = {
        "name": "clicks",
        "version": 1,
        "entity": ["user"],
        "event_time": "ts",
        "created": "loaded",
        "source": {"function": "tests.resources.features.histories:source_rows"},
        "schema": {"value": "double"},
        **changes,
    }
    return parse_view({name: value for name, value in data.items() if value is not None})


def materialize(
    store: Store, rows: Iterable[Row] | pa.Table, shape: FeatureView | None = None
) -> FeatureView:
    """Materialise all rows."""
    SOURCE["rows"] = rows if isinstance(rows, pa.Table) else table(rows)
    shape = shape or view()
    done = materialize_all(store, shape, late=True)
    assert not done.failed, done.failed
    return shape


def labels(users_and_times: Sequence[tuple[Any, float]], user: pa.DataType | None = None) -> pa.Table:
    """Labels of (user, minutes)."""
    return pa.table(
        {
            "number": pa.array(range(len(users_and_times)), pa.int64()),
            "user": pa.array([user_id for user_id, _ in users_and_times], user or pa.int64()),
            "when": pa.array([at(minutes) for _, minutes in users_and_times], MICROS),
        }
    )


def join(
    store: Store, given_labels: Any, features: Sequence[str], *views: FeatureView, **more: Any
) -> pa.Table:
    """All of a join."""
    with join_features(
        store, given_labels, features, {view_.key: view_ for view_ in views}, time="when", **more
    ) as joined:
        return joined.reader.read_all()


def latest_known(rows: Iterable[Row], user: Any, minutes: float, ttl: float = math.inf) -> Any:
    """What was known of a user's value at a time, as the definition says it: the reference that the join is
    compared with.
    """
    there = [row for row in rows if row.user == user and row.known_at <= minutes and user is not None]
    newest = max(there, key=lambda row: (row.event, row.known_at), default=None)
    return None if newest is None or minutes - newest.event > ttl else newest.value


def bits(values: Iterable[Any]) -> list[Any]:
    """Values so that only the same bits are equal: NaN equals itself, 0.0 and -0.0 differ."""
    return [struct.pack(">d", value).hex() if isinstance(value, float) else value for value in values]
