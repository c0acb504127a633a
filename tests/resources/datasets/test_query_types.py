"""Each DuckDB type in a SQL source becomes the same value, or is refused with its column and advice."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from halving import InvalidInput
from resources.datasets.canonical import canonical, canonical_schema
from resources.datasets.query_source import open_query

DAY = datetime.date(2024, 1, 2)
INSTANT = datetime.datetime(2024, 1, 2, 3, 4, 5)


def column(select: str) -> pa.Array:
    """The column of a snapshot that is taken of this expression."""
    parts, *_ = open_query(f"SELECT {select} AS x", "dataset.source")
    rows = pa.Table.from_batches(list(parts[0].read())).combine_chunks().to_batches()[0]
    return canonical(rows, canonical_schema(rows.schema)).column(0)


@pytest.mark.parametrize(
    ("select", "value", "kind"),
    [
        ("1::UTINYINT", 1, "uint8"),
        ("1.5::FLOAT", 1.5, "float"),
        ("'ab'::BLOB", b"ab", "binary"),
        ("'12:00:00.000001'::TIME", datetime.time(12, microsecond=1), "time64[us]"),
        ("DATE '2024-01-02'", DAY, "date32[day]"),
        ("'2024-01-02 03:04:05'::TIMESTAMP_S", INSTANT, "timestamp[s]"),
        ("'2024-01-02 03:04:05'::TIMESTAMP_MS", INSTANT, "timestamp[ms]"),
        ("'2024-01-02 03:04:05'::TIMESTAMP", INSTANT, "timestamp[us]"),
        (
            "'2024-01-02 04:04:05+01'::TIMESTAMPTZ",
            INSTANT.replace(tzinfo=datetime.UTC),
            "timestamp[us, tz=UTC]",
        ),
        ("'123e4567-e89b-12d3-a456-426614174000'::UUID", "123e4567-e89b-12d3-a456-426614174000", "string"),
        ("'UHUGEINT'::ENUM('bit', 'UHUGEINT')", "UHUGEINT", "string"),
        ("""'{"a": 1}'::JSON""", '{"a": 1}', "string"),
        ("[1, 2]::INTEGER[2]", [1, 2], None),
        (
            "{'bit': 1, 'UHUGEINT': 'map', 'a b': [5::UHUGEINT]}",
            {"bit": 1, "UHUGEINT": "map", "a b": [5]},
            None,
        ),
        ("[5::UHUGEINT, NULL]::UHUGEINT[2]", [5, None], "fixed_size_list<item: int64>[2]"),
        ("'101'::BIT::VARCHAR", "101", "string"),
        (
            "123456789012345678901234567890123456789012::BIGNUM::VARCHAR",
            "123456789012345678901234567890123456789012",
            "string",
        ),
    ],
)
def test_a_value_is_what_it_was(select: str, value: Any, kind: str | None) -> None:
    held = column(select)
    assert held.to_pylist() == [value]
    assert kind is None or str(held.type) == kind


@pytest.mark.parametrize(
    ("select", "says"),
    [
        ("'101'::BIT", "its column 'x' is BIT, and no BIT can be held; cast it to a text"),
        ("[{'a': '101'::BIT}]", r"its column 'x' is STRUCT\(.*\)\[\], and no BIT can be held"),
        ("5::BIGNUM", "its column 'x' is BIGNUM, .*; cast it to a text"),
        ("'POINT(1 2)'::GEOMETRY", "its column 'x' is GEOMETRY, .*; cast it to a text, or to numbers"),
        ("1::VARIANT", "its column 'x' is VARIANT, .*; cast it to a text"),
        ("INTERVAL 1 MONTH", "its column 'x' is INTERVAL, .*; give it as a number"),
        ("MAP {'a': 1}", r"its column 'x' is MAP\(VARCHAR, INTEGER\), .*; give its keys as columns"),
        ("[MAP {'a': '101'::BIT}]", "its column 'x' is .*, and no MAP can be held"),
        ("union_value(k := 1)", r"its column 'x' is UNION\(k INTEGER\), .*; give its members as columns"),
        (
            "'12:00:00+02'::TIMETZ",
            (
                "its column 'x' is TIME WITH TIME ZONE, .*; its zone would be lost; cast it to TIME, or to a "
                "text"
            ),
        ),
        (
            "[{'a': '12:00:00+02'::TIMETZ}]",
            "its column 'x' is .*TIME WITH TIME ZONE.*, and no TIME WITH TIME ZONE can be held",
        ),
        ("[{'a': '24:00:00'::TIME}]", "its column 'x' has 24:00:00, which a snapshot cannot hold"),
        ("'24:00:00'::TIME_NS", "its column 'x' has 24:00:00"),
        ("NULL", "its column 'x' has the type null"),
        *(
            (
                f"'{sign}infinity'::{kind}",
                "its column 'x' has infinity, which a snapshot cannot hold; .*nullif",
            )
            for sign in ("", "-")
            for kind in ("DATE", "TIMESTAMP")
        ),
        *(
            (f"'infinity'::{kind}", "its column 'x' has infinity")
            for kind in ("TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
        ),
        ("unnest(['2024-01-02'::DATE, NULL, 'infinity'::DATE])", "its column 'x' has infinity"),
        ("[{'a': ['infinity'::DATE]::DATE[1]}]", "its column 'x' has infinity"),
    ],
)
def test_what_cannot_be_held_is_refused_by_column_with_the_remedy(select: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=f"{says}"):
        column(select)


@pytest.mark.parametrize(
    "select",
    [
        "'290309-12-22 (BC)'::TIMESTAMP",
        "'5877642-06-25 (BC)'::DATE",
        "'294247-01-10'::TIMESTAMP",
        "'5881580-07-10'::DATE",
    ],
)
def test_the_last_times_that_are_finite_are_held(select: str) -> None:
    column(select)
