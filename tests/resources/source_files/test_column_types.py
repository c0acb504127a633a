"""Types unite alike in any order, and a value that is cast to the union stays the same."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.data.exact_casts import Unlike, cast_exactly
from resources.source_files.column_types import plain_type, unite_types
from tests.properties import examples

NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
NUMBERS += [
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal32(5, 1),
    pa.decimal128(38, 0),
    pa.decimal128(38, 20),
    pa.decimal256(76, 0),
]
OTHERS = [
    pa.null(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(2),
    pa.large_binary(),
    pa.date32(),
    pa.date64(),
]
OTHERS += [
    pa.time32("s"),
    pa.time64("us"),
    pa.duration("s"),
    pa.duration("ns"),
    pa.timestamp("s"),
    pa.timestamp("us"),
    pa.timestamp("ns", "UTC"),
    pa.timestamp("us", "Europe/Berlin"),
    pa.timestamp("s", "Asia/Tokyo"),
]
OTHERS += [pa.map_(pa.string(), pa.int64())]
LEAVES = st.sampled_from(NUMBERS + OTHERS)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.tuples(inner, st.integers(1, 2)).map(lambda pair: pa.list_(*pair)),
        st.tuples(inner, inner).map(lambda pair: pa.struct({"a": pair[0], "b": pair[1]})),
    ),
    max_leaves=3,
)


def _unite(*kinds: pa.DataType) -> pa.DataType | None:
    union = pa.null()
    try:
        for kind in kinds:
            union = unite_types(union, kind)
    except Unlike:
        return None
    return union


@given(
    st.lists(st.sampled_from(NUMBERS), min_size=3, max_size=3) | st.lists(TYPES, min_size=3, max_size=3),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(300))
def test_a_union_does_not_depend_on_the_order(kinds: list[pa.DataType], random: object) -> None:
    shuffled = list(kinds)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _canonical(_unite(*kinds)) == _canonical(_unite(*shuffled))


def _canonical(kind: pa.DataType | None) -> pa.DataType | None:
    """The stored type of a union, in which a decimal and a double on the way make no difference."""
    if kind is not None and pa.types.is_decimal(kind):
        return pa.int64() if kind.scale <= 0 else pa.float64()
    return kind


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=4),
    st.lists(st.floats() | st.none(), max_size=4),
)
@settings(max_examples=examples(200))
def test_whole_numbers_and_fractions_are_the_same_as_doubles_or_refused(
    whole: list[int | None], fractions: list[float | None]
) -> None:
    union = unite_types(pa.int64(), pa.float64())
    assert repr(cast_exactly(pa.array(fractions, pa.float64()), union).to_pylist()) == repr(fractions)
    try:
        cast = cast_exactly(pa.array(whole, pa.int64()), union)
    except pa.ArrowInvalid:
        assert any(value is not None and abs(value) > 2**53 for value in whole)
    else:
        assert cast.to_pylist() == whole


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (
            pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
            pa.struct({"b": pa.string(), "a": pa.float64()}),
        ),
        (pa.array([{"a": 1}, None]), pa.struct({"a": pa.int64(), "b": pa.string()})),
        (pa.array([[{"a": 1}], None, []]), pa.list_(pa.struct({"b": pa.string(), "a": pa.float64()}))),
        (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)), pa.list_(pa.float64(), 2)),
        (pa.array([[1], None, []], pa.list_view(pa.int32())), pa.large_list(pa.float64())),
        (
            pa.array([["a"], None], pa.list_(pa.string())).cast(
                pa.list_(pa.dictionary(pa.int32(), pa.string()))
            ),
            pa.list_(pa.string()),
        ),
        (pa.array([None, None]), pa.struct({"a": pa.list_(pa.int64())})),
        (pa.array([[None], None], pa.list_(pa.null())), pa.list_(pa.timestamp("us", "UTC"))),
        (pa.array([[[1]], [[]], None]), pa.large_list(pa.large_list(pa.int64()))),
        (pa.array(["a", None, "b"]).dictionary_encode(), pa.large_string()),
        # when its clocks change
        (pa.array([1_774_746_000, None, -1], pa.timestamp("s", "Europe/Berlin")), pa.timestamp("us", "UTC")),
    ],
)
def test_nested_values_are_cast_by_their_names_and_places(values: pa.Array, kind: pa.DataType) -> None:
    def fill(value: object) -> object:
        """The value with null for the fields that it lacks."""
        if isinstance(value, dict):
            return {"a": None, "b": None} | {name: fill(inner) for name, inner in value.items()}
        return [fill(inner) for inner in value] if isinstance(value, list) else value

    for array in (values, values.slice(1), pa.concat_arrays([values, values])[1:]):
        cast = cast_exactly(array, kind)
        cast.validate(full=True)
        assert cast.type == kind
        assert [fill(value) for value in cast.to_pylist()] == [fill(value) for value in array.to_pylist()]


def test_what_is_plain_is_cast_to_itself() -> None:
    values = pa.array([1, 2])
    assert cast_exactly(values, plain_type(values.type)) is values
