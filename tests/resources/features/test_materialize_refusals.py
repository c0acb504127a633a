"""A day with rows or a view that cannot be right is refused, and the message shows them."""

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from halving import InvalidInput, Store
from resources.features.materialize import materialize_all, materialize_day
from tests.resources.features.histories import (
    DAY,
    FIRST,
    MICROS,
    SECOND,
    SOURCE,
    TRANSFORMS,
    Row,
    at,
    days,
    materialize,
    refusal,
    table,
    view,
)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [Row(7, 10, 12, 1.0), Row(7, 10, 12, 2.0)],
            "(user, ts, loaded) is not unique, for example user = 7, _event = 2026-03-01 00:10",
        ),
        (
            [Row(7, 10, 9, 1.0)],
            (
                "1 rows of the feature view clicks@1 are not accepted: they were created (loaded) before "
                "their "
                "event (ts)"
            ),
        ),
        (
            [Row(None, 10, 12, 1.0), Row(1, 10, 12, 1.0)],
            "1 rows of the feature view clicks@1 are not accepted: they have no entity or no time",
        ),
    ],
)
def test_rows_that_a_join_cannot_use_are_refused_and_shown(
    rows: list[Row], message: str, tmp_path: Path
) -> None:
    assert message in refusal(Store(tmp_path), rows)


@pytest.mark.parametrize("kind", [MICROS, pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")])
@pytest.mark.parametrize("name", ["ts", "loaded"])
@pytest.mark.parametrize("number", [2**63 - 1, 1 - 2**63])
def test_rows_of_infinite_times_are_of_no_day_and_refused(
    kind: pa.DataType, name: str, number: int, tmp_path: Path
) -> None:
    """As DuckDB writes them; they would be of its day of infinity, or of none."""
    rows = table([Row(1, 10, 12, 1.0)])
    rows = rows.set_column(rows.column_names.index(name), name, pa.array([number], pa.int64()).cast(kind))
    day_of_row = FIRST if name == "loaded" else SECOND
    says = refusal(Store(tmp_path), rows, view(timezone="Europe/Berlin"), day_of_row)
    assert "1 rows of the feature view clicks@1 are not accepted: they have an infinite time" in says
    assert "for example user = 1" in says


def test_an_infinite_time_is_refused_beside_a_delay_and_for_all_days(tmp_path: Path) -> None:
    SOURCE["rows"] = table([Row(1, 10, 12, 1.0)]).set_column(
        1, "ts", pa.array([2**63 - 1], pa.int64()).cast(MICROS)
    )
    with pytest.raises(InvalidInput, match="have an infinite time, which is of no day"):
        materialize_all(Store(tmp_path), view(created=None, delay="1h"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"transform": f"{TRANSFORMS}:centred"},
            "value of a row is 0.0 alone and -1.0 among 3; compute each row from that row alone",
        ),
        (
            {"transform": f"{TRANSFORMS}:drops"},
            "made 2 rows of 3; return one for each row, in the same order",
        ),
        ({"transform": f"{TRANSFORMS}:gives_names"}, "returned list; return a pyarrow.Table"),
        (
            {"transform": f"{TRANSFORMS}:renames"},
            "has no column 'value', which the schema declares; it has ['worth']",
        ),
        (
            {"transform": f"{TRANSFORMS}:as_text"},
            "gives value as string, which the schema declares as double",
        ),
        ({"transform": f"{TRANSFORMS}:nothing"}, "transforms has no function 'nothing'; it has ['as_text', "),
        ({"transform": "tests.nowhere:rate"}, "there is no module 'tests.nowhere'"),
        (
            {"schema": {"value": "float"}},
            (
                "the source of the feature view clicks@1 gives value as double, which the schema declares as "
                "float"
            ),
        ),
        ({"schema": {"value": "double", "more": "bool"}}, "has no column 'more', which the schema declares"),
        (
            {"entity": ["person"]},
            (
                "entity.0 = 'person' of the feature view clicks@1 is not accepted: the source has user, ts, "
                "loaded, value"
            ),
        ),
        (
            {"event_time": "when"},
            "event_time = 'when' of the feature view clicks@1 is not accepted: the source has",
        ),
        (
            {"created": "when"},
            "created = 'when' of the feature view clicks@1 is not accepted: the source has",
        ),
        (
            {"event_time": "user"},
            (
                "event_time = 'user' of the feature view clicks@1 is not accepted: it is BIGINT; give a "
                "column "
                "of timestamps"
            ),
        ),
        (
            {"entity": ["ts"], "schema": {"user": "int64"}},
            "it is timestamp[us, tz=UTC]; give a whole number below 2**63 or a text",
        ),
        (
            {"source": {"files": "/nowhere/*.parquet"}},
            "source.files = '/nowhere/*.parquet' is not accepted: there is no folder /nowhere",
        ),
        ({"source": {"function": f"{TRANSFORMS}:dies"}}, "raised TypeError"),
        (
            {"source": {"delta": "/nowhere", "version": 3}},
            "source.delta = '/nowhere' with version = 3 is not accepted",
        ),
    ],
)
def test_what_is_wrong_with_a_view_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    rows = [Row(1, 10, 12, 1.0), Row(2, 11, 12, 2.0), Row(3, 12, 12, 3.0)]
    assert message in refusal(Store(tmp_path), rows, view(**change))


def test_a_feature_that_must_not_be_null_is_refused_where_it_is(tmp_path: Path) -> None:
    rows = [Row(1, 10, 12, None), Row(2, 10, 12, 1.0), Row(3, 10, 12, math.nan)]
    message = refusal(Store(tmp_path), rows, view(schema={"value": "double not null"}))
    assert (
        "schema.value of the feature view clicks@1 is not null, but of 2026-03-01 it is null or NaN in 2 rows"
        in message
    )


def test_times_without_a_zone_are_refused_until_the_view_says_which(tmp_path: Path) -> None:
    store = Store(tmp_path)
    naive = pa.timestamp("ns")
    times = [datetime(2026, 3, 1, 0, 30), datetime(2026, 3, 1, 12), datetime(2026, 3, 2, 0, 30)]
    rows = pa.table(
        {
            "user": [1, 2, 3],
            "ts": pa.array(times, naive),
            "loaded": pa.array(times, naive),
            "value": [1.0, 2.0, 3.0],
        }
    )
    assert "its times have no time zone. Say which one they are in, for example timezone: UTC" in refusal(
        store, rows
    )
    shape = view(timezone="Europe/Berlin")
    SOURCE["rows"] = rows
    result = {
        day: materialize_day(store, shape, day).partition.rows for day in (date(2026, 2, 28), FIRST, SECOND)
    }
    assert list(result.values()) == [1, 2, 0]  # days are UTC's
    assert days(store, shape)[0].first == int(datetime(2026, 2, 28, 23, 30, tzinfo=UTC).timestamp() * 1e6)
    assert not any(done.new for done in materialize_all(store, shape).days.values())


def test_times_finer_than_microseconds_are_never_earlier_than_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kind = pa.timestamp("ns", "UTC")
    nanoseconds = int(at(10).timestamp()) * 10**9
    rows = pa.table(
        {
            "user": [1],
            "ts": pa.array([nanoseconds], kind),
            "loaded": pa.array([nanoseconds + 1], kind),
            "value": [1.0],
        }
    )
    shape = materialize(store, rows)
    assert days(store, shape)[0].last_known == nanoseconds // 1000 + 1


def test_the_entity_keeps_its_type_from_day_to_day(tmp_path: Path) -> None:
    store = Store(tmp_path)
    materialize(store, [Row(1, 10, 12, 1.0)])
    message = refusal(store, table([Row("1", DAY, DAY, 1.0)], user=pa.string()), day=SECOND)
    assert (
        "it is {'user': 'string'}, and was {'user': 'int64'} in the partition of 2026-03-01; give version: 2"
        in message
    )
    assert materialize(store, table([Row(1, DAY, DAY, 1.0)], user=pa.int16()))
