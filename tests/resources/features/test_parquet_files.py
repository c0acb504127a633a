"""A view's files are one relation, with the columns and types that a dataset of them has."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput, Store
from resources.features.materialize import materialize_all
from resources.features.parquet_files import select_parquet
from resources.source_files.listing import find_files
from tests.resources.features.histories import Row, join, labels, table, view

NULL = "__HIVE_DEFAULT_PARTITION__"
DAY = 1440.0


def write(folder: Path, columns_of_paths: dict[str, dict[str, Any]]) -> None:
    """Write files with a column ``x``, the number of the file, and these."""
    for number, (path, columns) in enumerate(columns_of_paths.items()):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": pa.array([number]), **columns}), folder / path)


def select(pattern: str) -> duckdb.DuckDBPyRelation:
    """The rows of a view's files, in the order of ``x``."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    query = select_parquet(connection, "source.files", find_files("source.files", pattern))
    connection.execute(f"CREATE TABLE there AS {query}")
    return connection.sql("FROM there ORDER BY x")


def column(rows: duckdb.DuckDBPyRelation, name: str) -> tuple[str, list[Any]]:
    """A column's type and values."""
    return str(rows.types[rows.columns.index(name)]), [
        row[0] for row in rows.select(duckdb.ColumnExpression(name)).fetchall()
    ]


@pytest.mark.parametrize("pattern", ["", "/**/*.parquet", "/*/*.parquet"])
@pytest.mark.parametrize(
    ("folders", "kind", "values"),
    [
        (["p=de", "p=fr"], "VARCHAR", ["de", "fr"]),
        (["p=1", "p=10"], "BIGINT", [1, 10]),
        (["p=01", "p=10"], "VARCHAR", ["01", "10"]),
        (["p=1", "p=x"], "VARCHAR", ["1", "x"]),
        (["p=0.1", "p=2"], "DOUBLE", [0.1, 2.0]),
        (["p=1.1", "p=1.10"], "VARCHAR", ["1.1", "1.10"]),
        (["p=false", "p=true"], "BOOLEAN", [False, True]),
        (["p=2024-01-02", "p=2024-02-29"], "DATE", [date(2024, 1, 2), date(2024, 2, 29)]),
        (["p=2024-01-02 03%3A04%3A05"], "TIMESTAMP_S", [datetime(2024, 1, 2, 3, 4, 5)]),
        (["p=12345678901234567890", "p=7"], "UBIGINT", [12345678901234567890, 7]),
        ([f"p={NULL}", "p=1"], "BIGINT", [None, 1]),
        ([f"p={NULL}", "p=x"], "VARCHAR", [None, "x"]),
        ([f"p={NULL}"], '"NULL"', [None]),
        (["p=NA", "p="], "VARCHAR", ["NA", ""]),
        (["p=it's a%20b", "p=[x]%2F*"], "VARCHAR", ["it's a b", "[x]/*"]),
    ],
)
def test_the_names_of_folders_are_columns(
    tmp_path: Path, folders: list[str], kind: str, values: list[Any], pattern: str
) -> None:
    write(tmp_path, {f"{folder}/x.parquet": {} for folder in folders})
    assert column(select(f"{tmp_path}{pattern}"), "p") == (kind, values)


@pytest.mark.parametrize(
    ("columns_of_paths", "kind", "values"),
    [
        ({"p=de/x.parquet": {"p": ["own"]}, "p=fr/x.parquet": {"p": [None]}}, "VARCHAR", ["own", None]),
        ({"p=de/x.parquet": {"p": ["own"]}, "p=fr/x.parquet": {"p": pa.nulls(1)}}, "VARCHAR", ["own", None]),
        ({"p=de/x.parquet": {"p": ["own"]}, "p=fr/x.parquet": {}}, "VARCHAR", ["own", "fr"]),
        ({"p=1.5/x.parquet": {}, "p=2/x.parquet": {"p": [3]}}, "DOUBLE", [1.5, 3.0]),
        ({"p=1/x.parquet": {}, "p=2/x.parquet": {"p": [0.5]}}, "DOUBLE", [1.0, 0.5]),
        ({"p=1/x.parquet": {"y": [1]}, "p=2/x.parquet": {"y": [0.5]}}, "BIGINT", [1, 2]),
        ({"p=1/q=a/x.parquet": {"q": ["b"]}, "q=c/p=2/x.parquet": {}}, "BIGINT", [1, 2]),
    ],
)
def test_a_column_of_the_file_comes_before_its_folders(
    tmp_path: Path, columns_of_paths: dict[str, dict[str, Any]], kind: str, values: list[Any]
) -> None:
    write(tmp_path, columns_of_paths)
    assert column(select(str(tmp_path)), "p") == (kind, values)


def test_files_are_told_apart_whatever_their_paths_and_columns_are_called(tmp_path: Path) -> None:
    names = [
        "p=1/x.parquet",
        "p=2/x.parquet",
        "p=3/it's [1] #é%41?.parquet",
        "p=4/[x].parquet",
        "p=5/x*.parquet",
        "p=5/x1.parquet",
    ]
    write(
        tmp_path / "raw",
        {name: {"path": ["own"], "Path_": [1], "filename": ["f"], "file_index": [9]} for name in names},
    )
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "raw" / "p=1" / "link").symlink_to(tmp_path / "elsewhere" / "folder")
    (tmp_path / "elsewhere" / "raw").symlink_to(tmp_path / "raw")
    for pattern in ("raw", "elsewhere/../raw/**/*.parquet", "raw/p=1/link/../raw/*/*.parquet"):
        rows = select(f"{tmp_path}/{pattern}")
        assert column(rows, "p")[1] == [1, 2, 3, 4, 5, 5]
        assert rows.columns == ["x", "path", "Path_", "filename", "file_index", "p"]


@pytest.mark.parametrize(
    ("columns_of_paths", "message"),
    [
        (
            {"p=de/x.parquet": {"p": [1]}, "p=fr/x.parquet": {}},
            r"'p' is int64 in .*de/x.parquet and string in .*; write it with one type",
        ),
        (
            {"p=1.5/x.parquet": {}, "p=2/x.parquet": {"p": [2**53 + 1]}},
            r"does not hold 9007199254740993; write it with one type",
        ),
        (
            {"p=1/x.parquet": {}, "q=1/x.parquet": {}},
            r"p=1/x.parquet is in folders of p=.* in those of q=…; give files .* the same names$",
        ),
        ({"p=1/p=1/x.parquet": {}}, r"is in 2 folders of p=…; give each its own name"),
        (
            {"P=1/x.parquet": {"p": [1]}},
            r"P=1/x.parquet has a column 'p' and .* a column 'P'; write the name in one way",
        ),
        (
            {"x.parquet": {"a": [1], "A": [2]}},
            r"x.parquet has a column 'a' and .*x.parquet a column 'A'; write the name in one way",
        ),
        (
            {"x.parquet": {"d": pa.array([Decimal("0.123")], pa.decimal256(40, 3))}},
            (
                r"its column 'd' is decimal256\(40, 3\); write it as a decimal of at most 38 digits, a "
                r"double "
                r"or a text"
            ),
        ),
    ],
)
def test_what_is_no_one_relation_is_refused_with_the_way(
    tmp_path: Path, columns_of_paths: dict[str, dict[str, Any]], message: str
) -> None:
    write(tmp_path, columns_of_paths)
    with pytest.raises((InvalidInput, duckdb.Error), match=message):
        select(str(tmp_path))


@pytest.mark.parametrize(
    ("kinds", "kind", "values"),
    [
        ([pa.decimal128(12, 2), pa.decimal128(30, 0)], "DECIMAL(32,2)", [Decimal("0.00"), Decimal("1.00")]),
        ([pa.decimal128(38, 20), pa.decimal128(38, 0)], "DOUBLE", [0.0, 1.0]),
        ([pa.decimal128(20, 0), pa.int64()], "BIGINT", [0, 1]),
        ([pa.float64(), pa.decimal32(5, 1)], "DOUBLE", [0.0, 1.0]),
        ([pa.decimal256(12, 2), pa.decimal64(12, 2)], "DECIMAL(12,2)", [Decimal("0.00"), Decimal("1.00")]),
    ],
)
def test_decimals_of_files_have_a_type_that_holds_both(
    tmp_path: Path, kinds: list[pa.DataType], kind: str, values: list[Any]
) -> None:
    write(
        tmp_path,
        {
            f"{number}.parquet": {
                "d": pa.array([Decimal(number) if pa.types.is_decimal(each) else number], each)
            }
            for number, each in enumerate(kinds)
        },
    )
    assert column(select(str(tmp_path)), "d") == (kind, values)


def test_a_view_takes_what_folders_and_decimals_say_wherever_files_are(
    any_store: Store, tmp_path: Path
) -> None:
    """As features and as an entity."""
    countries = ("de", "fr", NULL)
    for number, country in enumerate(countries):
        rows = table(
            [Row(1, number * DAY + 10, number * DAY + 10, number)], pa.decimal128(12, 2)
        ).drop_columns(["user"])
        pq.write_table(rows, tmp_path / "rows.parquet")
        any_store.create(f"raw/country={country}/user=7/{number}.parquet", tmp_path / "rows.parquet")
    root, mark, options = any_store.root.partition("?")
    shape = view(
        source={"files": f"{root}/raw/**/*.parquet{mark}{options}"},
        schema={"value": "double", "country": "string"},
    )
    done = materialize_all(any_store, shape)
    assert not done.failed
    label_rows = labels([(7, number * DAY + 20) for number in range(len(countries))])
    joined = join(any_store, label_rows, ["clicks@1:value", "clicks@1:country"], shape)
    assert joined["value"].to_pylist() == [0.0, 1.0, 2.0]
    assert joined["country"].to_pylist() == ["de", "fr", None]


def test_a_folder_may_say_when_its_rows_happened(tmp_path: Path) -> None:
    for day in (1, 2):
        folder = tmp_path / "raw" / f"ts=2026-03-0{day} 06%3A00%3A00"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"user": [day], "value": [1.0]}), folder / "x.parquet")
    shape = view(source={"files": str(tmp_path / "raw")}, created=None, delay="1h", timezone="UTC")
    done = materialize_all(Store(tmp_path / "store"), shape)
    first = int(datetime(2026, 3, 1, 6, tzinfo=UTC).timestamp() * 10**6)
    assert [day.partition.first for day in done.days.values()] == [
        first,
        first + timedelta(days=1) // timedelta(microseconds=1),
    ]
