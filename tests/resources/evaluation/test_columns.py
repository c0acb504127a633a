"""Columns of shared values are what the same values are one by one."""

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.evaluation.columns import encode, encode_arrow, join_columns, numbers_of
from tests.properties import examples

VALUES = st.one_of(
    st.sampled_from(["a", "", 1, 1.0, True, 0, False, None]), st.text(max_size=3), st.integers()
)
COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "b", "a", "", "ä\0"]),
    (pa.large_string(), ["a", None, "a"]),
    (pa.int64(), [3, 1, 3, -(2**63)]),
    (pa.uint64(), [2**64 - 1, 0]),
    (pa.int8(), [1, None, None]),
    (pa.bool_(), [True, False, True, None]),
    (pa.float64(), [0.5, 1.0, 0.5]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None, "a"]),
    (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("2.00")]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)] * 3),
    (pa.binary(), [b"a", b"b", b"a"]),
    (pa.null(), [None, None]),
    (pa.string(), []),
]


def with_types(values: Any) -> list[tuple[type, Any]]:
    return [(type(value), value) for value in values]


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=str)
def test_a_column_of_arrows_has_the_values_of_its_rows(kind: pa.DataType, values: list[Any]) -> None:
    column = encode_arrow(pa.array(values, kind))
    assert with_types(column.objects()) == with_types(values)
    assert len(column.values) == len(set(values))
    assert column.codes.dtype == np.int32


@settings(max_examples=examples(100))
@given(st.lists(st.lists(VALUES, max_size=8), max_size=5))
def test_columns_one_after_the_other_are_all_their_rows_and_each_value_is_held_once(
    parts: list[list[Any]],
) -> None:
    whole = join_columns(map(encode, parts))
    rows = [value for part in parts for value in part]
    assert with_types(whole.objects()) == with_types(rows)
    assert len(whole) == len(rows)
    assert with_types(whole.values) == list(dict.fromkeys(with_types(rows)))
    assert whole.types == {type(value) for value in rows}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, 2**53 + 1, -5]),
        (pa.uint64(), [2**64 - 1]),
        (pa.int32(), [1, None]),
        (pa.float16(), [np.float16(0.5), None]),
        (pa.float32(), [0.5, math.inf]),
        (pa.float64(), [0.1, math.nan, None]),
        (pa.decimal128(20, 2), [Decimal("0.10"), None, Decimal("123456789012345678.91")]),
        (pa.float64(), []),
    ],
    ids=str,
)
def test_numbers_are_floats_and_null_is_nan(kind: pa.DataType, values: list[Any]) -> None:
    numbers = numbers_of(pa.array(values, kind))
    assert numbers.dtype == np.float64
    np.testing.assert_array_equal(
        numbers, np.array([math.nan if value is None else float(value) for value in values])
    )
