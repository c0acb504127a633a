"""Texts become numbers, dates and truth values, but never another number than is written."""

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.source_files.texts import types_of_texts, values_of_texts
from tests.properties import examples


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "-2"], pa.int64(), [1, -2]),
        (["0", "10"], pa.int64(), [0, 10]),
        (["0.1", "2"], pa.float64(), [0.1, 2.0]),
        (["1e-3"], pa.float64(), [0.001]),
        (["2024-01-02"], pa.date32(), [datetime.date(2024, 1, 2)]),
        (["2024-01-02T03:04:05"], pa.timestamp("s"), [datetime.datetime(2024, 1, 2, 3, 4, 5)]),
        (["true", "False"], pa.bool_(), [True, False]),
        (["1", "x"], pa.string(), ["1", "x"]),
        (["NA", "DE"], pa.string(), ["NA", "DE"]),
        (["a\nb", 'a"b', "a,b"], pa.string(), ["a\nb", 'a"b', "a,b"]),
        (["01", "10"], pa.string(), ["01", "10"]),
        (["00501", "10001"], pa.string(), ["00501", "10001"]),
        (["-07"], pa.string(), ["-07"]),
        (["00.5"], pa.string(), ["00.5"]),
        (["0x1F", "0XFFFFFFFFFFFFFFFF"], pa.string(), ["0x1F", "0XFFFFFFFFFFFFFFFF"]),
        (["9223372036854775807"], pa.int64(), [2**63 - 1]),
        (
            ["12345678901234567890", "12345678901234567891"],
            pa.uint64(),
            [12345678901234567890, 12345678901234567891],
        ),
        (["123456789012345678901234"], pa.string(), ["123456789012345678901234"]),
        (["12345678901234567890", "-1"], pa.string(), ["12345678901234567890", "-1"]),
        (["9007199254740993", "0.5"], pa.string(), ["9007199254740993", "0.5"]),
        (["123456789012345", "0.5"], pa.float64(), [123456789012345.0, 0.5]),
    ],
)
def test_a_column_has_the_type_that_holds_what_is_written(
    texts: list[str], kind: pa.DataType, values: list[Any]
) -> None:
    rows = pa.record_batch({"x": texts, "x y": texts})
    types = types_of_texts(rows)
    assert types == pa.schema([("x", kind), ("x y", kind)])
    assert values_of_texts(rows, types).to_pydict() == {"x": values, "x y": values}


@pytest.mark.parametrize("texts", [[], [None], [None, None], ["", None]])
def test_a_column_without_values_has_no_type_yet(texts: list[str | None]) -> None:
    assert types_of_texts(pa.record_batch({"x": pa.array(texts, pa.string())})).field("x").type == pa.null()


def test_two_columns_may_have_one_name() -> None:
    assert types_of_texts(
        pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["a"])], ["x", "x"])
    ).types == [pa.int64(), pa.string()]


@given(numbers=st.lists(st.integers(-(2**70), 2**70), min_size=1))
@settings(max_examples=examples(30))
def test_no_whole_number_becomes_another(numbers: list[int]) -> None:
    rows = pa.record_batch({"x": [str(number) for number in numbers]})
    values = values_of_texts(rows, types_of_texts(rows))["x"].to_pylist()
    assert [int(value) for value in values] == numbers
