"""References, packed values and transforms: what serving has of features, without a server."""

import math
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import InvalidInput, StoreError
from halving.features import RequestTransform, parse_reference
from halving.features.definition import TYPES, Definition, arrow_type, schema_text
from halving.features.packing import Layout, Layouts, entity_key, entity_keys, event_of, micros
from halving.features.reference import parse_references
from halving.features.transform import check_row_by_row, features_of

BITS64 = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "binary": st.binary(max_size=20),
    "bool": st.booleans(),
    "double": st.one_of(BITS64, st.sampled_from([-0.0, 0.0, math.nan, math.inf])),
    "float": st.floats(width=32),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(max_size=20),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
}
TIMES = st.integers(-(2**62), 2**62)


def same_bits(left: pa.Array, right: pa.Array) -> bool:
    """Whether two arrays have the same values to the bit, where they are not null."""
    if left.type != right.type or not left.is_valid().equals(right.is_valid()):
        return False
    if not pa.types.is_floating(left.type):
        return bool(left.equals(right))
    kind = np.uint64 if left.type == pa.float64() else np.uint32
    there = left.is_valid().to_numpy(zero_copy_only=False)
    bits = [array.fill_null(0).to_numpy(zero_copy_only=False).view(kind)[there] for array in (left, right)]
    return bool((bits[0] == bits[1]).all())


@given(st.data(), st.lists(st.sampled_from(TYPES), min_size=1, max_size=12), st.integers(1, 12))
def test_packed_values_come_back_bit_by_bit(data: st.DataObject, kinds: list[str], rows: int) -> None:
    features = {f"f{place}": kind for place, kind in enumerate(kinds)}
    given_columns = {
        name: data.draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows))
        for name, kind in features.items()
    }
    table = pa.table(
        {name: pa.array(given_columns[name], arrow_type(kind)) for name, kind in features.items()}
    )
    times = np.array(data.draw(st.lists(TIMES, min_size=rows, max_size=rows)), np.int64)
    layout = Layout(features)
    values = layout.pack(table, times, times, 7)
    columns = layout.columns(values)
    for name in features:
        assert same_bits(table[name].combine_chunks(), columns[name]), name
    assert [event_of(value) for value in values] == times.tolist()
    for row, value in enumerate(values):
        unpacked = layout.unpack(value)
        for name in features:
            assert same_bits(
                pa.array([unpacked[name]], table[name].type), table[name].combine_chunks().slice(row, 1)
            ), name


@given(TIMES, TIMES, TIMES, TIMES, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_of_two_values_the_later_one_has_the_greater_beginning(
    e1: int, e2: int, k1: int, k2: int, g1: int, g2: int
) -> None:
    rows = pa.table({"x": [1.0, 2.0]})
    values = Layout({"x": "double"}).pack(
        rows, np.array([e1, e2]), np.array([k1, k2]), np.array([g1, g2], np.uint32)
    )
    assert (values[0][:20] < values[1][:20]) == ((e1, k1, g1) < (e2, k2, g2))


@given(
    st.lists(
        st.tuples(st.text(max_size=4), st.integers(-(2**63), 2**63 - 1), st.text(max_size=4)),
        min_size=1,
        max_size=20,
    )
)
def test_two_entities_never_share_a_key(entities: list[tuple[str, int, str]]) -> None:
    definition = Definition("v", 1, {"a": "string", "b": "int64", "c": "string"}, {"x": "double"})
    rows = [dict(zip("abc", entity, strict=True)) for entity in entities]
    keys = [entity_key(definition, row) for row in rows]
    assert len(set(keys)) == len(set(entities))
    assert entity_keys(definition, pa.Table.from_pylist(rows)) == keys


def test_whole_numbers_of_any_kind_are_one_entity_and_nothing_else_is() -> None:
    definition = Definition("v", 1, {"user": "int64"}, {"x": "double"})
    key = entity_key(definition, {"user": 5})
    assert entity_key(definition, {"user": np.int32(5)}) == key
    for kind in (pa.int8(), pa.uint32(), pa.int64(), pa.uint64(), pa.float64()):
        assert entity_keys(definition, pa.table({"user": pa.array([5, None], kind)})) == [key, None]
    assert entity_key(definition, {"user": None}) is None
    for wrong in ("5", True, 2**63, b"5"):
        with pytest.raises(InvalidInput, match=r"user = .* is not accepted: the entity of v@1 is int64"):
            entity_key(definition, {"user": wrong})
    for column in (pa.array(["5"]), pa.array([True])):
        with pytest.raises(InvalidInput, match=r"in v@1 it is int64"):
            entity_keys(definition, pa.table({"user": column}))


def test_a_value_with_more_features_than_are_known_is_refused() -> None:
    values = Layout({"x": "double", "y": "bool"}).pack(
        pa.table({"x": [1.0], "y": [True]}), np.array([0]), np.array([0]), 1
    )
    with pytest.raises(StoreError, match="a value of v@1 has 2 features"):
        Layouts(Definition("v", 1, {"user": "int64"}, {"x": "double"})).of(values[0])


def test_a_definition_is_read_as_written_and_merged_in_the_older_ones_order() -> None:
    first = Definition(
        "v",
        1,
        {"b": "int64", "a": "string"},
        {"y": "double", "x": "bool"},
        5,
        "m:f",
        schema_text(pa.schema([("q", pa.int8())])),
    )
    read = Definition.from_json(first.to_json())
    assert read == first
    assert list(read.entity) == ["b", "a"]
    assert read.input_schema() == pa.schema([("q", pa.int8())])
    assert Definition.from_json(first.to_json()[:-1] + ', "later": 1}') == first
    wider = Definition("v", 1, first.entity, {"z": "int32", "x": "bool", "y": "double"}, 5)
    assert list(wider.merged_into(first).features) == ["y", "x", "z"]
    for other in ({"ttl": 6}, {"entity": {"a": "string", "b": "int64"}}, {"features": {"x": "double"}}):
        with pytest.raises(InvalidInput, match="give it another version"):
            Definition(**{**vars(first), **other}).merged_into(first)


def test_references_are_read_and_each_becomes_a_column_of_its_own() -> None:
    reference = parse_reference("clicks@12:ctr")
    assert (reference.key, reference.feature, reference.column, str(reference)) == (
        "clicks@12",
        "ctr",
        "ctr",
        "clicks@12:ctr",
    )
    renamed = parse_reference("clicks@1:ctr as rate")
    assert (renamed.column, str(renamed)) == ("rate", "clicks@1:ctr as rate")
    assert parse_reference(str(renamed)) == renamed
    assert [reference.column for reference in parse_references(["a@1:x", "b@1:x as y"], taken=["z"])] == [
        "x",
        "y",
    ]
    for wrong in (
        "clicks",
        "clicks@1",
        "clicks@:ctr",
        "clicks@0:ctr",
        "clicks@01:ctr",
        "clicks@1:",
        "a@1:b as",
        "a@1:b c",
        "ä@1:b",
        "",
        3,
    ):
        with pytest.raises(InvalidInput, match="give VIEW@VERSION:FEATURE"):
            parse_reference(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"the feature 'a@1:x' is named 'x', too; give b@1:x as b_x"):
        parse_references(["a@1:x", "b@1:x"])


def double(rows: pa.Table) -> pa.Table:
    return pa.table({"twice": [None if value is None else 2 * value for value in rows["x"].to_pylist()]})


def test_a_request_is_transformed_by_the_function_that_made_the_features() -> None:
    schema = pa.schema([("x", pa.float64()), ("other", pa.string())])
    path = f"{__name__}:double"
    definition = Definition("v", 1, {"user": "int64"}, {"twice": "double"}, None, path, schema_text(schema))
    answer = RequestTransform(definition)
    assert answer({"x": 1.5}) == {"twice": 3.0}
    assert answer({}) == {"twice": None}
    with pytest.raises(InvalidInput, match=r"y is not accepted: the source of v@1 has \['x', 'other'\]"):
        answer({"y": 1})
    with pytest.raises(InvalidInput, match="are not accepted by v@1"):
        answer({"x": "much"})
    with pytest.raises(InvalidInput, match="has no transform: its features are looked up"):
        RequestTransform(Definition("v", 1, {"user": "int64"}, {"twice": "double"}))


@pytest.mark.parametrize(
    ("column", "kind", "accepted"),
    [
        (pa.array([1], pa.int32()), "int64", True),
        (pa.array([1], pa.uint32()), "int64", True),
        (pa.array([1], pa.int64()), "int32", True),
        (pa.array([2**31]), "int32", False),
        (pa.array([2**63], pa.uint64()), "int64", False),
        (pa.array([1], pa.int64()), "double", True),
        (pa.array([2**53 + 1], pa.int64()), "double", False),
        (pa.array([1.0, 2.0]), "int64", True),
        (pa.array([1.5], pa.float32()), "double", True),
        (pa.array([1.5], pa.float64()), "float", False),
        (pa.array(["a"]).dictionary_encode(), "string", True),
        (pa.array(["a"], pa.large_string()), "string", True),
        (pa.array(["a"]), "binary", False),
        (pa.array([b"a"], pa.large_binary()), "binary", True),
        (pa.nulls(1), "bool", True),
        (pa.array([1]), "bool", False),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), "timestamp", False),
        (pa.array([1], pa.timestamp("s", "Asia/Tokyo")), "timestamp", True),
        (pa.array([1], pa.timestamp("ns", "UTC")), "timestamp", False),  # a nanosecond would be lost
    ],
)
def test_a_column_is_taken_as_its_declared_type_where_no_value_changes(
    column: pa.Array, kind: str, accepted: bool
) -> None:
    definition = Definition("v", 1, {"user": "int64"}, {"x": kind})
    rows = pa.table({"x": column})
    if accepted:
        features = features_of(definition, None, rows)
        assert features.schema.field("x").type == arrow_type(kind)
        assert features["x"].null_count == column.null_count
    else:
        with pytest.raises(InvalidInput, match="x"):
            features_of(definition, None, rows)


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        ("double", pa.array([Decimal("10.25"), None], pa.decimal128(12, 2)), [10.25, None]),
        ("double", pa.array([Decimal("0.1")], pa.decimal32(5, 1)), [0.1]),
        ("double", pa.array([Decimal(7)], pa.decimal128(20, 0)), [7.0]),
        ("double", pa.array([Decimal(10**20)], pa.decimal256(76, 0)), [1e20]),
        ("double", pa.array([Decimal("-0.000001")], pa.decimal128(18, 6)).dictionary_encode(), [-0.000001]),
        ("float", pa.array([Decimal("0.1")], pa.decimal128(38, 10)), [float(np.float32(0.1))]),
        (
            "int64",
            pa.array([Decimal(2**63 - 1), Decimal(-(2**63))], pa.decimal128(38, 0)),
            [2**63 - 1, -(2**63)],
        ),
        ("int64", pa.array([Decimal("3.00"), None], pa.decimal128(12, 2)), [3, None]),
        ("int32", pa.array([Decimal(-(2**31))], pa.decimal128(12, 0)), [-(2**31)]),
        ("int64", pa.array([], pa.decimal128(12, 2)), []),
    ],
)
def test_a_decimal_is_taken_where_the_declared_type_holds_it(
    kind: str, column: pa.Array, values: list[Any]
) -> None:
    taken = features_of(Definition("v", 1, {"user": "int64"}, {"x": kind}), None, pa.table({"x": column}))
    assert taken.schema == pa.schema([("x", arrow_type(kind))])
    assert taken["x"].to_pylist() == values


NAIVE = pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("kind", "column", "why", "remedy"),
    [
        (
            "double",
            pa.array([Decimal("0.1234567890123456789")]),
            "it has 0.1234567890123456789, which no double is",
            "to a text",
        ),
        (
            "double",
            pa.array([Decimal(2**53 + 1)]),
            "it has 9007199254740993, which no double is",
            "declare a type that holds it",
        ),
        (
            "float",
            pa.array([Decimal(2**24 + 1)]),
            "it has 16777217, which no float is",
            "declare a type that holds it",
        ),
        (
            "int64",
            pa.array([Decimal("2.5")]),
            "it has 2.5, which no int64 is",
            "declare a type that holds it",
        ),
        (
            "int64",
            pa.array([Decimal(2**63)]),
            "it has 9223372036854775808, which no int64 is",
            "cast it in the source or in a transform",
        ),
        (
            "int32",
            pa.array([Decimal(2**31)]),
            "it has 2147483648, which no int32 is",
            "declare a type that holds it",
        ),
        (
            "int64",
            pa.array([2**63], pa.uint64()),
            "9223372036854775808 not in range",
            "declare a type that holds it",
        ),
        (
            "string",
            pa.array([Decimal("2.5")]),
            "as decimal128(2, 1), which",
            "transform to string, or declare it double",
        ),
        ("string", pa.array([7], pa.int8()), "as int8, which", "transform to string, or declare it int64"),
        ("float", pa.array([0.5]), "as double, which", "transform to float, or declare it double"),
        (
            "int64",
            pa.array(["7"]).dictionary_encode(),
            "as dictionary<",
            "transform to int64, or declare it string",
        ),
        ("double", pa.array([True]), "as bool, which", "transform to double, or declare it bool"),
        (
            "timestamp",
            pa.array([date(2026, 1, 1)]),
            "as date32[day], which",
            "transform to timestamp[us, tz=UTC]",
        ),
        (
            "timestamp",
            NAIVE,
            "as timestamp[us], which",
            "which time zone it is in: pyarrow.compute.assume_timezone(column, 'UTC')",
        ),
        (
            "timestamp",
            pa.array([1], pa.timestamp("ns", "UTC")),
            "would lose data",
            "floor_temporal(column, unit='microsecond')",
        ),
        (
            "binary",
            pa.array([[1]]),
            "as list<item: int64>, which",
            "a list is kept as one column for each value",
        ),
    ],
)
def test_what_the_declared_type_does_not_hold_is_refused_with_the_way(
    kind: str, column: pa.Array, why: str, remedy: str
) -> None:
    definition = Definition("v", 1, {"user": "int64"}, {"x": kind})
    with pytest.raises(
        InvalidInput, match=rf"gives x as .*which the schema declares as {kind}.*{re.escape(remedy)}"
    ) as refused:
        features_of(definition, None, pa.table({"x": column}))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "column",
    [
        pc.assume_timezone(NAIVE, "UTC"),
        pc.floor_temporal(pa.array([1], pa.timestamp("ns", "UTC")), unit="microsecond"),
    ],
)
def test_what_a_refused_time_is_told_to_do_is_taken(column: pa.Array) -> None:
    taken = features_of(
        Definition("v", 1, {"user": "int64"}, {"x": "timestamp"}), None, pa.table({"x": column})
    )
    assert taken["x"].null_count == 0


def test_nan_and_null_are_the_same_alone_and_among_others() -> None:
    definition = Definition("v", 1, {"user": "int64"}, {"twice": "double"}, None, f"{__name__}:double")
    rows = pa.table({"x": [math.nan, None, -0.0]})
    check_row_by_row(definition, double, rows, features_of(definition, double, rows))
    check_row_by_row(definition, double, rows.slice(0, 0), features_of(definition, double, rows).slice(0, 0))


def test_microseconds_of_a_moment_are_exact() -> None:
    assert micros(datetime(1970, 1, 1, 0, 0, 0, 1, UTC)) == 1
    assert micros(datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)) == 253_402_300_799_999_999
