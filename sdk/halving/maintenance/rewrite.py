"""Reading a run's points from its files and writing them sorted, for compaction and retention."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from halving.maintenance.external_sort import Sorter
from halving.maintenance.rollups import BUCKET, Rollup
from halving.metrics.manifest import Manifest, family_of, project_folder
from halving.metrics.numpy_arrow import numbers_of
from halving.metrics.segments import WRITE_OPTIONS, points_table, schema
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

THREADS = 16
"""Concurrent requests of one run's compaction to an object store; Arrow's client has 25 connections."""
_OWN_GROUP = 10_000  # points of a key from which on it gets row groups of its own
_ROW_GROUP = 1 << 18
_SHARED = 1 << 16  # points in a row group that small keys share
_BATCH = 1 << 18
# Level 9 takes 3 % off noisy losses and 5-15 % off gauges, and costs as much to read as any other level.
_OPTIONS: dict[str, Any] = {"compression_level": 9, "write_statistics": ["run", "key", "step", "wall_time"]}


class Added(NamedTuple):
    """The metadata and the size of a file whose points were added."""

    metadata: dict[bytes, bytes]
    bytes: int


@dataclass(frozen=True)
class Rewritten:
    """Files that were written locally.

    Attributes:
        full: the sorted points, or None when there are none.
        rollup: their buckets, or None when there are none.
        held: how many points ``full`` has, by family of keys.
    """

    full: Path | None
    rollup: Path | None
    held: dict[str, int]

    @property
    def points(self) -> int:
        """The number of points in ``full``."""
        return sum(self.held.values())


def add_file(sorter: Sorter, store: Store, name: str, keep: Callable[[str], bool] | None = None) -> Added:
    """Add a file's points, all or those whose key ``keep`` accepts.

    Raises:
        FileNotFoundError: the file is missing.
    """
    path = store.path(name)
    with store.missing_when_gone(path), store.filesystem.open_input_file(path) as handle:
        return _add(sorter, handle, handle.size(), keep)


def add_files(sorter: Sorter, store: Store, names: Sequence[str]) -> Iterator[Added]:
    """Add files' points, file by file; on an object store the next files are fetched meanwhile.

    Raises:
        FileNotFoundError: one is missing.
    """
    if store.folder is not None:
        for name in names:
            yield add_file(sorter, store, name)
        return
    import pyarrow as pa

    with ThreadPoolExecutor(min(THREADS, len(names))) as pool:
        fetches = deque(pool.submit(_fetch, store, name) for name in names[:THREADS])
        try:
            for place in range(len(names)):
                content = fetches.popleft().result()
                if place + THREADS < len(names):
                    fetches.append(pool.submit(_fetch, store, names[place + THREADS]))
                yield _add(sorter, pa.BufferReader(content), content.size)
        finally:
            for fetch in fetches:
                fetch.cancel()


def _fetch(store: Store, name: str) -> "pa.Buffer":
    """Read a whole file: a segment is small, so one request is better than one for each part."""
    path = store.path(name)
    with store.missing_when_gone(path), store.filesystem.open_input_file(path) as handle:
        return handle.read_buffer()


def _add(
    sorter: Sorter, handle: "pa.NativeFile", size: int, keep: Callable[[str], bool] | None = None
) -> Added:
    import pyarrow.parquet as pq

    with pq.ParquetFile(handle) as file:
        for batch in file.iter_batches(
            _BATCH, columns=["attempt", "key", "step", "wall_time", "value"], use_threads=False
        ):
            if keep:
                batch = _only(batch, keep)
            sorter.add(batch)
        return Added(file.metadata.metadata or {}, size)


def add_history(sorter: Sorter, store: Store, project: str, manifest: Manifest) -> dict[int, tuple[int, Any]]:
    """The finest buckets of points that retention dropped from a run's full file.

    It maps a curve to their level and the buckets.
    """
    import pyarrow.parquet as pq

    history: dict[int, tuple[int, Any]] = {}
    for family, name in manifest.history.items():
        path = store.path(f"{project_folder(project)}/{name}")
        with store.missing_when_gone(path), store.filesystem.open_input_file(path) as handle:
            table = pq.read_table(handle)
        keys = np.array(table["key"].to_pylist(), object)
        levels = numbers_of(table["level"])
        buckets = np.zeros(len(table), BUCKET)
        for column, _ in BUCKET[1:]:
            buckets[column] = numbers_of(table[column])
        for key in sorted({key for key in keys if family_of(key) == family}):
            here = keys == key
            finest = int(levels[here].min())
            own = buckets[here & (levels == finest)]
            code = sorter.code(key)
            own["curve"] = code
            history[code] = (finest, own[np.argsort(own["step"], kind="stable")])
    return history


def write_sorted(sorter: Sorter, run: str, folder: Path, history: Mapping[int, tuple[int, Any]]) -> Rewritten:
    """Write a sorter's points of a run, sorted by (key, step), and their rollup, into a folder.

    Args:
        history: what :func:`add_history` gave.
    """
    import pyarrow.parquet as pq

    totals: list[int] = sorter.totals().tolist()
    counts: dict[str, int] = {}
    for key, total in zip(sorter.keys, totals, strict=True):
        if total:
            counts[family_of(key)] = counts.get(family_of(key), 0) + total
    full = None
    rollup_file = None
    rollup = Rollup(run, sorter.keys, history)
    if counts:
        full = folder / "full.parquet"
        with pq.ParquetWriter(full, schema(), **WRITE_OPTIONS, **_OPTIONS) as writer:
            file = _PointsFile(writer, run, sorter.keys, totals)
            for points in sorter.chunks():
                for curve in np.split(points, np.flatnonzero(np.diff(points["curve"])) + 1):
                    file.add(curve)
                    rollup.add(curve)
            file.flush()
    if sorter.keys:
        rollup_file = folder / "rollup.parquet"
        rollup.write(rollup_file)
    return Rewritten(full, rollup_file, counts)


class _PointsFile:
    """Writes a file of points.

    Keys with many points have row groups of their own, so that reading one key skips the others.

    Args:
        keys: what the points' column ``curve`` has places in.
        totals: how many points each of them has in all.
    """

    def __init__(self, writer: "pq.ParquetWriter", run: str, keys: list[str], totals: list[int]) -> None:
        self._writer = writer
        self._run = run
        self._keys = keys
        self._totals = totals
        self._waiting: list[Any] = []
        self._count = 0
        self._size = 0
        self._before = 0
        self._curve = -1

    def add(self, points: Any) -> None:
        """Add the next points of a curve, in order."""
        curve = int(points["curve"][0])
        if curve != self._curve:
            self._start_curve(curve)
        while len(points):
            room = self._size - self._count
            self._waiting.append(points[:room])
            self._count += len(self._waiting[-1])
            points = points[room:]
            if self._count == self._size:
                self.flush()

    def _start_curve(self, curve: int) -> None:
        total = self._totals[curve]
        if self._before >= _OWN_GROUP or total >= _OWN_GROUP or self._count + total > self._size:
            self.flush()
            self._size = _SHARED
            if total >= _OWN_GROUP:
                groups = -(-total // _ROW_GROUP)
                self._size = -(-total // groups)
        self._curve = curve
        self._before = total

    def flush(self) -> None:
        """Write the row group that has begun."""
        if not self._count:
            return
        points = np.concatenate(self._waiting)
        self._waiting = []
        self._count = 0
        curves, codes = np.unique(points["curve"], return_inverse=True)
        keys = [self._keys[curve] for curve in curves.tolist()]
        columns = [points[name] for name in ("step", "wall_time", "value")]
        self._writer.write_table(
            points_table(self._run, points["attempt"], keys, codes, *columns), row_group_size=len(points)
        )


def _only(batch: "pa.RecordBatch", keep: Callable[[str], bool]) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = [key for key in batch.column("key").dictionary.to_pylist() if keep(key)]
    return batch.filter(pc.is_in(batch.column("key").cast(pa.string()), pa.array(kept, pa.string())))
