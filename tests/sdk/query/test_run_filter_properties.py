"""Every filter is read as it was written, and any text is understood or refused where it is wrong."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from halving.query.run_filter import (
    And,
    Between,
    Comparison,
    Condition,
    Field,
    In,
    InvalidFilter,
    IsNull,
    Like,
    Not,
    Or,
    Order,
    RunFilter,
    Value,
)
from halving.query.run_filter_parser import parse_filter
from tests.properties import examples
from tests.run_filters import NOW

STATUS = Field("run", "status")
SECONDS = Field("run", "seconds")
STARTED = Field("run", "started")


def same(wanted: RunFilter) -> str:
    """Equal for equal filters, also where they have NaN; without the columns."""
    return re.sub(r", column=\d+\)", ")", repr(wanted))


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NUMBERS = st.floats()
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
TIMES = st.datetimes(timezones=st.just(NOW.tzinfo)).map(lambda time: time.isoformat())
ORDERED = st.sampled_from(["<", "<=", ">", ">="])
EQUAL = st.sampled_from(["=", "!="])
TEXT_FIELDS = st.sampled_from([STATUS, Field("run", "model")]) | st.builds(Field, st.just("tags"), NAMES)
NUMBER_FIELDS = st.just(SECONDS) | st.builds(
    Field, st.just("metrics"), NAMES, st.sampled_from(["last", "best", "min", "max"])
)
PARAMS = st.builds(Field, st.just("params"), NAMES)
FIELDS = TEXT_FIELDS | NUMBER_FIELDS | PARAMS | st.just(STARTED)


def conditions_of(
    fields: st.SearchStrategy[Field], values: st.SearchStrategy[Value]
) -> st.SearchStrategy[Condition]:
    ordered = values.filter(lambda value: value == value and not isinstance(value, bool))
    return st.one_of(
        st.builds(Comparison, fields, EQUAL, values),
        st.builds(Comparison, fields, ORDERED, ordered),
        st.builds(lambda field, low: Between(field, low, low), fields, ordered),
        st.builds(In, fields, st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.builds(IsNull, fields),
    )


CONDITIONS = st.recursive(
    st.one_of(
        conditions_of(TEXT_FIELDS, TEXTS),
        conditions_of(NUMBER_FIELDS, NUMBERS),
        conditions_of(PARAMS, st.one_of(TEXTS, NUMBERS, st.booleans())),
        conditions_of(st.just(STARTED), TIMES),
        st.builds(Like, TEXT_FIELDS | PARAMS, TEXTS.map(lambda text: text.rstrip("\\"))),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=4).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=4).map(tuple)),
    ),
    max_leaves=8,
)
FILTERS = st.builds(
    RunFilter,
    st.none() | CONDITIONS,
    st.lists(st.builds(Order, FIELDS, st.booleans()), max_size=3).map(tuple),
    st.none() | st.integers(1, 999_999_999),
)


@settings(max_examples=examples(300), deadline=None)
@given(FILTERS)
def test_every_filter_is_read_as_it_was_written(wanted: RunFilter) -> None:
    assert same(parse_filter(str(wanted))) == same(wanted)


_WORDS = (
    "and or not between in like is null order by asc desc limit ago params. metrics. tags. params.lr min( "
    "max( best( ( ) , = != < <= > >= "
    "status seconds started run 1 -1e3 nan inf true 7d 2026-11-01 ' \" '' a% \\"
)
WORDS = st.sampled_from(_WORDS.split())


@settings(max_examples=examples(500), deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(WORDS | st.text(max_size=3), max_size=25).map(" ".join)
    | st.lists(WORDS, max_size=25).map("".join)
)
@example("started > ²d ago")
@example("limit ²")
@example("seconds = \N{ARABIC-INDIC DIGIT ONE}")
@example("started > 202\N{ARABIC-INDIC DIGIT ONE}-11-01")
def test_any_text_is_understood_or_refused_with_a_column_that_it_has(text: str) -> None:
    column = 1
    parsed = RunFilter()
    try:
        parsed = parse_filter(text, NOW)
    except InvalidFilter as error:
        column = error.column
    assert 1 <= column <= len(text) + 1
    assert same(parse_filter(str(parsed))) == same(parsed)
