"""Rows are checked against the schema before a model sees them; an error names the column."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import InvalidInput
from halving.models.example import as_json
from halving.models.inputs import arrow_type, checked_inputs

SCHEMA = {"x": "double", "pixels": "fixed_size_list<item: float>[2]", "name": "string"}
ROWS: dict[str, Any] = {"x": [1.0, 2.0], "pixels": [[0, 1], [2, 3]], "name": ["a", "b"]}
WANTED = pa.table(
    {"x": [1.0, 2.0], "pixels": pa.array([[0, 1], [2, 3]], pa.list_(pa.float32(), 2)), "name": ["a", "b"]}
)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        WANTED,
        WANTED.to_batches()[0],
        {**ROWS, "x": np.array([1, 2], np.int32), "pixels": np.array([[0, 1], [2, 3]])},
        {**ROWS, "more": [1]},
        pd.DataFrame(ROWS),
    ],
    ids=["dict", "table", "batch", "arrays", "with-more-columns", "data-frame"],
)
def test_rows_of_any_kind_become_a_table_of_the_schema(rows: Any) -> None:
    assert checked_inputs(rows, SCHEMA).equals(WANTED)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"x": None},
            (
                r"column 'x' \(double\) is missing: the model takes x \(double\), .*; given were \['name', "
                r"'pixels'\]"
            ),
        ),
        ({"x": ["1.0", "2.0"]}, "column 'x' is not accepted: the model takes double; it is string"),
        ({"name": [1, 2]}, "column 'name' is not accepted: the model takes string; it is int64"),
        ({"pixels": [[0, 1], [2]]}, "column 'pixels' is not accepted: the model takes fixed_size_list"),
        ({"x": [1.0]}, "columns of different lengths are not accepted"),
        (
            {"x": [1.0, None]},
            "column 'x' has 1 nulls, the first in row 1: there were none in what the model was trained on",
        ),
        ({"x": [object(), object()]}, "column 'x' is not accepted"),
    ],
)
def test_a_wrong_column_is_named(change: dict[str, Any], said: str) -> None:
    rows = {name: value for name, value in {**ROWS, **change}.items() if value is not None}
    with pytest.raises(InvalidInput, match=said):
        checked_inputs(rows, SCHEMA, complete=["x"])


def test_a_number_that_its_type_does_not_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match="column 'n' is not accepted: the model takes int8"):
        checked_inputs({"n": [1, 300]}, {"n": "int8"})
    with pytest.raises(InvalidInput, match="column 'n' is not accepted: the model takes int64"):
        checked_inputs({"n": [1.5]}, {"n": "int64"})


def test_what_is_no_rows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="rows of type int are not accepted"):
        checked_inputs(3, SCHEMA)


def test_what_a_data_frame_misses_is_null_and_refused_where_there_were_none() -> None:
    frame = pd.DataFrame({"x": [1.0, None], "name": ["a", float("nan")]}, dtype=object).astype({"x": float})
    frame["n"] = pd.Series([1, pd.NA], dtype="Int64")
    frame["day"] = pd.to_datetime(pd.Series(["2026-01-02", None]))
    frame["kind"] = pd.Series(["a", None], dtype="category")
    frame["pixels"] = pd.Series([[1, 2], None])
    schema = {**SCHEMA, "n": "int32", "day": "timestamp[us]", "kind": "string"}
    rows = checked_inputs(frame, schema)
    assert {column.null_count for column in rows.columns} == {1}
    assert rows.column("name").to_pylist() == ["a", None]
    for name in schema:
        with pytest.raises(
            InvalidInput, match=f"column '{name}' has 1 nulls, the first in row 1: there were none"
        ):
            checked_inputs(frame, schema, complete=[name])


OF_EVERY_TYPE = {
    "decimal128(5, 2)": [Decimal("1.50"), None],
    "dictionary<values=string, indices=int32, ordered=0>": ["a", "b"],
    "duration[ms]": [timedelta(seconds=1), None],
    "date32[day]": [date(2026, 1, 2), None],
    "timestamp[us]": [datetime(2026, 1, 2, 3, 4, 5, 6), None],
    "timestamp[us, tz=UTC]": [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None],
    "time64[us]": [time(3, 4, 5), None],
    "binary": [b"\x00\xff", None],
    "fixed_size_binary[2]": [b"\x00\xff", None],
    "uint64": [2**63, None],
    "float": [0.1, None],
    "fixed_size_list<item: float>[2]": [[0.1, 1.0], None],
}


@pytest.mark.parametrize("kind", OF_EVERY_TYPE)
def test_lists_of_every_type_are_taken_and_come_back_from_json(kind: str) -> None:
    wanted = arrow_type(kind)
    assert str(wanted) == kind
    table = checked_inputs({"a": OF_EVERY_TYPE[kind]}, {"a": kind})
    assert table.column("a").type == wanted
    assert checked_inputs(json.loads(json.dumps(as_json(table))), {"a": kind}).equals(table)


def test_a_time_is_not_cut_off_to_make_a_date() -> None:
    morning = datetime(2026, 1, 2, 3)
    for rows in ({"d": [morning]}, {"d": np.array([morning], "M8[us]")}, pd.DataFrame({"d": [morning]})):
        with pytest.raises(
            InvalidInput,
            match=r"column 'd' is not accepted: the model takes date32.*; it has times, which a date has not",
        ):
            checked_inputs(rows, {"d": "date32[day]"})
    assert checked_inputs({"d": [datetime(2026, 1, 2)]}, {"d": "date32[day]"}).column("d").to_pylist() == [
        date(2026, 1, 2)
    ]


TYPES = st.sampled_from(
    [
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
    ]
)


@given(
    st.one_of(
        TYPES, TYPES.map(pa.list_), TYPES.map(pa.large_list), st.builds(pa.list_, TYPES, st.integers(1, 9))
    )
)
def test_a_type_is_read_from_its_text(kind: pa.DataType) -> None:
    assert arrow_type(str(kind)) == kind


def test_a_type_that_cannot_be_read_is_taken_as_it_is_or_not_at_all() -> None:
    kind = pa.struct({"a": pa.int64()})
    rows = {"s": pa.array([{"a": 1}], kind)}
    assert checked_inputs(rows, {"s": str(kind)}).column("s").type == kind
    with pytest.raises(InvalidInput, match="column 's' is not accepted"):
        checked_inputs({"s": [1]}, {"s": str(kind)})
