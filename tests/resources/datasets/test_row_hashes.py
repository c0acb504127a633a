"""Rows are hashed by their values, however they are stored, and the hashes never change."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.datasets.row_hashes import column_words, hash_rows


def words(values: pa.Array) -> list[int]:
    """The words of one column's values."""
    numbers: list[int] = column_words(pa.RecordBatch.from_arrays([values], ["a"]))["a"].tolist()
    return numbers


def row_hashes(**columns: Any) -> list[int]:
    rows = pa.RecordBatch.from_pydict(columns)
    hashes: list[int] = hash_rows(column_words(rows), columns).tolist()
    return hashes


def test_the_hash_is_frozen_for_ever() -> None:
    """If one of these changed, every dataset's rows would be dealt anew. So never edit them."""
    assert (
        row_hashes(
            a=[0, 1, -1], b=["", "text", "a text that is longer than eight bytes"], c=[[1.5, 2.0], [], [0.1]]
        )
        == FROZEN_ROWS
    )
    moments = pa.array([datetime(2026, 1, 31, 12, tzinfo=UTC)])
    kinds = [
        pa.array([None, 2.5, float("nan")]),
        pa.array([True]),
        pa.array([b"x" * 300]),
        moments,
        pa.array([{"x": 1, "y": None}]),
    ]
    assert [words(kind) for kind in kinds] == FROZEN_WORDS


FROZEN_ROWS: list[int] = [14679569811288680397, 15414438295550069689, 1728667221973927746]
FROZEN_WORDS: list[list[int]] = [
    [7959387129412676716, 2771509700475862767, 7953759837273091681],
    [1],
    [15302384083104561335],
    [1769860800000000000],
    [6507573070592946487],
]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([5, -7, None], pa.int8()), pa.array([5.0, -7.0, None], pa.float32())),
        (pa.array([5, 7], pa.uint16()), pa.array([Decimal("5.00"), Decimal("7.00")])),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([1.5, float("nan")], pa.float32()), pa.array([1.5, float("nan")], pa.float64())),
        (pa.array(["a", "", None, "x" * 400]), pa.array(["a", "", None, "x" * 400], pa.large_string())),
        (pa.array(["a", "b", "a"]), pa.array(["a", "b", "a"]).dictionary_encode()),
        (pa.array(["é"]), pa.array(["é".encode()])),
        (
            pa.array([datetime(2026, 1, 31)], pa.timestamp("s")),
            pa.array([datetime(2026, 1, 31)], pa.timestamp("ns")),
        ),
        (pa.array([date(2026, 1, 31)]), pa.array([datetime(2026, 1, 31)], pa.timestamp("ms"))),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), pa.array([[1.0, 2.0], [3.0, 4.0]])),
        (pa.array([[1, None], None, []]), pa.array([[1.0, None], None, []], pa.large_list(pa.float64()))),
    ],
)
def test_equal_values_have_equal_hashes_in_any_type(first: pa.Array, second: pa.Array) -> None:
    assert words(first) == words(second)


def test_what_is_not_equal_has_another_hash() -> None:
    values = [
        pa.array(items, kind)
        for items, kind in (
            ([0, 1, -1, 2**53, -(2**63)], pa.int64()),
            ([0.5, 1.5, 1e300, -1e300], pa.float64()),
        )
    ]
    texts = ["", "\0", "\0\0", "a", "a\0", "ab", "ba", "x" * 8, "x" * 9, "x" * 256, "x" * 257, "x" * 258]
    values += [
        pa.array(texts),
        pa.array([[], [0], [0, 0], [1, 2], [2, 1], [None], None], pa.list_(pa.int64())),
    ]
    hashes = [word for column in values for word in words(column)]
    assert len(set(hashes)) == len(hashes)


def test_the_order_of_columns_and_where_an_array_begins_have_no_effect() -> None:
    assert row_hashes(a=[1, 2], b=["x", "y"]) == row_hashes(b=["x", "y"], a=[1, 2])
    assert row_hashes(a=[1], b=[2]) != row_hashes(a=[2], b=[1])
    for values in (
        pa.array([[1, 2], [3], [], [4, 5, 6]]),
        pa.array([[1, 2], [3, 4]] * 2, pa.list_(pa.int64(), 2)),
        pa.array(list("abcd")),
    ):
        assert words(values.slice(1, 2)) == words(values)[1:3]


@given(values=st.lists(st.one_of(st.none(), st.binary(max_size=300)), min_size=1, max_size=30))
def test_a_text_is_hashed_alone_as_among_others(values: list[bytes | None]) -> None:
    assert words(pa.array(values, pa.binary())) == [
        words(pa.array([value], pa.binary()))[0] for value in values
    ]


@given(values=st.lists(st.lists(st.integers(-5, 5), max_size=5), min_size=1, max_size=30))
def test_a_list_is_hashed_alone_as_among_others(values: list[list[int]]) -> None:
    kind = pa.list_(pa.int64())
    assert words(pa.array(values, kind)) == [words(pa.array([value], kind))[0] for value in values]


def test_many_rows_have_hashes_that_differ_and_are_spread_evenly() -> None:
    hashes = np.array(row_hashes(a=list(range(100_000)), b=["same"] * 100_000), np.uint64)
    assert len(np.unique(hashes)) == 100_000
    for shift in (0, 30, 60):
        counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(15)).astype(np.int64), minlength=16)
        assert abs(counts - 6250).max() < 400, "five deviations of a binomial of 100,000 and 1/16"
