"""Any source is snapshotted and checked in 1 GB of memory: the process's peak, by Linux's own count."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tests.resources.datasets.peak_memory import highest_memory

ROWS = 4_000_000
"""Rows of 136 bytes: 518 MiB."""
_BATCH = 50_000
_LIMITS = {"many files": 2**29}
"""Bytes for a kind; others may take a gigabyte.

That of a million files takes as long as all other kinds together.
"""


def batches(rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Random numbers, which no file format compresses."""
    generator = np.random.default_rng(0)
    for first in range(0, rows, _BATCH):
        numbers = {f"x{number}": generator.random(_BATCH) for number in range(15)}
        yield pa.record_batch(
            {"id": np.arange(first, first + _BATCH), **numbers, "label": generator.integers(0, 5, _BATCH)}
        )


def large_table() -> pa.Table:
    return pa.Table.from_batches(batches())


def write_parquet(folder: Path) -> dict[str, Any]:
    """Write one file with row groups of a million rows, as DuckDB, Spark and PyArrow do."""
    pq.write_table(large_table(), folder / "rows.parquet")
    return {"files": str(folder)}


def write_query(folder: Path) -> dict[str, Any]:
    write_parquet(folder)
    return {"sql": f"SELECT * FROM read_parquet('{folder}/*.parquet') ORDER BY x1"}


def write_csv(folder: Path) -> dict[str, Any]:
    with csv.CSVWriter(folder / "rows.csv", next(batches()).schema) as writer:
        for rows in batches(ROWS // 2):
            writer.write_batch(rows)
    return {"files": str(folder)}


def write_json(folder: Path) -> dict[str, Any]:
    with (folder / "rows.jsonl").open("w") as file:
        for rows in batches(ROWS // 8):
            file.writelines(json.dumps(row) + "\n" for row in rows.to_pylist())
    return {"files": str(folder)}


def write_tar(folder: Path) -> dict[str, Any]:
    with tarfile.open(folder / "samples.tar", "w") as tar:
        for number in range(4_000):
            for ending, content in (("jpg", os.urandom(100_000)), ("cls", str(number % 5).encode())):
                member = tarfile.TarInfo(f"{number:06}.{ending}")
                member.size = len(content)
                tar.addfile(member, BytesIO(content))
    return {"files": str(folder)}


def write_folder(folder: Path) -> dict[str, Any]:
    for number in range(4_000):
        path = folder / f"class-{number % 5}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(100_000))
    return {"folder": str(folder)}


def write_many_files(folder: Path) -> dict[str, Any]:
    """Write a folder of 300,000 files, like a large set of pictures.

    They are links to 30 files, because ext4 allows 65,000 links to a file.
    """
    (folder / "pictures").mkdir()
    for first in range(0, 300_000, 10_000):
        content = folder / "pictures" / f"{first:07}.jpg"
        content.write_text(f"picture {first}")
        for number in range(first + 1, first + 10_000):
            os.link(content, folder / "pictures" / f"{number:07}.jpg")
    return {"folder": str(folder)}


def write_delta(folder: Path) -> dict[str, Any]:
    import deltalake

    deltalake.write_deltalake(
        str(folder), pa.RecordBatchReader.from_batches(next(batches()).schema, batches())
    )
    return {"delta": str(folder), "version": 0}


def write_iceberg(folder: Path) -> dict[str, Any]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake")
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.rows", schema=next(batches()).schema)
    table.append(large_table())
    snapshot = table.current_snapshot()
    assert snapshot is not None
    catalog.close()
    return {"iceberg": "lake.rows", "catalog": "lake", "snapshot": snapshot.snapshot_id}


def name_function(folder: Path) -> str:
    return "tests.resources.datasets.test_memory:batches"


def write(kind: str, folder: Path) -> None:
    """Write a source in a process of its own; return its entry in a spec."""
    folder.joinpath("source.json").write_text(json.dumps(_WRITERS[kind](folder / "rows")))


def measure(kind: str, folder: Path) -> None:
    """Print the highest memory of this process, in bytes, while the snapshot is taken and checked."""
    from halving import Dataset
    from resources.backend import Backend
    from resources.datasets.data_checks import check_data
    from resources.datasets.snapshots import take_snapshot
    from resources.sweep_spec.dataset import DatasetSource

    described = json.loads(folder.joinpath("source.json").read_text())
    target = {"tar": "cls"}.get(kind, "label")
    source = DatasetSource.model_validate({"name": "rows", "source": described, "target": target})
    backend = Backend(root=str(folder / "store"))
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    taken = highest_memory()
    check_data(Dataset(backend.store, "rows", snapshot.digest), source, None)
    print(json.dumps([taken, highest_memory(), snapshot.bytes]))


_WRITERS: dict[str, Callable[[Path], Any]] = {
    "parquet": write_parquet,
    "query": write_query,
    "csv": write_csv,
    "json": write_json,
    "tar": write_tar,
    "folder": write_folder,
    "many files": write_many_files,
    "delta": write_delta,
    "iceberg": write_iceberg,
    "function": name_function,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", _WRITERS)
def test_a_snapshot_of_a_large_source_is_taken_and_checked_in_a_gigabyte(tmp_path: Path, kind: str) -> None:
    (tmp_path / "rows").mkdir()
    lake = {"URI": f"sqlite:///{tmp_path}/lake.db", "WAREHOUSE": f"file://{tmp_path}/lake", "TYPE": "sql"}
    environment = {
        **os.environ,
        **{f"PYICEBERG_CATALOG__LAKE__{name}": value for name, value in lake.items()},
    }
    outputs = []
    for step in ("write", "measure"):
        program = f"from tests.resources.datasets.test_memory import *; {step}({kind!r}, Path(sys.argv[1]))"
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    taking, checking, size = json.loads(outputs[-1].splitlines()[-1])
    assert size > 30 * 2**20
    assert taking <= _LIMITS.get(kind, 2**30)
    assert checking <= _LIMITS.get(kind, 2**30)
