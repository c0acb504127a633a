"""Rows come from files, folders, queries and lake tables unchanged, in a fixed order and little memory."""

import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets import sources
from resources.datasets.canonical import BATCH_BYTES
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import resize_batches
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.specs import ids, spec
from tests.resources.datasets.tables import numbers, write


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

    sizes = [rows.nbytes for rows in resize_batches(give_batches())]
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
    places = {name: source[name].format(tmp_path) for name in ("files", "folder") if name in source}
    fields = source | places
    with pytest.raises(InvalidInput, match=says):
        ids(fields)
