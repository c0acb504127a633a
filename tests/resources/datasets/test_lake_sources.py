"""Tables of a lake as sources: Delta and Iceberg."""

import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, InvalidInput, StoreError
from resources.backend import Backend
from resources.datasets import lake_sources
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import open_source
from tests.resources.datasets.specs import ids, spec
from tests.resources.datasets.tables import numbers
from tests.s3 import S3, Gate


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
