"""Histories of features: rows that are materialised as a user's are, and the reference for what was known."""

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from halving import InvalidInput, Store
from resources.features.join import join_features
from resources.features.materialize import materialize_all, materialize_day
from resources.features.partitions import Partition, partitions
from resources.features.view import FeatureView, parse_view

START = datetime(2026, 3, 1, tzinfo=UTC)
MICROS = pa.timestamp("us", tz="UTC")
DAY = 1440.0  # minutes
FIRST = date(2026, 3, 1)
SECOND = date(2026, 3, 2)
TRANSFORMS = "tests.resources.features.transforms"
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
    """What was known of a user's value at a time: the reference with which the join is compared."""
    there = [row for row in rows if row.user == user and row.known_at <= minutes and user is not None]
    newest = max(there, key=lambda row: (row.event, row.known_at), default=None)
    if newest is None or minutes - newest.event > ttl:
        return None
    return newest.value


def bits(values: Iterable[Any]) -> list[Any]:
    """Values so that only the same bits are equal: NaN equals itself, 0.0 and -0.0 differ."""
    return [struct.pack(">d", value).hex() if isinstance(value, float) else value for value in values]


def days(store: Store, shape: FeatureView) -> list[Partition]:
    return partitions(store, shape.name, shape.version)


def refusal(
    store: Store, rows: Any, shape: FeatureView | None = None, day: date = FIRST, late: bool = True
) -> str:
    """Why a day is refused; nothing is published then."""
    SOURCE["rows"] = rows if isinstance(rows, pa.Table) else table(rows)
    shape = shape or view()
    before = days(store, shape)
    with pytest.raises(InvalidInput) as refused:
        materialize_day(store, shape, day, late=late)
    assert days(store, shape) == before
    return str(refused.value)


moments = st.integers(0, 3 * 24 * 4).map(lambda quarter: quarter * 15.0)  # few, so that many are equal


values = st.sampled_from([1.0, 2.5, -0.0, 0.0, math.nan, math.inf, None])


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Rows of few users within four days, some of them late by days; unique as a view must be."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.integers(1, 3), moments, st.sampled_from([0, 0, 15, 30, 60, 24 * 60, 3 * 24 * 60]), values
            ),
            min_size=1,
            max_size=24,
        )
    )
    rows = {
        (user, event, event + late): Row(user, event, event + late, value)
        for user, event, late, value in drawn
    }
    return list(rows.values())
