"""Rows come from files, folders, queries and lake tables unchanged, in a fixed order and little memory."""

import datetime
import io
import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, dataset, fs

from halving import Dataset, InvalidInput, NotFound, Store, StoreError
from halving.data.referenced_files import referenced_file
from halving.errors import StoreUnavailable
from resources.backend import Backend
from resources.datasets import lake_sources, query_source, sources
from resources.datasets.canonical import BATCH_BYTES
from resources.datasets.referenced_files import verify_files
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import open_source, slices
from resources.datasets.united_parts import read_parts, unite_columns
from resources.source_files.listing import find_files
from resources.sweep_spec.dataset import DatasetSource
from tests.backends import CHECKOUT
from tests.s3 import S3, Gate


def spec(source: Any, **changes: Any) -> DatasetSource:
    return DatasetSource.model_validate({"name": "points", "source": source, "target": "label", **changes})


def numbers(rows: int, first: int = 0) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table({"id": ids, "text": [f"number {number}" for number in ids], "label": ids % 3})


def ids(source: Any) -> list[int]:
    """The ids of all rows of a source, in order."""
    return [
        number
        for part in open_source(spec(source)).parts
        for rows in part.read()
        for number in rows["id"].to_pylist()
    ]


def write(form: str, path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "csv":
        csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_files_of_each_format_are_read_in_the_order_of_their_names(
    tmp_path: Path, backend: Backend, form: str, ending: str
) -> None:
    for number in (2, 0, 1):
        write(form, tmp_path / "raw" / f"{number}.{ending}", numbers(50, first=50 * number))
    for pattern in (str(tmp_path / "raw"), f"{tmp_path}/raw/*.{ending}", f"{tmp_path}/**/*.{ending}"):
        assert ids({"files": pattern}) == list(range(150))
    picked = [f"{tmp_path}/raw/1.{ending}", f"{tmp_path}/raw/[0]*"]
    assert ids({"files": picked}) == [*range(50, 100), *range(50)]
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")}))
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows.to_pydict() == numbers(150).to_pydict()
    assert snapshot.source == f"files {tmp_path}/raw"


def within(root: str, path: str) -> str:
    """The address of a path within a store."""
    base, mark, options = root.partition("?")
    return f"{base}/{path}{mark}{options}"


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_files_and_folders_on_an_object_store_are_read(
    any_store: Store, tmp_path: Path, form: str, ending: str
) -> None:
    for number in range(3):
        write(form, tmp_path / "file", numbers(10, first=10 * number))
        any_store.create(f"raw/{number}.{ending}", tmp_path / "file")
    assert ids({"files": within(any_store.root, f"raw/*.{ending}")}) == list(range(30))
    opened = open_source(spec({"folder": within(any_store.root, "raw")}))
    rows = [row for part in opened.parts for batch in part.read() for row in batch.to_pylist()]
    assert [row["path"] for row in rows] == [f"{number}.{ending}" for number in range(3)]
    assert rows[2]["content"] == (tmp_path / "file").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "folder", "one file"])
def test_an_object_store_that_is_away_while_a_source_is_listed_is_named_in_the_error(
    s3: S3, backend: Backend, kind: str
) -> None:
    gate = Gate((s3.host, s3.port))
    name = secrets.token_hex(6)
    store = Store(s3.root(name))
    for number in range(3):
        buffer = io.BytesIO()
        csv.write_csv(numbers(100, first=100 * number), buffer)
        store.create(f"raw/{number}.csv", buffer.getvalue())
    pattern = {"files": "raw/*.csv", "folder": "raw", "one file": "raw/0.csv"}[kind]
    address = within(store.root.replace(s3.endpoint, gate.endpoint), pattern)
    source = spec({"folder": address}, target="label") if kind == "folder" else spec({"files": address})
    gate.shut()
    with pytest.raises(StoreUnavailable, match=r"^dataset.source.\w+ = 's3://.*' cannot be (listed|read): "):
        take_snapshot(backend.store, backend.catalog, source)
    gate.open()
    if kind != "folder":  # Three files do not fill every split.
        assert take_snapshot(backend.store, backend.catalog, source).rows == (
            100 if kind == "one file" else 300
        )


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
@pytest.mark.parametrize("pattern", ["", "/**/*.*", "/*/*/*.*"], ids=["folder", "below", "levels"])
def test_the_names_of_partitions_are_columns_of_every_format(
    tmp_path: Path, backend: Backend, form: str, ending: str, pattern: str
) -> None:
    for number, country in enumerate(["de", "fr", "%C3%A9"]):
        write(
            form,
            tmp_path / "raw" / f"country={country}" / f"day=2024-01-0{number + 1}" / f"x.{ending}",
            numbers(40, first=40 * number),
        )
    (tmp_path / "raw" / "_SUCCESS").touch()
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"files": f"{tmp_path}/raw{pattern}"}))
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows.column_names == ["id", "text", "label", "country", "day"]
    assert rows.select(["id", "text", "label"]).to_pydict() == numbers(120).to_pydict()
    assert rows["country"].to_pylist() == ["de"] * 40 + ["fr"] * 40 + ["é"] * 40
    assert rows["day"].to_pylist() == [date(2024, 1, day) for day in (1, 2, 3) for _ in range(40)]


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_a_file_that_has_a_partitions_column_keeps_its_own(
    tmp_path: Path, backend: Backend, form: str, ending: str
) -> None:
    for number, country in enumerate(["de", "fr"]):
        table = numbers(40, first=40 * number).append_column("country", pa.array([f"own {country}"] * 40))
        write(form, tmp_path / "raw" / f"country={country}" / f"x.{ending}", table)
    snapshot = take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")}))
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows["country"].to_pylist() == ["own de"] * 40 + ["own fr"] * 40


@pytest.mark.parametrize(("form", "ending"), [("parquet", "parquet"), ("csv", "csv"), ("json", "jsonl")])
def test_parts_in_partitions_are_brought_to_their_union(tmp_path: Path, form: str, ending: str) -> None:
    for number, country in enumerate(["1", "2.5", "x"]):
        value = None if country == "1" else float(number)
        table = pa.table({"id": [2 * number, 2 * number + 1], "value": pa.array([value, None], pa.float64())})
        write(form, tmp_path / "raw" / f"country={country}" / f"x.{ending}", table)
    if form != "parquet":
        (tmp_path / "raw" / "country=1" / f"a.{ending}").touch()
    parts = open_source(spec({"files": str(tmp_path / "raw")})).parts
    columns = unite_columns("files", parts)
    assert columns is not None
    assert columns.names == ["id", "value", "country"]
    rows = pa.Table.from_batches(read_parts(parts, columns)).to_pydict()
    assert rows["country"] == ["1", "1", "2.5", "2.5", "x", "x"]
    assert rows["value"] == [None, None, 1.0, None, 2.0, None]


@pytest.mark.parametrize(
    ("first", "later", "read"),
    [("1", "2", [1, 2]), ("de", "fr", ["de", "fr"]), ("1", "x", ["1", "x"]), ("1", "0.5", [1.0, 0.5])],
)
def test_a_partition_that_comes_later_is_appended_or_all_are_read_again(
    tmp_path: Path, backend: Backend, first: str, later: str, read: list[Any]
) -> None:
    source = spec({"files": str(tmp_path / "raw")}, group="id")
    for number, value in enumerate([first, later]):
        write("parquet", tmp_path / "raw" / f"n={value}" / "x.parquet", numbers(40, first=40 * number))
        snapshot = take_snapshot(backend.store, backend.catalog, source)
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    assert rows["n"].to_pylist() == [value for value in read for _ in range(40)]


@pytest.mark.parametrize(
    "values",
    [("1", "x"), ("x", "1"), ("1", "0.5"), ("0.5", "1"), ("01", "2"), ("__HIVE_DEFAULT_PARTITION__", "1")],
)
def test_the_type_of_a_partition_does_not_depend_on_which_file_is_first(
    tmp_path: Path, backend: Backend, values: tuple[str, str]
) -> None:
    kinds = {"x": str, "0.5": float, "01": str}
    kind = next((kinds[value] for value in values if value in kinds), int)
    for number, value in enumerate(values):
        write("parquet", tmp_path / "raw" / f"n={value}" / "x.parquet", numbers(40, first=40 * number))
    snapshot = take_snapshot(
        backend.store, backend.catalog, spec({"files": [f"{tmp_path}/raw/n={value}" for value in values]})
    )
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
    read = [None if value.startswith("__") else kind(value) for value in values for _ in range(40)]
    assert rows["n"].to_pylist() == read


@pytest.mark.parametrize("reference", ["digest", None])
@pytest.mark.parametrize("name", ["take #1.jpg", "100%.jpg", "[a] b?.jpg", "é.jpg"])
def test_files_whose_names_have_signs_are_found_again_by_their_location(
    any_store: Store, name: str, reference: str | None
) -> None:
    any_store.create(f"raw #2/{name}", b"a picture")
    (part,) = open_source(
        spec({"folder": within(any_store.root, "raw #2"), **({"reference": reference} if reference else {})})
    ).parts
    ((row,),) = [rows.to_pylist() for rows in part.read()]
    assert row["path"] == name
    assert (referenced_file(row).read() if reference else row["content"]) == b"a picture"


def test_each_file_of_a_folder_is_a_row_but_what_systems_leave_there(tmp_path: Path) -> None:
    for name in (
        "_DSC1.jpg",
        "_noise_/a.jpg",
        ".DS_Store",
        ".ipynb_checkpoints/a.jpg",
        "__MACOSX/._a.jpg",
        "cat/Thumbs.db",
        "cat/._b.jpg",
    ):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(b"a picture")
    opened = open_source(spec({"folder": str(tmp_path / "pictures")}))
    paths = [row["path"] for part in opened.parts for rows in part.read() for row in rows.to_pylist()]
    assert paths == ["_DSC1.jpg", "_noise_/a.jpg"]


@pytest.mark.parametrize(("form", "ending"), [("csv", "csv"), ("csv", "tsv"), ("json", "jsonl")])
def test_an_empty_file_of_spark_has_no_rows(tmp_path: Path, backend: Backend, form: str, ending: str) -> None:
    for number in (0, 2):
        (tmp_path / "raw" / f"part-{number}.{ending}").parent.mkdir(exist_ok=True)
        (tmp_path / "raw" / f"part-{number}.{ending}").touch()
    write(form, tmp_path / "raw" / f"part-1.{ending}", numbers(60))
    if ending == "tsv":
        csv.write_csv(numbers(60), tmp_path / "raw" / "part-1.tsv", csv.WriteOptions(delimiter="\t"))
    assert take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")})).rows == 60


def test_a_tabbed_file_goes_by_its_ending_and_not_by_its_folder(tmp_path: Path) -> None:
    write("csv", tmp_path / "export.tsv.d" / "rows.csv", numbers(10))
    assert ids({"files": f"{tmp_path}/export.tsv.d/rows.csv"}) == list(range(10))
    csv.write_csv(
        numbers(10),
        pa.CompressedOutputStream(str(tmp_path / "rows.tsv.gz"), "gzip"),
        csv.WriteOptions(delimiter="\t"),
    )
    assert ids({"files": f"{tmp_path}/rows.tsv.gz"}) == list(range(10))


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ISO-8859-15", "utf_16_le", "UTF8"])
def test_text_files_are_read_in_the_encoding_that_is_given(
    tmp_path: Path, backend: Backend, ending: str, encoding: str
) -> None:
    rows = [{"größe": number, "label": "schön" if number % 2 else "nah"} for number in range(60)]
    if ending == "csv":
        content = "größe,label\n" + "".join(f"{row['größe']},{row['label']}\n" for row in rows)
    else:
        content = json.dumps(rows, ensure_ascii=False)
    (tmp_path / f"rows.{ending}").write_bytes(content.encode(encoding))
    source = spec(
        {"files": str(tmp_path / f"rows.{ending}"), "encoding": encoding},
        splits={"train": 0.4, "validation": 0.3, "test": 0.3},
    )
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    read = pa.concat_tables(
        [
            Dataset(backend.store, "points", snapshot.digest).read(split)
            for split in ("train", "validation", "test")
        ]
    )
    assert read.sort_by("größe").to_pylist() == rows


def test_a_folder_by_reference_keeps_the_digest_of_each_file_and_not_its_content(
    tmp_path: Path, backend: Backend
) -> None:
    from halving.store.store import digest_of

    for number in range(40):
        path = tmp_path / "images" / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 1000)
    snapshot = take_snapshot(
        backend.store, backend.catalog, spec({"folder": str(tmp_path / "images"), "reference": "digest"})
    )
    dataset = Dataset(backend.store, "points", snapshot.digest)
    row = dataset.read("train").to_pylist()[0]
    assert set(row) == {"path", "label", "bytes", "sha256", "location"}
    assert f"sha256:{row['sha256']}" == digest_of(Path(row["location"]))
    assert dataset.referenced(row) == Path(row["location"]).read_bytes()
    Path(row["location"]).write_bytes(b"changed")
    with pytest.raises(
        OSError, match=f"{row['location']} is not any more what the snapshot refers to: its sha256 is "
    ):
        dataset.referenced(row)


@pytest.mark.parametrize("reference", ["etag", "version"])
def test_files_on_s3_are_referred_to_without_being_read_and_refused_once_changed(
    reference: str, s3: S3, tmp_path: Path, backend: Backend
) -> None:
    gate = Gate((s3.host, s3.port))
    root = s3.root(secrets.token_hex(6), endpoint=gate.endpoint)
    if reference == "version":
        Store(root).create("old/a.bin", b"before versions")
        with pytest.raises(
            InvalidInput,
            match=r"reference = 'version' is not accepted: s3://.* has none; give etag, or have its bucket",
        ):
            take_snapshot(
                backend.store,
                backend.catalog,
                spec({"folder": root.replace("?", "/old?"), "reference": reference}),
            )
        s3.keep_versions(root)
    contents = {f"raw/cat/{number} é?.bin": bytes([number]) * 100_000 for number in range(30)}
    for name, content in contents.items():
        Store(root).create(name, content)
    before = gate.carried
    source = spec({"folder": root.replace("?", "/raw?"), "reference": reference})
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    assert gate.carried - before < 100_000, "no file was read"

    dataset = Dataset(backend.store, "points", snapshot.digest)
    rows = dataset.read().to_pylist()
    assert set(rows[0]) == {"path", "label", "bytes", "etag", "location", reference}
    assert {f"raw/{row['path']}": dataset.referenced(row) for row in rows} == contents
    shards = [shard for split in dataset.splits for shard in dataset.shards(split)]
    assert list(verify_files(dataset, shards)) == [None] * 30

    changed = rows[3]
    gone = rows[7]
    again = rows[9]
    raw = f"{root.partition('?')[0].removeprefix('s3://')}/raw/"
    there = Store(root).filesystem
    for row, content in ((changed, b"other"), (again, contents[f"raw/{again['path']}"])):
        with there.open_output_stream(raw + row["path"]) as stream:
            stream.write(content)
    there.delete_file(raw + gone["path"])
    with pytest.raises(
        StoreError,
        match=(
            f"{re.escape(changed['location'])} is not any more .*: its {reference} is .*, not "
            f"{changed[reference]}"
        ),
    ):
        dataset.referenced(changed)
    with pytest.raises(
        NotFound, match=f"{re.escape(gone['location'])}, which the snapshot refers to, is gone"
    ):
        dataset.referenced(gone)
    refused = {changed["location"], gone["location"]}
    if reference == "version":  # The same bytes are another version, with the same etag.
        refused.add(again["location"])
        with pytest.raises(StoreError, match=r"its version is .*; delete its newer versions"):
            dataset.referenced(again)
    assert {file.location for file in verify_files(dataset, shards) if file} == refused


def test_the_samples_of_webdatasets_tars_are_rows(tmp_path: Path, backend: Backend) -> None:
    (tmp_path / "tars").mkdir()
    for shard in range(2):
        with tarfile.open(tmp_path / "tars" / f"{shard}.tar", "w") as tar:
            for number in range(30 * shard, 30 * shard + 30):
                members = {
                    "png": bytes([number]) * 50,
                    "cls": str(number % 3).encode(),
                    "txt": f"picture {number}".encode(),
                }
                for ending, content in members.items():
                    entry = tarfile.TarInfo(f"train/{number:04}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    snapshot = take_snapshot(
        backend.store, backend.catalog, spec({"files": str(tmp_path / "tars")}, target="cls")
    )
    rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("key").to_pylist()
    assert [row["key"] for row in rows] == [f"train/{number:04}" for number in range(60)]
    assert rows[31] == {"key": "train/0031", "png": bytes([31]) * 50, "cls": 1, "txt": "picture 31"}


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


def test_decimals_of_files_and_tables_are_numbers(tmp_path: Path, backend: Backend) -> None:
    from deltalake import write_deltalake

    table = numbers(60).append_column(
        "price", pa.array([Decimal(row) / 4 for row in range(60)], pa.decimal128(12, 2))
    )
    write("parquet", tmp_path / "raw" / "0.parquet", table)
    write_deltalake(str(tmp_path / "lake"), table)
    for source in ({"files": str(tmp_path / "raw")}, {"delta": str(tmp_path / "lake"), "version": 0}):
        snapshot = take_snapshot(backend.store, backend.catalog, spec(source))
        rows = Dataset(backend.store, "points", snapshot.digest).read().sort_by("id")
        assert rows["price"].to_pylist() == [row / 4 for row in range(60)]


def test_a_delta_table_is_read_at_its_version_and_what_is_appended_comes_last(
    tmp_path: Path, backend: Backend
) -> None:
    from deltalake import write_deltalake

    table = str(tmp_path / "clicks")
    write_deltalake(table, numbers(3_000))
    write_deltalake(table, numbers(300, first=3_000), mode="append")
    write_deltalake(table, numbers(10), mode="overwrite")
    assert ids({"delta": table, "version": 0}) == list(range(3_000))
    assert ids({"delta": table, "version": 1}) == list(range(3_300))
    assert ids({"delta": table, "version": 2}) == list(range(10))
    first, second = (
        take_snapshot(backend.store, backend.catalog, spec({"delta": table, "version": version}))
        for version in (0, 1)
    )
    lineage = Dataset(backend.store, "points", second.digest).manifest["lineage"]
    assert lineage["source"] == {"kind": "delta", "delta": table, "version": 1, "count": 2}
    assert lineage["before"] == first.digest
    assert second.rows == 3_300
    with pytest.raises(
        InvalidInput, match=r"dataset.source.version = 7 of .* is not accepted: .*; the newest is 2"
    ):
        ids({"delta": table, "version": 7})
    with pytest.raises(InvalidInput, match="there is no Delta table"):
        ids({"delta": str(tmp_path), "version": 0})


@pytest.mark.slow
def test_a_delta_table_on_s3_is_read_and_s3_that_is_away_is_an_error_that_says_so(
    s3: S3, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import write_deltalake

    gate = Gate((s3.host, s3.port))
    table = s3.root(secrets.token_hex(6)).partition("?")[0] + "/clicks"
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{gate.endpoint}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    for first in range(0, 300, 100):
        write_deltalake(table, numbers(100, first=first), mode="append")
    source = spec({"delta": table, "version": 1})
    assert ids({"delta": table, "version": 1}) == list(range(200))
    opened = open_source(source)
    gate.shut()
    with pytest.raises(StoreError, match=r"cannot read .*\.parquet: "):
        list(opened.parts[0].read())
    with pytest.raises(StoreError, match=f"cannot read dataset.source.delta = '{table}': "):
        take_snapshot(backend.store, backend.catalog, source)
    gate.open()
    assert take_snapshot(backend.store, backend.catalog, source).rows == 200


def test_a_delta_table_in_partitions_has_their_columns(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "clicks"), numbers(30), partition_by=["label"])
    opened = open_source(spec({"delta": str(tmp_path / "clicks"), "version": 0}))
    rows = [row for part in opened.parts for batch in part.read() for row in batch.to_pylist()]
    assert sorted(rows, key=lambda row: row["id"]) == numbers(30).to_pylist()


@pytest.fixture
def iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An Iceberg catalog in SQLite, which PyIceberg finds by its environment variables."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    for name, value in (
        ("URI", f"sqlite:///{tmp_path}/lake.db"),
        ("WAREHOUSE", f"file://{tmp_path}/lake"),
        ("TYPE", "sql"),
    ):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    # PyIceberg reads the variables when it is first imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake"
    )
    catalog.create_namespace("lake")
    yield catalog
    catalog.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_an_iceberg_table_is_read_at_its_snapshot_and_what_is_appended_comes_last(iceberg: Any) -> None:
    table = iceberg.create_table("lake.clicks", schema=numbers(1).schema)
    table.append(numbers(3_000))
    first = table.current_snapshot().snapshot_id
    table.append(numbers(300, first=3_000))
    second = table.current_snapshot().snapshot_id
    fields = {"iceberg": "lake.clicks", "catalog": "lake"}
    assert ids({**fields, "snapshot": first}) == list(range(3_000))
    assert ids({**fields, "snapshot": second}) == list(range(3_300))
    before, now = (
        {part.identity for part in open_source(spec({**fields, "snapshot": snapshot})).parts}
        for snapshot in (first, second)
    )
    assert before < now, "so that what was there is not read again"
    with pytest.raises(
        InvalidInput,
        match=rf"dataset.source.snapshot = 7 is not accepted: lake.clicks has the snapshots .*{second}",
    ):
        ids({**fields, "snapshot": 7})
    with pytest.raises(InvalidInput, match=r"dataset.source.iceberg = 'lake.views' is not accepted"):
        ids({**fields, "iceberg": "lake.views", "snapshot": first})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_an_iceberg_tables_files_are_read_as_pyiceberg_reads_them(iceberg: Any, tmp_path: Path) -> None:
    """Nested types; columns that were renamed, added, dropped, retyped and renamed again; deleted rows."""
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import FileScanTask
    from pyiceberg.types import LongType, StringType

    rows = pa.table(
        {
            "id": pa.array(range(100_000), pa.int64()),
            "pair": pa.array(
                [{"a": 1, "b": "x"}, None] * 50_000, pa.struct([("a", pa.int32()), ("b", pa.string())])
            ),
            "list": pa.array([[1], [], None, [2, 3]] * 25_000, pa.list_(pa.int32())),
            "map": pa.array([[("k", 1)], None] * 50_000, pa.map_(pa.string(), pa.int64())),
            "a.b": range(100_000),
        }
    )
    table = iceberg.create_table("lake.rows", schema=rows.schema)
    table.append(rows)

    def compare(deletes: set[DataFile] | None = None) -> pa.Table:
        scan = table.scan()
        (planned,) = scan.plan_files()
        task = FileScanTask(planned.file, delete_files=deletes)
        theirs = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_record_batches(
            [task]
        )
        ours = pa.Table.from_batches(lake_sources._iceberg_parquet(table, scan.projection(), task))
        assert ours.equals(pa.Table.from_batches(theirs))
        return ours

    assert compare().num_rows == 100_000
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("id", "number")
        update.add_column(("pair", "c"), LongType())
        update.delete_column(("pair", "b"))
        update.update_column(("pair", "a"), field_type=LongType())
        update.add_column("new", StringType())
        update.delete_column("list")
    assert compare().column_names == ["number", "pair", "map", "a.b", "new"]
    with table.update_schema() as update:
        update.add_column("id", StringType())
    assert compare()["id"].null_count == 100_000
    (planned,) = table.scan().plan_files()
    ids = {"file_path": "2147483546", "pos": "2147483545"}
    fields = [
        pa.field(name, kind, False, {"PARQUET:field_id": ids[name]})
        for name, kind in (("file_path", pa.string()), ("pos", pa.int64()))
    ]
    places = {"file_path": [planned.file.file_path] * 3 + ["another"], "pos": [0, 70_000, 99_999, 5]}
    pq.write_table(pa.table(places, schema=pa.schema(fields)), tmp_path / "deletes.parquet")
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{tmp_path}/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=None,
        record_count=4,
        file_size_in_bytes=1,
    )
    assert compare({deletes}).num_rows == 99_997


def test_a_transform_is_applied_to_the_rows_as_they_are_read(
    provide: Callable[..., DatasetSource], backend: Backend
) -> None:
    source = provide(numbers(100), transform="tests.resources.datasets.test_sources:double_ids")
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    dataset = Dataset(backend.store, "points", snapshot.digest)
    assert sorted(dataset.read()["id"].to_pylist()) == list(range(0, 200, 2))
    assert "def double_ids" in dataset.manifest["lineage"]["code"]["transform"]
    for name, says in (
        ("raising", "it raised KeyError at .*no such column"),
        ("wrong", "it returned int; return a pyarrow.Table"),
    ):
        with pytest.raises(InvalidInput, match=says):
            take_snapshot(
                backend.store,
                backend.catalog,
                provide(numbers(100), transform=f"tests.resources.datasets.test_sources:{name}"),
            )


def double_ids(table: pa.Table) -> pa.Table:
    return table.set_column(0, "id", pa.array([2 * number for number in table["id"].to_pylist()]))


def raising(table: pa.Table) -> pa.Table:
    return table["no such column"]


def wrong(table: pa.Table) -> Any:
    return table.num_rows


def test_batches_of_any_size_are_worked_on_in_those_of_some_mebibytes() -> None:
    large = pa.record_batch({"x": np.zeros(4_000_000)})
    small = pa.record_batch({"x": np.zeros(1)})

    def give_batches() -> Iterator[pa.RecordBatch]:
        yield large
        for _ in range(3_000):
            yield small

    sizes = [rows.nbytes for rows in slices(give_batches())]
    assert sum(sizes) == large.nbytes + 3_000 * small.nbytes
    assert max(sizes) <= 2 * BATCH_BYTES
    assert len(sizes) <= large.nbytes / BATCH_BYTES + 2 + 3_000 / sources._MAX_PENDING


def test_a_source_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write("parquet", tmp_path / "raw" / f"{number}.parquet", numbers(50, first=50 * number))
    original = pq.ParquetFile.iter_batches
    waiting: list[Callable[[], Any]] = []

    def changing(self: pq.ParquetFile, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        yield from original(self, *args, **kwargs)
        if waiting:
            waiting.pop()()

    changes: list[tuple[Callable[[], Any], str]] = [
        (lambda: write("parquet", tmp_path / "raw" / "0.parquet", numbers(7)), r"raw/0.parquet'\] changed"),
        (lambda: write("parquet", tmp_path / "raw" / "9.parquet", numbers(7)), "1 files were added"),
        (lambda: (tmp_path / "raw" / "0.parquet").unlink(), r"raw/0.parquet'\] changed"),
    ]
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", changing)
    for change, says in changes:
        waiting.append(change)
        with pytest.raises(
            InvalidInput, match=f"dataset.source.files is not accepted: .*{says} while it was read"
        ):
            take_snapshot(backend.store, backend.catalog, spec({"files": str(tmp_path / "raw")}))
    assert list(backend.store.files("shards")) == []


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


def test_a_pattern_that_stays_in_a_folder_looks_into_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("parquet", tmp_path / "rows.parquet", numbers(5))
    write("parquet", tmp_path / "deep" / "er" / "rows.parquet", numbers(7))
    listed: list[str] = []
    original = fs.FileSelector

    def selector(base: str, recursive: bool) -> fs.FileSelector:
        listed.append(base)
        return original(base, recursive=recursive)

    monkeypatch.setattr("pyarrow.fs.FileSelector", selector)
    assert len(find_files("files", f"{tmp_path}/*.parquet")) == 1
    assert listed == [str(tmp_path)]
    assert len(find_files("files", f"{tmp_path}/*/*/*.parquet")) == 1
    assert len(find_files("files", f"{tmp_path}/**/*.parquet")) == 2


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


@pytest.mark.parametrize(
    ("change", "says"),
    [(Path.unlink, "changed"), (lambda path: write("parquet", path, numbers(7)), "changed")],
)
def test_files_of_a_pyarrow_dataset_that_change_while_they_are_read_are_named(
    tmp_path: Path,
    backend: Backend,
    provide: Callable[..., DatasetSource],
    change: Callable[[Path], None],
    says: str,
) -> None:
    for number in range(3):
        write("parquet", tmp_path / "raw" / f"{number}.parquet", numbers(50, first=50 * number))

    def alter(table: pa.Table) -> pa.Table:
        if path.exists() and table.num_rows:
            changes.append(change(path))
        return table

    path = tmp_path / "raw" / "0.parquet"
    changes: list[None] = []
    source = provide(lambda: dataset.dataset(tmp_path / "raw"), transform="provided_source:alter")
    sys.modules["provided_source"].alter = alter  # type: ignore[attr-defined]
    with pytest.raises(
        InvalidInput,
        match=(
            rf"dataset.source = 'provided_source:load' is not accepted: .*0.parquet'\] {says} while it was "
            r"read"
        ),
    ):
        take_snapshot(backend.store, backend.catalog, source)
    assert changes


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "no path",
            (
                "dataset.source = 'no path' is not accepted: give module:function, for example "
                "examples.digits:load, or one of files"
            ),
        ),
        (
            {"files": "a", "sql": "b"},
            "give exactly one of files, folder, sql, delta, iceberg; got files, sql",
        ),
        ({"delta": "a"}, "delta needs version: what a snapshot is taken of must not change"),
        ({"iceberg": "a"}, "iceberg needs snapshot"),
        ({"files": "a", "version": 3}, "version belongs to delta, not to files; leave it out"),
        ({"files": "a", "reference": "digest"}, "reference belongs to folder, not to files; leave it out"),
        (
            {"folder": "a", "reference": "etag"},
            r"reference = etag belongs to a folder on S3 \(s3://…\), not to a; give digest",
        ),
        ({"file": "a"}, "file: Extra inputs are not permitted|there is no such field"),
        ({"folder": "a", "encoding": "latin-1"}, "encoding belongs to files, not to folder; leave it out"),
        (
            {"files": "a", "format": "tar", "encoding": "latin-1"},
            "encoding belongs to files of csv, json, not of tar; leave it out",
        ),
        (
            {"files": "a", "encoding": "latin9x"},
            "encoding: 'latin9x' is not known; give one that Python knows, such as utf-8, latin-1",
        ),
        ({"files": "a", "encoding": "base64"}, "encoding: 'base64' is not known"),
        ({"files": "a", "encoding": ""}, "encoding: '' is not known"),
        ({"files": "a", "encoding": 8}, "encoding: Input should be a valid string"),
        ({"files": "a", "format": "xml"}, "format: Input should be 'parquet', 'csv', 'json' or 'tar'"),
    ],
)
def test_a_source_that_is_none_is_refused_before_anything_runs(source: Any, says: str) -> None:
    from resources.sweep_spec import parse_spec
    from tests.backends import SMALL

    with pytest.raises(InvalidInput, match=says):
        parse_spec({**SMALL, "dataset": {"name": "points", "source": source, "target": "label"}})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"files": "{}/*.parquet"}, r"files = '.*/\*.parquet' is not accepted: no file has such a name"),
        ({"files": "{}/none/*.csv"}, "there is no folder .*/none"),
        (
            {"files": "{}/rows.bin"},
            (
                "rows.bin' is not accepted: its name does not say what it is; give format: parquet, csv, "
                "json "
                "or tar"
            ),
        ),
        (
            {"files": "{}/rows.bin", "format": "parquet"},
            "rows.bin' is not accepted: as parquet it cannot be read",
        ),
        (
            {"files": "{}/rows.pq", "encoding": "latin-1"},
            r"source.encoding = 'latin-1' is not accepted: .*rows.pq is parquet; only csv and json",
        ),
        ({"folder": "{}/empty"}, "folder = '.*/empty' is not accepted: the folder holds no files"),
        ({"folder": "{}/none"}, "there is no folder"),
    ],
)
def test_a_place_without_rows_is_refused_by_field_and_value(
    tmp_path: Path, source: dict[str, Any], says: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.bin").write_bytes(os.urandom(100))
    (tmp_path / "rows.pq").touch()
    fields = {
        name: value.format(tmp_path) if name in ("files", "folder") else value
        for name, value in source.items()
    }
    with pytest.raises(InvalidInput, match=says):
        ids(fields)
