"""How fast dataset snapshots are taken and in how much memory, and the cost of 1 % more rows."""

import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number

_FLOATS = 32
_COLUMNS = 22  # of one large file
_TEXT = f"""
Rows of {_FLOATS} float32, an id and a short text, in Parquet files (snappy), are made a snapshot: dealt into
three splits by a hash, cut into shards of 128 MiB and hashed. *Written twice* is what the disk takes to write
the same bytes two times and sync them, for a snapshot is spooled before it is cut. *pyarrow* reads the same
files and writes Arrow files, without splits and without hashing; *DVC* (the pinned version) adds the folder
of Parquet files as it is, to a cache on the same disk. Memory is the process' peak. Then one file with 1 %
more rows is added, and all is done again.
"""
_ONE_FILE_NOTE = "In row groups of a million rows, snappy; all columns are doubles but the id and the label."
_MEMORY = 1e9  # bytes
_SECONDS = 20.0  # of 10 million rows in one file


def measure(setting: Setting) -> Part:
    """Measure time, memory and bytes of a first snapshot, and of an appended percent."""
    part = Part("snapshots", "Dataset snapshots", _TEXT)
    rows = setting.choose(30_000, 20_000_000)
    raw = setting.work / "raw"
    in_child("benchmarks.snapshots:write_files", folder=str(raw), first=0, rows=rows, files=100)
    arguments = {"raw": str(raw), "root": str(setting.work / "store"), "shard_mib": setting.choose(1, 128)}
    table = Table(["what", "seconds", "MB/s", "memory, MB", "stored, MB"], [], "Snapshots")
    figures: dict[str, dict[str, float]] = {}
    for state in ("first", "1 % more"):
        if state != "first":
            in_child(
                "benchmarks.snapshots:write_files", folder=str(raw), first=rows, rows=rows // 100, files=1
            )
        setting.settle()
        figures[state] = in_child("benchmarks.snapshots:take", **arguments)
        table.rows.append(_row(f"Halving, {state}", figures[state]))
        if state == "first":
            disk = in_child(
                "benchmarks.snapshots:write_twice",
                folder=str(setting.work),
                size=int(figures[state]["bytes"]),
            )
            table.rows.append(_row("the disk, written twice", disk))
        for peer in ("pyarrow", "dvc"):
            setting.settle()
            table.rows.append(
                _row(
                    f"{peer}, {state}",
                    in_child(f"benchmarks.snapshots:with_{peer}", folder=str(setting.work), raw=str(raw)),
                )
            )
    part.tables.append(table)
    share = figures["1 % more"]["stored"] / figures["1 % more"]["bytes"]
    part.targets += [
        Target("memory of a snapshot", "MB", [figures["first"]["memory"] / 1e6], _MEMORY / 1e6),
        Target("bytes stored for 1 % more rows, of the whole", "%", [100 * share], 1.5),
        Target(
            "time of a snapshot, of what the disk takes to write it twice",
            "times",
            [figures["first"]["seconds"] / disk["seconds"]],
            1.5,
        ),
    ]
    _measure_one_file(setting, part)
    return part


def _measure_one_file(setting: Setting, part: Part) -> None:
    """Measure time and memory of a first snapshot of one large file."""
    rows = setting.choose(30_000, 10_000_000)
    raw = setting.work / "one"
    in_child("benchmarks.snapshots:write_one_file", folder=str(raw), rows=rows)
    setting.settle()
    taken = in_child(
        "benchmarks.snapshots:take",
        raw=str(raw),
        root=str(setting.work / "one-store"),
        shard_mib=setting.choose(1, 128),
    )
    setting.settle()
    copied = in_child("benchmarks.snapshots:with_pyarrow", folder=str(setting.work), raw=str(raw))
    table = Table(
        ["what", "seconds", "MB/s", "memory, MB", "stored, MB"],
        [],
        f"One file of {rows:,} rows and {_COLUMNS} columns",
    )
    table.note = _ONE_FILE_NOTE
    table.rows += [_row("Halving, first", taken), _row("pyarrow, first", copied)]
    part.tables.append(table)
    part.targets += [
        Target(
            f"time of a snapshot of one file of {rows:,} rows and {_COLUMNS} columns",
            "s",
            [taken["seconds"]],
            _SECONDS,
        ),
        Target(
            f"memory of a snapshot of one file of {rows:,} rows and {_COLUMNS} columns",
            "MB",
            [taken["memory"] / 1e6],
            _MEMORY / 1e6,
        ),
    ]


def _row(what: str, figures: dict[str, float]) -> list[str]:
    cells = [number(figures["seconds"]), number(figures["bytes"] / figures["seconds"] / 1e6)]
    for name in ("memory", "stored"):
        cell = ""
        if name in figures:
            cell = number(figures[name] / 1e6)
        cells.append(cell)
    return [what, *cells]


def write_files(folder: str, first: int, rows: int, files: int) -> None:
    """Write Parquet files with rows from ``first`` on. To be called in a process of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(folder).mkdir(exist_ok=True)
    for number_, ids in enumerate(np.array_split(np.arange(first, first + rows), files)):
        values = np.random.default_rng(int(ids[0])).random((len(ids), _FLOATS), dtype=np.float32)
        floats = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), _FLOATS)
        texts = pa.array(ids % 1_000).cast(pa.string())
        table = pa.table({"id": ids, "x": floats, "text": texts, "label": ids % 10})
        pq.write_table(table, Path(folder) / f"{first:010}-{number_:03}.parquet")


def write_one_file(folder: str, rows: int) -> None:
    """Write a Parquet file in row groups of a million rows. To be called in a process of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(folder).mkdir(exist_ok=True)
    names = [f"x{number_}" for number_ in range(_COLUMNS - 2)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.float64()) for name in names), ("label", pa.int64())])
    with pq.ParquetWriter(Path(folder) / "rows.parquet", schema) as writer:
        for first in range(0, rows, 1_000_000):
            ids = np.arange(first, min(rows, first + 1_000_000))
            random = np.random.default_rng(first)
            columns = {name: random.random(len(ids)) for name in names}
            writer.write_table(
                pa.table({"id": ids, **columns, "label": ids % 10}, schema=schema), row_group_size=1_000_000
            )


def take(raw: str, root: str, shard_mib: int) -> dict[str, float]:
    """Take a snapshot of the files. To be called in a process of its own."""
    from halving import Dataset
    from resources.backend import Backend
    from resources.datasets.snapshots import take_snapshot
    from resources.sweep_spec.dataset import DatasetSource

    backend = Backend(root=root)
    source = DatasetSource.model_validate(
        {"name": "rows", "source": {"files": raw}, "target": "label", "shard_mib": shard_mib}
    )
    began = time.perf_counter()
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    seconds = time.perf_counter() - began
    stored = Dataset(backend.store, "rows", snapshot.digest).manifest["stored"]
    return {"seconds": seconds, "bytes": snapshot.bytes, "memory": _peak(), "stored": stored}


def write_twice(folder: str, size: int) -> dict[str, float]:
    """Write so many bytes to two files, and sync them. To be called in a process of its own."""
    import os

    block = os.urandom(1 << 24)
    began = time.perf_counter()
    for number_ in range(2):
        with (Path(folder) / f"written-{number_}").open("wb") as file:
            for _ in range(0, size, len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    for number_ in range(2):
        (Path(folder) / f"written-{number_}").unlink()
    return {"seconds": seconds, "bytes": size}


def with_pyarrow(folder: str, raw: str) -> dict[str, float]:
    """Write Arrow files of the same rows. To be called in a process of its own."""
    import shutil

    import pyarrow.dataset as ds

    target = Path(folder) / "pyarrow"
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    ds.write_dataset(
        ds.dataset(raw), str(target), format="feather", max_rows_per_file=1_000_000, max_rows_per_group=65_536
    )
    seconds = time.perf_counter() - began
    size = sum(file.stat().st_size for file in target.iterdir())
    return {"seconds": seconds, "bytes": size, "memory": _peak(), "stored": size}


def with_dvc(folder: str, raw: str) -> dict[str, float]:
    """Run ``dvc add`` on the folder. To be called in a process of its own."""
    project = Path(raw).parent
    if not (project / ".dvc").exists():
        subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=project, check=True)
        subprocess.run([sys.executable, "-m", "dvc", "config", "cache.type", "copy"], cwd=project, check=True)
    before = _size(project / ".dvc" / "cache")
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dvc", "add", "-q", Path(raw).name], cwd=project, check=True)
    seconds = time.perf_counter() - began
    memory = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "seconds": seconds,
        "bytes": _size(Path(raw)),
        "memory": memory,
        "stored": _size(project / ".dvc" / "cache") - before,
    }


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _peak() -> int:
    """The peak of this process's memory, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
