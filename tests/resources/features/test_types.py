"""A feature has the type that its view declares, and each value is what it was in the view's files."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput, Store
from resources.features.materialize import materialize_all, materialize_day
from resources.features.view import FeatureView
from tests.resources.features.histories import (
    DAY,
    MICROS,
    SOURCE,
    Row,
    at,
    join,
    labels,
    materialize,
    table,
    view,
)

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
