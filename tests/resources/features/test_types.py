"""A feature has the type that its view declares, and each value is what it was, whatever types files, ids and
times come in.
"""

import math
import re
import tempfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput, Store
from halving.features import OnlineFeatures
from resources.features.materialize import materialize_all, materialize_day
from resources.features.online import push
from resources.features.view import FeatureView
from tests.properties import examples
from tests.resources.features.histories import MICROS, SOURCE, Row, at, join, labels, materialize, table, view

DAY = 1440.0
TIME = datetime(2026, 3, 1, 6, tzinfo=UTC)


def write_days(folder: Path, columns: Sequence[pa.Array | None], **more: Sequence[Any]) -> FeatureView:
    """Write a file for each day, of one user with one value; of None the file has no such column."""
    folder.mkdir()
    for day, column in enumerate(columns):
        rows = {"user": pa.array([1]), "ts": pa.array([at(day * DAY)], MICROS)}
        rows |= {} if column is None else {"got": column}
        pq.write_table(
            pa.table(rows | {name: values[day] for name, values in more.items()}), folder / f"{day}.parquet"
        )
    return view(source={"files": f"{folder}/*.parquet"}, created=None, delay="1h")


def read_days(store: Store, shape: FeatureView, kind: str, days: int) -> list[Any]:
    """The value that a label of each day gets."""
    shape = shape.model_copy(update={"features": {"got": kind}})
    done = materialize_all(store, shape)
    assert not done.failed
    return list(
        join(store, labels([(1, day * DAY + 600) for day in range(days)]), ["clicks@1:got"], shape)[
            "got"
        ].to_pylist()
    )


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", TIME),
        ("string", "gold"),
        ("double", 2.5),
        ("int64", 2**63 - 1),
        ("bool", True),
        ("binary", b"\xff"),
    ],
)
def test_a_feature_that_is_all_null_in_a_file_is_null_there(
    kind: str, value: Any, place: int, tmp_path: Path
) -> None:
    values = [None if day == place else value for day in range(3)]
    column = pa.array([value], MICROS if kind == "timestamp" else None)
    shape = write_days(tmp_path / "daily", [pa.nulls(1) if day is None else column for day in values])
    assert read_days(Store(tmp_path / "store"), shape, kind, 3) == values


@pytest.mark.parametrize(
    ("kind", "columns", "values"),
    [
        ("double", [pa.nulls(1), pa.nulls(1)], [None, None]),
        ("string", [None, pa.array(["new"])], [None, "new"]),
        ("string", [pa.array(["old"]), None], ["old", None]),
        ("double", [pa.array([1]), pa.array([2.5])], [1.0, 2.5]),
        ("double", [pa.array([2.5]), pa.array([2**53])], [2.5, 2.0**53]),
        ("double", [pa.array([0.1], pa.float32()), pa.array([0.1])], [0.10000000149011612, 0.1]),
        ("double", [pa.array([0.1]), pa.array([2**24 + 1], pa.int32())], [0.1, 2.0**24 + 1]),
        ("double", [pa.array([2**24 + 1], pa.int32()), pa.array([0.5], pa.float32())], [2.0**24 + 1, 0.5]),
        ("int64", [pa.array([7], pa.int8()), pa.array([2**53 + 1])], [7, 2**53 + 1]),
        ("int64", [pa.array([7], pa.uint64()), pa.array([1])], [7, 1]),
        ("double", [pa.array([10], pa.decimal128(12, 2)), pa.array([0.25])], [10.0, 0.25]),
        ("string", [pa.array(["a"]).dictionary_encode(), pa.array(["b"], pa.large_string())], ["a", "b"]),
        (
            "timestamp",
            [pa.array([TIME], pa.timestamp("ms", "Europe/Berlin")), pa.array([TIME], MICROS)],
            [TIME, TIME],
        ),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_files_of_several_types_have_the_type_that_holds_each_value(
    kind: str, columns: list[pa.Array | None], values: list[Any], reverse: bool, tmp_path: Path
) -> None:
    order = slice(None, None, -1 if reverse else 1)
    shape = write_days(tmp_path / "daily", columns[order])
    assert read_days(Store(tmp_path / "store"), shape, kind, len(columns)) == values[order]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([pa.array([1]), pa.array(["1"])], ["int64", "string"]),
        ([pa.array([True]), pa.array([1])], ["bool", "int64"]),
        (
            [pa.array([TIME], MICROS), pa.array([datetime(2026, 3, 1)])],
            ["timestamp[us, tz=UTC]", "timestamp[us]"],
        ),
        (
            [pa.array([date(2026, 3, 1)]), pa.array([TIME], MICROS)],
            ["date32[day]", "timestamp[us, tz=UTC]"],
        ),
        ([pa.array(["a"]), pa.array([b"a"])], ["string", "binary"]),
        ([pa.array([2**53 + 1]), pa.array([0.5])], ["int64", "double", "9007199254740993"]),
        ([pa.array([7], pa.uint64()), pa.array([-1])], ["uint64", "int64", "-1"]),
        ([pa.array([[1]]), pa.array([1])], ["list<item: int64>", "int64"]),
    ],
)
def test_files_whose_types_do_not_go_together_are_refused_with_both(
    columns: list[pa.Array], words: list[str], reverse: bool, tmp_path: Path
) -> None:
    shape = write_days(tmp_path / "daily", columns[:: -1 if reverse else 1])
    with pytest.raises(
        InvalidInput,
        match=r"source.files.* is not accepted: .*the column 'got' is .*; write it with one type",
    ) as refused:
        materialize_all(Store(tmp_path / "store"), shape.model_copy(update={"features": {"got": "string"}}))
    message = str(refused.value)
    assert all(word in message for word in words)
    assert ".parquet" in message


def test_a_day_is_made_where_only_another_one_has_what_no_common_type_holds(tmp_path: Path) -> None:
    """For the other day's rows are not read."""
    shape = write_days(tmp_path / "daily", [pa.array([2**53 + 1]), pa.array([0.5])]).model_copy(
        update={"features": {"got": "double"}}
    )
    assert materialize_day(Store(tmp_path / "store"), shape, date(2026, 3, 2)).partition.rows == 1
    with pytest.raises(InvalidInput, match="9007199254740993"):
        materialize_day(Store(tmp_path / "store"), shape, date(2026, 3, 1))


def test_names_that_differ_by_case_alone_are_refused_with_both_files(tmp_path: Path) -> None:
    shape = write_days(tmp_path / "daily", [pa.array([1])])
    pq.write_table(
        pq.read_table(tmp_path / "daily" / "0.parquet").rename_columns(["user", "ts", "Got"]),
        tmp_path / "daily" / "1.parquet",
    )
    with pytest.raises(
        InvalidInput,
        match=r"0.parquet has a column 'got' and .*1.parquet a column 'Got'; write the name in one way",
    ):
        materialize_all(Store(tmp_path / "store"), shape)


def test_a_file_without_rows_says_no_types_and_a_leftover_index_is_no_column(tmp_path: Path) -> None:
    shape = write_days(
        tmp_path / "daily",
        [pa.array([1.5]), pa.array([2.5])],
        __index_level_0__=[pa.array([7]), pa.array(["b"])],
    )
    pq.write_table(
        pa.table({"user": pa.array([], pa.string()), "got": pa.array([], pa.string())}),
        tmp_path / "daily" / "!.parquet",
    )
    assert read_days(Store(tmp_path / "store"), shape, "double", 2) == [1.5, 2.5]


IDS: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), 7),
    (pa.uint32(), 7),
    (pa.uint64(), 7),
    (pa.float16(), 7),
    (pa.float32(), 2**24 - 1),
    (pa.float64(), 7),
    (pa.float64(), -(2**53) + 1),
    (pa.float64(), -0.0),
    (pa.decimal128(20, 0), 7),
    (pa.decimal128(22, 2), 2**53 + 1),
    (pa.decimal256(40, 3), -(2**63)),
    (pa.dictionary(pa.int8(), pa.int64()), 7),
]
NO_IDS: list[tuple[pa.DataType, Any]] = [
    (pa.float64(), 2.5),
    (pa.float64(), 2.0**53),  # 2**53 + 1 is this double, too
    (pa.float64(), math.inf),
    (pa.float64(), -math.inf),
    (pa.float32(), 2.0**24),
    (pa.float32(), 0.1),
    (pa.uint64(), 2**63),
    (pa.decimal128(20, 1), Decimal("7.5")),
    (pa.decimal128(38, 0), 10**20),
]


def ids(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Ids of a type, as a cast of them makes them."""
    numbers = pa.array(values, pa.float64() if pa.types.is_floating(kind) else None)
    return numbers.dictionary_encode() if pa.types.is_dictionary(kind) else numbers.cast(kind)


def of_users(users: pa.Array) -> pa.Table:
    """A row of each of these users, with the number of the row as its value."""
    rows = table([Row(None, 0, 0, float(number)) for number in range(len(users))])
    return rows.set_column(0, "user", users)


@pytest.mark.parametrize(("kind", "user"), IDS)
def test_ids_are_whole_numbers_whatever_type_labels_have_them_in(
    kind: pa.DataType, user: Any, tmp_path: Path
) -> None:
    shape = materialize(Store(tmp_path), [Row(int(user), 0, 0, 1.0)])
    label_rows = pa.table({"user": ids(kind, [user, None, user]), "when": pa.array([at(1)] * 3, MICROS)})
    joined = join(Store(tmp_path), label_rows, ["clicks@1:value"], shape)
    assert joined["value"].to_pylist() == [1.0, None, 1.0]
    assert joined.select(["user"]).equals(label_rows.select(["user"]))  # a label keeps its own


# DuckDB reads no float16 and no decimal256 of Arrow's.
@pytest.mark.parametrize(
    ("kind", "user"), [(kind, user) for kind, user in IDS if kind not in (pa.float16(), pa.decimal256(40, 3))]
)
def test_ids_are_whole_numbers_whatever_type_a_view_has_them_in(
    kind: pa.DataType, user: Any, tmp_path: Path
) -> None:
    shape = materialize(Store(tmp_path), of_users(ids(kind, [user])))
    assert join(Store(tmp_path), labels([(int(user), 1)]), ["clicks@1:value"], shape)[
        "value"
    ].to_pylist() == [0.0]
    (file,) = tmp_path.rglob("*.parquet")
    assert pq.read_schema(file).field("user").type == pa.int64()


@pytest.mark.parametrize(("kind", "user"), NO_IDS)
def test_what_is_no_id_is_refused_with_its_value(kind: pa.DataType, user: Any, tmp_path: Path) -> None:
    shape = materialize(Store(tmp_path), [Row(1, 0, 0, 1.0)])
    users = pa.array([user], kind)
    label_rows = pa.table({"user": users, "when": pa.array([at(1)], MICROS)})
    with pytest.raises(
        InvalidInput,
        match=r"'user' of clicks@1 has .*, which is no whole number below 2\*\*.*pandas: dtype='Int64'",
    ) as refused:
        join(Store(tmp_path), label_rows, ["clicks@1:value"], shape)
    assert str(users[0].as_py()) in str(refused.value)
    SOURCE["rows"] = of_users(users)
    with pytest.raises(
        InvalidInput,
        match=r"1 rows .* have a user that is no whole number below 2\*\*.*dtype='Int64'.* user = ",
    ) as refused:
        materialize_day(Store(tmp_path), shape, date(2026, 3, 1))
    assert str(users[0].as_py()) in str(refused.value)


def test_nan_is_no_id(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 0, 0, 1.0), Row(2, 0, 0, 2.0)])
    for users in (pa.array([1.0, math.nan, None, 2.0]), pa.array([1.0, math.nan, None, 2.0], pa.float32())):
        label_rows = pa.table({"user": users, "when": pa.array([at(1)] * 4, MICROS)})
        assert join(store, label_rows, ["clicks@1:value"], shape)["value"].to_pylist() == [
            1.0,
            None,
            None,
            2.0,
        ]
    nobody = pa.table({"user": pa.nulls(1), "when": pa.array([at(1)], MICROS)})
    assert join(store, nobody, ["clicks@1:value"], shape)["value"].to_pylist() == [None]
    SOURCE["rows"] = of_users(pa.array([1.0, math.nan]))
    with pytest.raises(
        InvalidInput, match="1 rows of the feature view clicks@1 are not accepted: they have no entity"
    ):
        materialize_day(store, shape, date(2026, 3, 1))


def test_an_entity_is_looked_up_by_the_same_ids(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    address = str(tmp_path / "online.db")
    shape = materialize(store, [Row(2, 0, 0, 1.0)])
    push(store, shape, address)
    with OnlineFeatures(address, ["clicks@1:value"]) as online:
        user: Any
        for user in (
            2,
            2.0,
            np.float64(2),
            np.float32(2),
            np.float16(2),
            np.int8(2),
            Decimal("2.00"),
            Fraction(2),
        ):
            assert online.get({"user": user}) == {"value": 1.0}, repr(user)
        for user in (None, math.nan, np.float32("nan"), Decimal("NaN"), 3.0):
            assert online.get({"user": user}) == {"value": None}, repr(user)
        for user in (
            2.5,
            2.0**53,
            math.inf,
            np.float32(2**24),
            Decimal("2.5"),
            Decimal(2**63),
            Decimal("Infinity"),
        ):
            with pytest.raises(
                InvalidInput, match=r"user of clicks@1 has .*, which is no whole number below 2\*\*"
            ):
                online.get({"user": user})
        for user in (True, "2", b"2", 2**63, datetime(2026, 1, 1)):
            with pytest.raises(
                InvalidInput, match=r"user = .* is not accepted: the entity of clicks@1 is int64"
            ):
                online.get({"user": user})
        assert online.read(pa.table({"user": [2.0, math.nan, None, 3.0]}))["value"].to_pylist() == [
            1.0,
            None,
            None,
            None,
        ]


@settings(max_examples=examples(20))
@given(
    st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=1, max_size=8, unique=True),
    st.sampled_from([pa.int64(), pa.float64(), pa.decimal128(22, 2)]),
    st.sampled_from([pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(20, 0)]),
)
def test_labels_and_views_agree_on_ids_of_any_types(
    users: list[int], of_view: pa.DataType, of_labels: pa.DataType
) -> None:
    limit = 2**24 if of_labels == pa.float32() else 2**53
    label_rows = [user for user in users if abs(user) < limit and (user >= 0 or of_labels != pa.uint64())]
    with tempfile.TemporaryDirectory() as folder:
        shape = materialize(Store(folder), of_users(ids(of_view, users)))
        table_of_labels = pa.table(
            {"user": ids(of_labels, label_rows), "when": pa.array([at(1)] * len(label_rows), MICROS)}
        )
        joined = join(Store(folder), table_of_labels, ["clicks@1:value"], shape)
    assert joined["value"].to_pylist() == [float(users.index(user)) for user in label_rows]


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        ("int64", pa.array([1.0, math.nan, None, 2.0**53 - 1]), [1, None, None, 2**53 - 1]),
        ("int32", pa.array([1.0, -(2.0**31)], pa.float64()), [1, -(2**31)]),
        ("int64", pa.array([1.0, math.nan], pa.float32()), [1, None]),
        ("double", pa.array([1, None, 2**53]), [1.0, None, 2.0**53]),
        ("float", pa.array([1, 2**24], pa.int32()), [1.0, 2.0**24]),
    ],
)
def test_a_feature_takes_whole_numbers_and_floats_for_each_other(
    kind: str, column: pa.Array, values: list[Any], tmp_path: Path
) -> None:
    rows = table([Row(number, 0, 0) for number in range(len(column))]).set_column(3, "value", column)
    shape = materialize(Store(tmp_path), rows, view(schema={"value": kind}))
    joined = join(
        Store(tmp_path), labels([(number, 1) for number in range(len(column))]), ["clicks@1:value"], shape
    )
    assert joined["value"].to_pylist() == values


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        ("int64", pa.array([2.5]), "declares as int64: it has 2.5, which is no whole number below 2**53"),
        ("int64", pa.array([2.0**53]), "it has 9007199254740992.0, which is no whole number below 2**53"),
        (
            "int32",
            pa.array([2.0**31]),
            "as double, which the schema declares as int32: Integer value 2147483648 not in range",
        ),
        ("int64", pa.array([math.inf]), "it has inf"),
        (
            "double",
            pa.array([2**53 + 1]),
            "as int64, which the schema declares as double: Integer value 9007199254740993 not in range",
        ),
        (
            "float",
            pa.array([2**24 + 1]),
            "as int64, which the schema declares as float: Integer value 16777217 not in range",
        ),
        ("double", pa.array([True]), "gives value as bool, which the schema declares as double"),
    ],
)
def test_a_feature_that_its_type_does_not_hold_is_refused(
    kind: str, column: pa.Array, message: str, tmp_path: Path
) -> None:
    SOURCE["rows"] = table([Row(1, 0, 0)]).set_column(3, "value", column)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        materialize_day(Store(tmp_path), view(schema={"value": kind}), date(2026, 3, 1))


MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
SIX = datetime(2026, 3, 2, 6, tzinfo=UTC)
# a label's time, the time zone that is said, and the moment that it is
TIMES: list[tuple[pa.Array, str | None, datetime]] = [
    (pa.array([date(2026, 3, 2)]), "UTC", MIDNIGHT),
    (pa.array([date(2026, 3, 2)], pa.date64()), "UTC", MIDNIGHT),
    (pa.array([date(2026, 3, 2)]), "Europe/Berlin", MIDNIGHT - timedelta(hours=1)),
    (pa.array([date(2026, 3, 2)]).dictionary_encode(), "UTC", MIDNIGHT),
    (pa.array(["2026-03-02"]), "UTC", MIDNIGHT),
    (pa.array(["2026-03-02"]), "America/New_York", MIDNIGHT + timedelta(hours=5)),
    (pa.array(["2026-03-02T06:00:00Z"]), None, SIX),
    (pa.array(["2026-03-02T06:00:00Z"]), "Europe/Berlin", SIX),  # its own zone counts
    (pa.array(["2026-03-02 08:00:00+02:00"], pa.large_string()), None, SIX),
    (pa.array(["2026-03-02T08:00+0200"], pa.string_view()), None, SIX),
    (pa.array(["2026-03-02 01:00:00.000-05"]).dictionary_encode(), None, SIX),
    (pa.array(["2026-03-02T07:00"]), "Europe/Berlin", SIX),
    (pa.array(["2026-03-02 06:00:00.000001"]), "UTC", SIX + timedelta(microseconds=1)),
    (pa.array(["2026-03-02T06:00:00.000001999Z"]), None, SIX + timedelta(microseconds=1)),
    (pa.array(["2026-03-02T06:00:00.0000009999999"]), "UTC", SIX),
    (pa.array(["9999-12-31T23:59:59Z"]), None, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    (pa.array([TIME + timedelta(days=1)], pa.timestamp("s", "Asia/Tokyo")), None, SIX),
]


@pytest.mark.parametrize(("times", "timezone", "time"), TIMES)
def test_a_label_is_of_the_moment_that_its_date_or_text_says(
    times: pa.Array, timezone: str | None, time: datetime, tmp_path: Path
) -> None:
    """What is known by then counts, and what is known a microsecond later does not."""
    known_times = pa.array([time - timedelta(hours=1), time, time + timedelta(microseconds=1)], MICROS)
    rows = pa.table(
        {
            "user": [1, 2, 3],
            "ts": pa.array([TIME] * 3, MICROS),
            "loaded": known_times,
            "value": [1.0, 2.0, 3.0],
        }
    )
    if time.year == 9999:
        rows = rows.slice(0, 2)
    shape = materialize(Store(tmp_path), rows)
    label_rows = pa.table({"user": [1, 2, 3], "when": pa.chunked_array([times, times, times])})
    joined = join(Store(tmp_path), label_rows, ["clicks@1:value"], shape, timezone=timezone)
    assert joined["value"].to_pylist() == [1.0, 2.0, None]
    assert joined.select(["when"]).equals(label_rows.select(["when"]))  # a label keeps its own


def test_texts_with_and_without_a_zone_mean_what_they_say_if_a_zone_is_given(
    tmp_path: Path,
) -> None:
    shape = materialize(Store(tmp_path), [Row(1, DAY + 360, DAY + 360, 1.0)])
    label_rows = pa.table(
        {
            "user": [1] * 4,
            "when": ["2026-03-02T06:00:00Z", "2026-03-02T07:00:00", "2026-03-02", "2026-03-02T05:59:59Z"],
        }
    )
    joined = join(Store(tmp_path), label_rows, ["clicks@1:value"], shape, timezone="Europe/Berlin")
    assert joined["value"].to_pylist() == [1.0, 1.0, None, None]


@pytest.mark.parametrize(
    ("times", "timezone", "message"),
    [
        (
            pa.array([date(2026, 3, 2)] * 2),
            None,
            "'when' is not accepted: it has no time zone. Say which one",
        ),
        (
            pa.array(["2026-03-02T06:00:00Z", "2026-03-02T06:00:00"]),
            None,
            "label 1 has '2026-03-02T06:00:00', which has no time zone",
        ),
        (
            pa.array(["2026-03-02T06:00:00Z", "03/04/2026"]),
            "UTC",
            "label 1 has '03/04/2026', which is no ISO 8601 moment; write it",
        ),
        (pa.array(["2026-03-02", "2026-3-2"]), "UTC", "label 1 has '2026-3-2', which is no ISO 8601 moment"),
        (
            pa.array(["2026-03-02", "2026-02-30"]),
            "UTC",
            "label 1 has '2026-02-30', which is no day of the calendar",
        ),
        (pa.array(["2026-03-02", ""]), "UTC", "label 1 has '', which is no ISO 8601 moment"),
        (pa.array(["2026-03-02", "now"]), "UTC", "label 1 has 'now', which is no ISO 8601 moment"),
        (
            pa.array(["2026-03-02", "1772345678"]),
            "UTC",
            "label 1 has '1772345678', which is no ISO 8601 moment",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02T24:00:00"]),
            "UTC",
            "label 1 has '2026-03-02T24:00:00', which is no ISO 8601 moment",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02 06:00:00 Europe/Berlin"]),
            "UTC",
            "label 1 has '2026-03-02 06:00:00 Europe/Berlin'",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02T06:00:00+24:00"]),
            "UTC",
            "label 1 has '2026-03-02T06:00:00+24:00', which is no ISO",
        ),
        (
            pa.array(["2026-03-02", "2026-03-02T06:00:00-0560"]),
            "UTC",
            "label 1 has '2026-03-02T06:00:00-0560', which is no ISO",
        ),
        (pa.array(["2026-03-02", None]), "UTC", "label 1 is not accepted: its when is null"),
        (pa.array([date(2026, 3, 2), None]), "UTC", "label 1 is not accepted: its when is null"),
        (
            pa.array([1772345678, 1772345678]),
            "UTC",
            "it is int64; give a column of timestamps, for a number does not say its unit",
        ),
        (
            pa.array([1772345678.5, 1.0]),
            "UTC",
            "it is double; give a column of timestamps, for a number does not say its unit",
        ),
        (pa.array([True, True]), "UTC", "it is bool; give a column of timestamps, dates or texts"),
        (
            pa.array([0, 1772345678000000], pa.timestamp("s")),
            "UTC",
            "label 1 has 1,772,345,678,000,000 s since 1970, which is no time",
        ),
        (
            pa.array([0, -(2**62)], pa.timestamp("ms", "UTC")),
            None,
            "label 1 has -4,611,686,018,427,387,904 ms since 1970",
        ),
        (
            pa.array([0, 2**31 - 1], pa.date32()),
            "UTC",
            "label 1 has 2,147,483,647 days since 1970, which is no time that there can be",
        ),
        (
            pa.array([0, 2**62], pa.date64()),
            "UTC",
            "ms since 1970, which is no time that there can be; is its unit the right one?",
        ),
    ],
)
def test_a_time_that_says_no_moment_is_refused_by_row_and_value(
    times: pa.Array, timezone: str | None, message: str, tmp_path: Path
) -> None:
    shape = materialize(Store(tmp_path), [Row(1, 0, 0, 1.0)])
    with pytest.raises(InvalidInput, match=re.escape(message)):
        join(
            Store(tmp_path),
            pa.table({"user": [1, 1], "when": times}),
            ["clicks@1:value"],
            shape,
            timezone=timezone,
        )


@pytest.mark.parametrize(
    ("times", "timezone", "time"),
    [
        (pa.array(["2026-03-02T06:00:00Z"]), None, SIX),
        (pa.array(["2026-03-02 08:00+02:00"], pa.large_string()), None, SIX),
        (pa.array(["2026-03-02T01:00:00.000-0500"]).dictionary_encode(), None, SIX),
        (pa.array(["2026-03-02T06:00:00Z"]), "Europe/Berlin", SIX),
        (pa.array(["2026-03-02 07:00"]), "Europe/Berlin", SIX),
        (pa.array(["2026-03-02T06:00:00.000001"]), "UTC", SIX + timedelta(microseconds=1)),
        (pa.array(["2026-03-02T06:00:00.0000010000Z"]), None, SIX + timedelta(microseconds=1)),
        # never known before it was
        (pa.array(["2026-03-02T06:00:00.0000000001Z"]), None, SIX + timedelta(microseconds=1)),
        (pa.array(["1969-12-31T23:59:59.9999999Z"]), None, datetime(1970, 1, 1, tzinfo=UTC)),
        # of the day before in UTC
        (pa.array(["2026-03-02T00:30:00+01:00"]), None, datetime(2026, 3, 1, 23, 30, tzinfo=UTC)),
    ],
)
def test_an_event_is_of_the_moment_that_its_text_says(
    times: pa.Array, timezone: str | None, time: datetime, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    rows = pa.table({"user": [1], "ts": times, "loaded": times, "value": [1.0]})
    SOURCE["rows"] = rows
    done = materialize_day(store, view(timezone=timezone), time.date(), late=True).partition
    assert (done.rows, done.first, done.last_known) == (
        1,
        int(time.timestamp() * 10**6),
        int(time.timestamp() * 10**6),
    )
    assert list(materialize_all(store, view(timezone=timezone), late=True).days) == [time.date()]


@pytest.mark.parametrize(
    ("times", "timezone", "message"),
    [
        (
            pa.array(["2026-03-01T06:00:00"]),
            None,
            "have a ts that is no ISO 8601 moment, with its time of day; write it as 2026-04-03T10",
        ),
        (
            pa.array(["2026-03-01T06:00:00"]),
            None,
            "with its time zone, or say timezone: UTC; for example user = 1, ts = '2026-03-01T06:0",
        ),
        (pa.array(["2026-03-01"]), "UTC", "have a ts that is no ISO 8601 moment, with its time of day"),
        (pa.array(["03/04/2026 10:00"]), "UTC", "ts = '03/04/2026 10:00'"),
        (pa.array(["2026-02-30T10:00:00"]), "UTC", "ts = '2026-02-30T10:00:00'"),
        (pa.array(["infinity"]), "UTC", "ts = 'infinity'"),
        (pa.array(["2026-03-01T06:00:00+24:00"]), None, "ts = '2026-03-01T06:00:00+24:00'"),
        (pa.array(["2026-03-01 06:00:00 Europe/Berlin"]), "UTC", "ts = '2026-03-01 06:00:00 Europe/Berlin'"),
        (pa.array([""]), "UTC", "ts = ''"),
        (pa.array([None], pa.string()), "UTC", "have no entity or no time"),
        (
            pa.array([date(2026, 3, 1)]),
            "UTC",
            "it is DATE, which does not say when in the day; give a column of timestamps",
        ),
        (pa.array([1772345678]), "UTC", "it is BIGINT; give a column of timestamps"),
    ],
)
def test_an_event_of_no_moment_is_refused_for_any_day(
    times: pa.Array, timezone: str | None, message: str, tmp_path: Path
) -> None:
    SOURCE["rows"] = pa.table(
        {"user": [1], "ts": times, "loaded": pa.array([at(2 * DAY)], MICROS), "value": [1.0]}
    )
    for day in (date(2026, 3, 1), date(2026, 7, 1)):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            materialize_day(Store(tmp_path), view(timezone=timezone), day)


def test_a_text_that_says_when_a_row_was_known_is_refused_where_it_is_none(tmp_path: Path) -> None:
    SOURCE["rows"] = pa.table(
        {"user": [1], "ts": pa.array([at(0)], MICROS), "loaded": ["later"], "value": [1.0]}
    )
    with pytest.raises(
        InvalidInput, match=r"1 rows .* have a loaded that is no ISO 8601 moment.* loaded = 'later'"
    ):
        materialize_day(Store(tmp_path), view(), date(2026, 3, 1))


@pytest.mark.parametrize(
    "kind",
    [
        "list<double>",
        "list",
        "large_list<float> not null",
        "list<item: float>[3]",
        "double[]",
        "struct<a: int64>",
        "map",
    ],
)
def test_a_list_in_a_schema_is_refused_with_the_way(kind: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"give one of binary, .*one column for each value, or as binary: .*tobytes\(\)"
    ):
        view(schema={"value": kind})


@pytest.mark.parametrize("kind", ["binary", "double", "string"])
@pytest.mark.parametrize(
    "column", [pa.array([[1.0]]), pa.array([[1.0]], pa.list_(pa.float32(), 1)), pa.array([{"a": 1}])]
)
def test_a_column_of_lists_is_refused_with_the_way(kind: str, column: pa.Array, tmp_path: Path) -> None:
    SOURCE["rows"] = table([Row(1, 0, 0)]).set_column(3, "value", column)
    with pytest.raises(
        InvalidInput,
        match=rf"gives value as .*, which the schema declares as {kind}; a list is kept as .*tobytes\(\)",
    ):
        materialize_day(Store(tmp_path), view(schema={"value": kind}), date(2026, 3, 1))
