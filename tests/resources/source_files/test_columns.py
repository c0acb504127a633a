"""The columns of files unite, and rows cast to the union keep their values or are refused.

A refusal names both files and both types.
"""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from halving import InvalidInput
from resources.source_files.columns import Columns, bring_to_union, unite

FIELD = "dataset.source.files"
UTC = pa.timestamp("us", "UTC")


def _columns(**types: pa.DataType) -> Columns:
    return Columns(pa.schema(list(types.items())))


def _both(first: pa.DataType, second: pa.DataType, **options: Any) -> tuple[pa.DataType, pa.DataType]:
    """The union of a column's types in both orders of the files."""
    columns = [
        (file, Columns(pa.schema([("x", kind)]), **options))
        for file, kind in (("a.parquet", first), ("b.parquet", second))
    ]
    return unite(FIELD, columns).field("x").type, unite(FIELD, reversed(columns)).field("x").type


@pytest.mark.parametrize(
    ("first", "second", "union"),
    [
        (pa.int64(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int8(), pa.float16(), pa.float64()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint64(), pa.int64(), pa.uint64()),
        (pa.uint64(), pa.int8(), pa.uint64()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.float16(), pa.float32(), pa.float32()),
        (pa.null(), pa.string(), pa.string()),
        (pa.null(), UTC, UTC),
        (pa.null(), pa.bool_(), pa.bool_()),
        (pa.null(), pa.null(), pa.null()),
        (pa.list_(pa.null()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int64()), pa.large_list(pa.float64()), pa.large_list(pa.float64())),
        (pa.list_(pa.int64(), 2), pa.list_(pa.float64(), 2), pa.list_(pa.float64(), 2)),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (UTC, pa.timestamp("us", "Europe/Berlin"), UTC),
        (pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("us", "-03:00"), UTC),
        (
            pa.timestamp("ns", "Asia/Tokyo"),
            pa.timestamp("ns", "Asia/Tokyo"),
            pa.timestamp("ns", "Asia/Tokyo"),
        ),
        (pa.list_(UTC), pa.list_(pa.timestamp("ns", "Europe/Berlin")), pa.list_(pa.timestamp("ns", "UTC"))),
        (pa.duration("ms"), pa.duration("ns"), pa.duration("ns")),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.string_view(), pa.string(), pa.large_string()),
        (pa.binary(4), pa.large_binary(), pa.large_binary()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 2), pa.float64(), pa.float64()),
        (pa.decimal128(38, 0), pa.int32(), pa.int64()),
        (pa.decimal128(38, 0), pa.float32(), pa.float64()),
        (pa.decimal256(76, 0), pa.decimal256(76, 70), pa.float64()),
        (
            pa.struct({"a": pa.int64(), "b": pa.null()}),
            pa.struct({"b": pa.string(), "a": pa.float64()}),
            None,
        ),
    ],
)
def test_types_of_one_family_have_a_union_whichever_file_is_first(
    first: pa.DataType, second: pa.DataType, union: pa.DataType | None
) -> None:
    unions = _both(first, second)
    if union is not None:
        assert unions == (union, union)
    else:
        assert [{field.name: field.type for field in kind} for kind in unions] == [
            {"a": pa.float64(), "b": pa.string()}
        ] * 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.int64(), pa.string()),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us"), UTC),
        (pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")),
        (pa.date32(), pa.timestamp("s")),
        (pa.time32("s"), pa.int32()),
        (pa.list_(pa.int64(), 2), pa.list_(pa.int64(), 3)),
        (pa.list_(pa.int64(), 2), pa.list_(pa.int64())),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.int64()})),
        (pa.struct({"a": pa.int64()}), pa.int64()),
        (pa.decimal128(10, 2), pa.string()),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.float64())),
        (pa.opaque(pa.binary(), "bignum", "DuckDB"), pa.binary()),
    ],
)
def test_types_that_do_not_go_together_are_refused_with_both_files_and_both_types(
    first: pa.DataType, second: pa.DataType
) -> None:
    for earlier, later in ((first, second), (second, first)):
        with pytest.raises(InvalidInput) as refusal:
            unite(FIELD, [("a.parquet", _columns(x=earlier)), ("b.parquet", _columns(x=later))])
        assert (
            f"{FIELD} is not accepted: the column 'x' is {earlier} in a.parquet and {later} in b.parquet"
            in str(refusal.value)
        )


@pytest.mark.parametrize(
    ("kinds", "union"),
    [
        ([pa.int64(), pa.string()], pa.string()),
        ([pa.float64(), pa.bool_(), pa.null()], pa.string()),
        ([pa.date32(), pa.int64()], pa.string()),
        ([pa.date32(), pa.timestamp("s")], pa.timestamp("s")),
        ([pa.date32(), pa.timestamp("ns"), pa.timestamp("s")], pa.timestamp("ns")),
        ([pa.timestamp("s"), pa.timestamp("s", "UTC")], pa.string()),
        ([pa.date32(), pa.timestamp("s"), pa.bool_()], pa.string()),
        ([pa.int64(), pa.uint64(), pa.float64()], pa.float64()),
        ([pa.time32("s"), pa.string()], pa.string()),
    ],
)
def test_files_of_texts_unite_as_the_rows_of_one_do_and_as_texts_with_no_others(
    kinds: list[pa.DataType], union: pa.DataType
) -> None:
    files = [
        (f"{number}.csv", replace(_columns(x=kind), texts=frozenset("x")))
        for number, kind in enumerate(kinds)
    ]
    is_of_texts = union not in (pa.float64(),)
    for order in permutations(files):
        assert unite(FIELD, order).field("x").type == union
        for place in range(len(order) + 1):
            with_other = [*order[:place], ("other.parquet", _columns(x=union)), *order[place:]]
            if is_of_texts:
                with pytest.raises(
                    InvalidInput, match=r"the column 'x' is .+ in .+ and .+ in .+; write it with one type"
                ):
                    unite(FIELD, with_other)
            else:
                assert unite(FIELD, with_other).field("x").type == union


def test_whole_numbers_that_no_double_is_are_texts_beside_texts() -> None:
    large = Columns(pa.schema({"x": pa.int64()}), frozenset("x"), texts=frozenset("x"))
    files = [("a", large), ("b", replace(_columns(x=pa.float64()), texts=frozenset("x")))]
    with pytest.raises(
        InvalidInput, match=r"the column 'x' has whole numbers beyond 2..53 in a and fractions in b"
    ):
        unite(FIELD, files)
    assert (
        unite(FIELD, [*files, ("c", replace(_columns(x=pa.string()), texts=frozenset("x")))]).field("x").type
        == pa.string()
    )


def test_the_file_that_gave_a_column_its_type_is_the_one_that_is_named() -> None:
    files = [
        ("a", _columns(x=pa.null())),
        ("b", _columns(x=pa.int64())),
        ("c", _columns(x=pa.int64())),
        ("d", _columns(x=pa.string())),
    ]
    with pytest.raises(InvalidInput, match="the column 'x' is int64 in b and string in d"):
        unite(FIELD, files)


def test_columns_are_in_the_order_of_the_first_file() -> None:
    files = [("a", _columns(b=pa.int64(), a=pa.string())), ("b", _columns(a=pa.string(), b=pa.int64()))]
    assert unite(FIELD, files).names == ["b", "a"]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (("a", "b"), ("a",), "two has no column 'b', which one has; give files of the same columns"),
        (("a",), ("a", "b"), "one has no column 'b', which two has; give files of the same columns"),
        (
            ("a", "b"),
            ("a", "c"),
            r"two has no column 'b', which one has \(and has \['c'\] more\); give files",
        ),
        (("a", "a"), ("a",), "one has 2 columns of the name 'a'"),
    ],
)
def test_files_of_other_columns_are_refused_with_both_names(
    first: tuple[str, ...], second: tuple[str, ...], says: str
) -> None:
    files = [
        (file, Columns(pa.schema([(name, pa.int64()) for name in names])))
        for file, names in (("one", first), ("two", second))
    ]
    with pytest.raises(InvalidInput, match=says):
        unite(FIELD, files)


def test_keys_that_json_files_lack_are_null() -> None:
    first = Columns(pa.schema({"a": pa.int64(), "s": pa.struct({"x": pa.int64()})}), optional=True)
    second = Columns(pa.schema({"s": pa.struct({"y": pa.string()}), "b": pa.bool_()}), optional=True)
    wanted = unite(FIELD, [("one", first), ("two", second)])
    rows = pa.RecordBatch.from_pylist([{"s": {"y": "q"}, "b": True}], second.types)
    assert bring_to_union(rows, wanted, {}, "two", field=FIELD, optional=True).to_pylist() == [
        {"a": None, "s": {"x": None, "y": "q"}, "b": True}
    ]
    with pytest.raises(InvalidInput, match="two has the columns"):
        bring_to_union(rows, wanted, {}, "two", field=FIELD)


def test_a_file_without_rows_has_no_say() -> None:
    empty = Columns(pa.schema([]), optional=True)
    files = [
        ("none", empty),
        ("one", _columns(a=pa.int64(), b=pa.string())),
        ("nothing", empty),
        ("two", _columns(a=pa.int64())),
    ]
    assert unite(FIELD, files[:3]) == files[1][1].types
    with pytest.raises(InvalidInput, match="two has no column 'b', which one has"):
        unite(FIELD, files)
    with pytest.raises(InvalidInput, match="two has no column 'b', which one has"):
        unite(FIELD, [files[3], files[0], ("one", _columns(a=pa.int64(), b=pa.string()))])


def test_large_whole_numbers_beside_fractions_are_refused() -> None:
    large = Columns(pa.schema({"x": pa.int64()}), large=frozenset({"x"}))
    small = _columns(x=pa.float64())
    for files in ([("a", large), ("b", small)], [("b", small), ("a", large)]):
        with pytest.raises(
            InvalidInput, match=r"the column 'x' has whole numbers beyond 2\*\*53 in a and fractions in b"
        ):
            unite(FIELD, files)
    assert unite(FIELD, [("a", large), ("b", _columns(x=pa.int64()))]).field("x").type == pa.int64()


def test_a_column_of_the_path_is_a_constant_where_the_file_has_none() -> None:
    wanted = pa.schema({"x": pa.float64(), "country": pa.string(), "year": pa.int64()})
    rows = pa.record_batch({"country": ["fr", "fr"], "x": pa.array([1, None])})
    made = bring_to_union(
        rows, wanted, {"country": pa.scalar("de"), "year": pa.scalar(2024)}, "a", field=FIELD
    )
    assert made.to_pylist() == [
        {"x": 1.0, "country": "fr", "year": 2024},
        {"x": None, "country": "fr", "year": 2024},
    ]
    of_path = {"country": pa.scalar(None, pa.string()), "year": pa.scalar(1)}
    assert bring_to_union(rows.select(["x"]), wanted, of_path, "a", field=FIELD)["country"].null_count == 2
