"""Every accepted type is stored unchanged, with its nulls; decimals become numbers.

Its statistics are JSON.
"""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets.canonical import canonical, canonical_schema
from resources.datasets.data_checks import CHECKS, check_data
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource

ROWS = 200


def _column(make: Callable[[int], Any], kind: pa.DataType | None = None) -> pa.Array:
    """A column in which every seventh value is null."""
    return pa.array([None if row % 7 == 3 else make(row) for row in range(ROWS)], kind)


def _float(row: int) -> float:
    if row % 50 == 0:
        return float("nan")
    return float("inf") if row % 51 == 0 else row / 3


COLUMNS = {
    "a float": _column(_float),
    "large": _column(lambda row: 10**18 + row),
    "nanoseconds": pa.array([1_767_225_600_000_000_001 + row for row in range(ROWS)], pa.timestamp("ns")),
    "half": _column(lambda row: np.float16(row), pa.float16()),
    "moment": _column(lambda row: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=row)),
    "day": _column(lambda row: date(2026, 1, 1) + timedelta(days=row)),
    "time": _column(lambda row: time(row % 24, 2, 3)),
    "duration": _column(lambda row: timedelta(seconds=row)),
    "bool": _column(lambda row: row % 3 == 0),
    "text": _column(lambda row: "é" * (row % 9)),
    "bytes": _column(lambda row: bytes([row]) * row),
    "four bytes": _column(lambda row: b"abcd", pa.binary(4)),
    "list": _column(lambda row: [row] * (row % 4)),
    "lists": _column(lambda row: [[row], [], None]),
    "pair": _column(lambda row: [1.0, None], pa.list_(pa.float32(), 2)),
    "struct": _column(lambda row: {"a": row, "b": [str(row)] * (row % 3)}),
    "no fields": _column(lambda row: {}, pa.struct([])),
    "null.only": pa.nulls(ROWS, pa.float64()),
}


def test_values_come_back_as_they_were_given(backend: Backend, provide: Callable[..., DatasetSource]) -> None:
    table = pa.table({"id": range(ROWS), **COLUMNS, "label": [row % 2 for row in range(ROWS)]})
    empty = table.schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    source = provide(lambda: iter([*empty, *table.to_batches(max_chunksize=17)]))
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
    stored = dataset.read().sort_by("id")
    for name in table.column_names:
        # They are compared as text, because NaN is not equal to itself.
        assert str(stored[name].to_pylist()) == str(table[name].to_pylist()), name
    assert {check.name for check in check_data(dataset, source, None) if not check.passed} == set()
    statistics = json.loads(json.dumps(dataset.manifest["statistics"]["train"]))
    assert statistics["duration"]["max"] < ROWS
    assert statistics["null.only"] == {"nulls": dataset.splits["train"]}
    assert statistics["day"]["min"] < "2026-01-20"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**63 - 1] * ROWS, pa.timestamp("us")),
        pa.array([10**7] * ROWS, pa.date32()),
        pa.array([b"\xff"] * ROWS).view(pa.string()),
    ],
)
def test_values_that_python_does_not_have_are_held_without_bounds(
    backend: Backend, provide: Callable[..., DatasetSource], column: pa.Array
) -> None:
    source = provide(pa.table({"id": range(ROWS), "x": column, "label": [row % 2 for row in range(ROWS)]}))
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
    assert dataset.manifest["statistics"]["train"]["x"]["nulls"] == 0
    assert dataset.read("train")["x"].combine_chunks().equals(column.slice(0, dataset.splits["train"]))
    assert len(check_data(dataset, source, None)) == len(CHECKS)


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.nulls(3), "null"),
        (
            pa.StructArray.from_arrays([pa.array([1, 2, 3]), pa.array([4, 5, 6])], ["a", "a"]),
            "struct<a: int64, a: int64>, of which two fields have one name",
        ),
        (pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())), "map"),
        (pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array([1, 2, 3])]), "sparse_union"),
    ],
)
def test_a_type_that_cannot_be_held_is_refused_by_column(
    backend: Backend, provide: Callable[..., DatasetSource], column: pa.Array, named: str
) -> None:
    with pytest.raises(
        InvalidInput, match=f"its column 'x' has the type {named}.*give numbers, texts, binary values, times"
    ):
        take_snapshot(backend.store, backend.catalog, provide(pa.table({"x": column, "label": [0, 1, 0]})))


@pytest.mark.parametrize(
    ("first", "later", "says"),
    [
        (
            [{"a": 1}],
            [{"a": 1, "b": 2}],
            "later ones struct<a: int64, b: int64>; give all of them the same fields",
        ),
        ([[{"a": 1}]], [[{"b": 1}]], "give all of them the same fields"),
        (
            pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
            pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3)),
            "give all of them one type",
        ),
        ([1], ["5"], "the first rows are int64, later ones string; give all of them one type"),
        (["5"], [1], "the first rows are string, later ones int64; give all of them one type"),
        ([True], [1], "the first rows are bool, later ones int64"),
        ([b"q"], ["q"], "the first rows are binary, later ones string"),
        (
            pa.array([1], pa.timestamp("us")),
            pa.array([1], pa.timestamp("us", "UTC")),
            "give all of them one type",
        ),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.date32()), "give all of them one type"),
        (["2026-01-01"], pa.array([1], pa.date32()), "give all of them one type"),
        ([[1]], [["5"]], "give all of them one type"),
        ([1], [0.5], "values that do not fit"),
        ([0.5], [2**53 + 1], "values that do not fit"),
    ],
)
def test_rows_of_another_form_than_the_first_are_refused(
    backend: Backend, provide: Callable[..., DatasetSource], first: Any, later: Any, says: str
) -> None:
    batches = [pa.record_batch({"x": pa.array(values), "label": [1]}) for values in (first, later)]
    with pytest.raises(InvalidInput, match=f"in the column 'x' .*{says}"):
        take_snapshot(backend.store, backend.catalog, provide(lambda: iter(batches)))


@pytest.mark.parametrize("kind", [pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256])
@pytest.mark.parametrize(
    ("digits", "values", "numbers"),
    [
        ((9, 0), ["0", "-5", None, "123456789"], [0, -5, None, 123456789]),
        ((9, -2), ["-1200", "100"], [-1200, 100]),
        ((9, 2), ["0.10", "19.99", None, "-0.01"], [0.1, 19.99, None, -0.01]),
        ((9, 1), ["0.5", "3.5", "1.0"], [0.5, 3.5, 1.0]),
        ((9, 9), ["0.123456789"], [0.123456789]),
        ((9, 3), [None, None], [None, None]),
    ],
)
def test_decimals_are_held_as_numbers(
    kind: Callable[..., pa.DataType],
    digits: tuple[int, int],
    values: list[str | None],
    numbers: list[float | None],
) -> None:
    decimals = pa.array([None if value is None else Decimal(value) for value in values], kind(*digits))
    for column, wanted in (
        (decimals, numbers),
        (
            pa.array([[value] for value in decimals.to_pylist()], pa.list_(decimals.type)),
            [[number] for number in numbers],
        ),
        (
            pa.array([{"a": value} for value in decimals.to_pylist()], pa.struct({"a": decimals.type})),
            [{"a": number} for number in numbers],
        ),
        (
            pa.array(
                [[None, {"a": value}] for value in decimals.to_pylist()],
                pa.large_list(pa.struct({"a": decimals.type})),
            ).slice(1),
            None,
        ),
        (
            pa.array([[value, None] for value in decimals.to_pylist()], pa.list_(decimals.type, 2)),
            [[number, None] for number in numbers],
        ),
    ):
        rows = pa.record_batch({"x": column})
        held = canonical(rows, canonical_schema(rows.schema))["x"]
        leaf = "int64" if digits[1] <= 0 else "double"
        assert "decimal" not in str(held.type)
        assert leaf in str(held.type)
        assert held.to_pylist() == (wanted or [[None, {"a": number}] for number in numbers[1:]])


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (pa.decimal128(38, 0), "9223372036854775808", "it has 9223372036854775808, which no int64 is"),
        (pa.decimal128(38, 0), "12345678901234567890", "it has 12345678901234567890, which no int64 is"),
        (pa.decimal256(76, 0), "9" * 76, "which no int64 is"),
        (pa.decimal128(38, 1), "12345678901234567.8", "it has 12345678901234567.8, which no double is"),
        (pa.decimal64(18, 6), "123456789012.345678", "it has 123456789012.345678, which no double is"),
        (pa.decimal128(38, 38), "0." + "3" * 38, "which no double is"),
    ],
)
def test_a_decimal_that_no_number_is_is_refused_by_column_and_value(
    kind: pa.DataType, value: str, says: str
) -> None:
    decimals = pa.array([Decimal("0"), None, Decimal(value)], kind)
    nested = pa.array([[], [{"a": Decimal(value)}]], pa.list_(pa.struct({"a": kind})))
    for column in (decimals, nested):
        rows = pa.record_batch({"price": column})
        with pytest.raises(
            InvalidInput,
            match=f"the column 'price' does not become .*{says}; cast it in a query, or in dataset.transform",
        ):
            canonical(rows, canonical_schema(rows.schema))


@pytest.mark.parametrize(
    "value", ["0.1", "123456789012345.67", "1E-18", "0.30000000000000004", "99999999999999999999.0"]
)
def test_a_decimal_with_more_digits_behind_the_point_than_it_needs_is_its_double(value: str) -> None:
    rows = pa.record_batch({"x": pa.array([Decimal(value)], pa.decimal256(76, 30))})
    is_exact = Decimal(repr(float(value))) == Decimal(value)
    if is_exact:
        assert canonical(rows, canonical_schema(rows.schema))["x"].to_pylist() == [float(value)]
    else:
        with pytest.raises(InvalidInput, match="which no double is"):
            canonical(rows, canonical_schema(rows.schema))


def test_fractions_that_come_after_whole_numbers_are_refused() -> None:
    first = pa.record_batch({"x": pa.array([Decimal(5)], pa.decimal128(38, 0))})
    later = pa.record_batch({"x": pa.array([Decimal("5.5")], pa.decimal128(38, 1))})
    with pytest.raises(
        InvalidInput, match=r"the column 'x' does not become int64: it has 5.5, which no int64 is"
    ):
        canonical(later, canonical_schema(first.schema))


def test_a_double_that_comes_after_singles_is_not_rounded() -> None:
    schema = canonical_schema(pa.schema({"x": pa.float32()}))
    assert (
        canonical(pa.record_batch({"x": [0.5, None, float("nan"), float("inf")]}), schema)["x"][0].as_py()
        == 0.5
    )
    with pytest.raises(
        InvalidInput, match=r"the column 'x' does not become float: it has 0.1, which no float is"
    ):
        canonical(pa.record_batch({"x": [0.1]}), schema)
