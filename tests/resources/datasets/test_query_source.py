"""Queries as sources."""

import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets import query_source
from resources.datasets.snapshots import take_snapshot
from tests.backends import CHECKOUT
from tests.resources.datasets.specs import ids, spec
from tests.resources.datasets.tables import numbers, write


def test_a_query_is_a_source_in_its_order(tmp_path: Path) -> None:
    write("parquet", tmp_path / "raw.parquet", numbers(30_000))
    assert ids(
        {"sql": f"SELECT * FROM read_parquet('{tmp_path}/raw.parquet') WHERE id % 2 = 0 ORDER BY id DESC"}
    ) == list(range(29_998, -1, -2))
    for query, says in (
        ("DROP TABLE a", "give one SELECT"),
        ("SELECT 1; SELECT 2", "give one SELECT"),
        ("SELECT nothing", "nothing"),
    ):
        with pytest.raises(InvalidInput, match=f"dataset.source.sql = '{query}' is not accepted: .*{says}"):
            ids({"sql": query})


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("sum(id)", 435),
        ("sum(id % 2 = 0)", 15),
        ("sum(0.1)", 3.0),
        ("0.5 * max(id)", 14.5),
        ("avg(id)", 14.5),
        ("count(*)", 30),
        ("1.5::DECIMAL(4, 2)", 1.5),
        ("sum(CASE WHEN id < 0 THEN id END)", None),
        ("18446744073709551615::UBIGINT", 2**64 - 1),
        ("5::UHUGEINT", 5),
        ("9007199254740993::UHUGEINT", 2**53 + 1),
        ("[{'a': 9007199254740993::UHUGEINT}, NULL]", [{"a": 2**53 + 1}, None]),
        ("'12:00:00'::TIME", datetime.time(12)),
        ("[sum(id)]", [435]),
        ("{'a': 0.5 * max(id)}", {"a": 14.5}),
    ],
)
def test_what_a_query_computes_are_numbers_to_train_on(
    tmp_path: Path, backend: Backend, select: str, value: Any
) -> None:
    write("parquet", tmp_path / "raw.parquet", numbers(30))
    query = (
        f"SELECT range AS id, range % 2 AS label, (SELECT {select} FROM "
        f"read_parquet('{tmp_path}/raw.parquet') LIMIT 1) AS x FROM range(60)"
    )
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"sql": query}))
    rows = Dataset(backend.store, "points", snapshot.digest)
    assert rows.read()["x"].to_pylist() == [value] * 60
    if isinstance(value, int | float):
        assert next(iter(rows.loader("train", batch_size=4, columns=["x"])))["x"].dtype.kind in "iufO"


@pytest.mark.parametrize(
    ("select", "says"),
    [
        (
            "sum(9223372036854775807)",
            (
                "the column 'x' does not become int64: it has 276701161105643274210, which no int64 is; cast "
                "it in a query"
            ),
        ),
        ("(2::HUGEINT ** 63)::HUGEINT", "it has 9223372036854775808, which no int64 is"),
        (
            "12345678901234567.8",
            "the column 'x' does not become double: it has 12345678901234567.8, which no double is",
        ),
        ("0.1234567890123456789", "it has 0.1234567890123456789, which no double is"),
        ("[{'a': 12345678901234567890::HUGEINT}]", "it has 12345678901234567890, which no int64 is"),
        ("12345678901234567890::UHUGEINT", "it has 12345678901234567890, which no int64 is"),
        ("[12345678901234567890::UHUGEINT]", "it has 12345678901234567890, which no int64 is"),
        ("md5_number('a')", "it has [0-9]{39}, which no int64 is"),
    ],
)
def test_what_no_number_is_is_refused_when_the_snapshot_is_taken(
    tmp_path: Path, backend: Backend, select: str, says: str
) -> None:
    write("parquet", tmp_path / "raw.parquet", numbers(30))
    query = (
        f"SELECT range AS id, range % 2 AS label, (SELECT {select} FROM "
        f"read_parquet('{tmp_path}/raw.parquet') LIMIT 1) AS x FROM range(60)"
    )
    with pytest.raises(InvalidInput, match=says):
        take_snapshot(backend.store, backend.catalog, spec({"sql": query}))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_parquet('{raw}/*.parquet')",
        "SELECT * FROM '{raw}/*.parquet' ORDER BY id",
        (
            "WITH rows AS (FROM read_parquet(['{raw}/0.parquet', '{raw}/[1-9].parquet'], hive_partitioning = "
            "false)) SELECT * FROM rows"
        ),
        "SELECT * FROM read_parquet('{raw}/1.parquet') WHERE id NOT IN (SELECT id FROM '{raw}/**/0.parquet')",
    ],
)
def test_files_of_a_query_that_change_while_they_are_read_are_named(
    tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    raw = tmp_path / "raw"
    for number in range(2):
        write("parquet", raw / f"{number}.parquet", numbers(50, first=50 * number))
    source = spec({"sql": query.format(raw=raw)})
    original = query_source._read

    def changing(*arguments: Any) -> Iterator[pa.RecordBatch]:
        yield from original(*arguments)
        write("parquet", raw / "0.parquet", numbers(7))

    with monkeypatch.context() as patch:
        patch.setattr(query_source, "_read", changing)
        with pytest.raises(
            InvalidInput,
            match=r"dataset.source.sql is not accepted: .*raw/0.parquet'\] changed while it was read",
        ):
            take_snapshot(backend.store, backend.catalog, source)
    assert list(backend.store.files("shards")) == []
    assert take_snapshot(backend.store, backend.catalog, source).rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["", "to a full disk"])
def test_a_query_spills_to_the_temporary_disk_and_leaves_nothing(tmp_path: Path, full: bool) -> None:
    code = f"""
import os, resource, tempfile
from pathlib import Path
from resources.datasets import query_source
from resources.datasets.query_source import open_query

if {full}:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
query_source._MEMORY = "64MiB"
query = "SELECT i, repeat('x', 100) AS text FROM range(2_000_000) t(i) ORDER BY hash(i)"
(part,), *_ = open_query(query, "dataset.source")
rows = part.read()
first = next(rows).num_rows
spilled = any(Path(tempfile.gettempdir()).rglob("duckdb_temp*"))
print(first, spilled, os.listdir("."), flush=True)
rows.close()
print(list(Path(tempfile.gettempdir()).glob("halving-duckdb-*/*")))
"""
    (tmp_path / "here").mkdir()
    variables = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path / "here", env=variables
    )
    if full:
        assert "StoreError: the query dataset.source.sql failed: IO Error: " in done.stderr
    else:
        assert done.stdout.splitlines() == ["10000 True []", "[]"], done.stderr


def test_a_query_whose_texts_are_no_files_is_answered(tmp_path: Path, backend: Backend) -> None:
    (tmp_path / "rows.csv").write_text(
        "id/label\n" + "".join(f"{number}/{number % 3}\n" for number in range(99))
    )
    rows = f"read_csv('{tmp_path}/rows.csv', delim = '/', quote = '', header = true)"
    query = f"SELECT *, '{tmp_path}/*' AS text FROM {rows}, range(1) AS numbers"
    assert take_snapshot(backend.store, backend.catalog, spec({"sql": query})).rows == 99
