"""Whole numbers from 2**53 on, which the index has exactly."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, literal, select

from halving.query.run_filter import Field
from halving.query.run_filter import literal as written
from halving.query.run_filter_match import _compare, _filter_value
from halving.query.run_filter_parser import parse_filter
from resources.analysis.run_index import Refresher
from resources.analysis.run_index.exact_numbers import (
    OPERATORS,
    compare,
    compare_whole,
    key_of,
    nearest,
    value_of,
)
from resources.analysis.run_index.groups import select_groups
from resources.backend import Backend
from tests.indexed_runs import add_record, rows
from tests.properties import examples

LARGE = 2**53
ENGINE = create_engine("sqlite://")
NUMBERS = (
    st.integers(LARGE - 3, LARGE + 5)
    | st.integers(-LARGE - 5, 3 - LARGE)
    | st.integers(10**16 - 5, 10**16 + 5)
    | st.integers(-(10**310), 10**310)
    | st.integers(-9, 9)
    | st.floats(allow_nan=False)
)
SIGNS = st.sampled_from(list(OPERATORS))


@settings(max_examples=examples(500), deadline=None)
@given(NUMBERS, SIGNS, NUMBERS)
def test_sql_and_records_compare_numbers_as_python_does(
    value: int | float, sign: str, other: int | float
) -> None:
    right = OPERATORS[sign](value, other)
    condition = parse_filter(f"params.x {sign} {written(other)}").where
    assert _compare(_filter_value(value, "any"), sign, condition.value, False) == right  # type: ignore[arg-type, union-attr]
    with ENGINE.connect() as connection:
        clause = compare(literal(nearest(value)), literal(key_of(value)), sign, other)
        assert bool(connection.scalar(select(clause))) == right
        assert bool(
            connection.scalar(select(compare(literal(nearest(value)), None, sign, other)))
        ) == OPERATORS[sign](nearest(value), other)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), SIGNS, NUMBERS | st.floats(-10, 10))
def test_sql_compares_integers_of_64_bits_with_any_number(value: int, sign: str, other: int | float) -> None:
    with ENGINE.connect() as connection:
        assert bool(connection.scalar(select(compare_whole(literal(value), sign, other)))) == OPERATORS[sign](
            value, other
        )


@settings(max_examples=examples(300))
@given(st.lists(NUMBERS, min_size=2, max_size=8))
def test_a_number_and_its_key_say_what_it_was_and_are_in_its_order(values: list[int | float]) -> None:
    for value in values:
        assert value_of(nearest(value), key_of(value)) == value
    ordered = sorted(values)
    assert [nearest(value) for value in ordered] == sorted(map(nearest, values))
    for less, more in pairwise(ordered):
        if nearest(less) == nearest(more) and less != more:
            assert (key_of(less) or "") < (key_of(more) or "")


@pytest.mark.parametrize(
    "value",
    [
        0,
        5,
        -7,
        LARGE - 1,
        LARGE,
        LARGE + 1,
        -LARGE - 1,
        12345678901234567890,
        2**63,
        -(2**70),
        10**400,
        1e300,
        0.1,
        float("inf"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_columns_and_groups_give_the_number_that_a_run_has(backend: Backend, value: int | float) -> None:
    add_record(backend.store, "a", {"id": value})
    add_record(backend.store, "b", {"id": value + 1})
    Refresher(backend.store, backend.catalog).refresh()
    ids = {row["run"]: row["values"]["params.id"] for row in rows(backend.catalog, "", "params.id")}
    assert ids == {"a": value, "b": value + 1}
    with backend.catalog.read() as session:
        groups = select_groups(session, parse_filter(""), [Field("params", "id")])
    assert {group["key"]["params.id"] for group in groups} == {value, value + 1}


@pytest.mark.parametrize("text", ["1e400", "-1e309", "1" * 601])
def test_what_no_number_of_a_filter_is_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not accepted: no number is so large, but inf"):
        parse_filter(f"params.x = {text}")
