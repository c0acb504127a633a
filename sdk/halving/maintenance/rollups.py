"""Rollups: a curve of any length in at most 2,000 buckets, and finer levels to zoom in.

A bucket of level L holds 8^L consecutive points of the stitched curve: by step, each step once, with the value that the highest
attempt logged last. Level 0 exists for curves of at most :data:`COARSE` points; else every level from 2 up that has more than
:data:`COARSE` buckets, and the first level that has no more than that.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.maintenance.external_sort import POINT
from halving.metrics import downsampling
from halving.metrics.numpy_arrow import coded, column_of, moments

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

COARSE = 2_000
FAN = 8
ROW_GROUP = 1 << 12
_MANY = 1 << 16
BUCKET = [("curve", "<i4"), *downsampling.BUCKET]


def schema() -> "pa.Schema":
    """The columns of a rollup file."""
    import pyarrow as pa

    text, times = pa.dictionary(pa.int32(), pa.string()), ("wall_time", "wall_time_last")
    rest = [(name, moments() if name in times else pa.int64() if kind == "<i8" else pa.float64()) for name, kind in BUCKET[1:]]
    return pa.schema([("run", text), ("key", text), ("level", pa.int32()), *rest])


def stitched(points: Any) -> Any:
    """The last of each (curve, step) of sorted points."""
    import numpy as np

    keep = np.ones(len(points), bool)
    keep[:-1] = (points["step"][1:] != points["step"][:-1]) | (points["curve"][1:] != points["curve"][:-1])
    return points[keep]


def as_buckets(points: Any) -> "np.ndarray[Any, Any]":
    """Points as buckets of level 0."""
    found: np.ndarray[Any, Any] = downsampling.of_points(points["step"], points["wall_time"], points["value"], BUCKET)
    found["curve"] = points["curve"]
    return found


def grouped(finer: Any) -> Any:
    """One curve's buckets, eight by eight; the last of them may hold fewer."""
    import numpy as np

    return downsampling.joined(finer, np.arange(0, len(finer), FAN))


class Rollup:
    """Collects sorted points, curve by curve, and writes the rollup file.

    Args:
        keys: what the points' column ``curve`` has places in.
        folder: for what does not fit into memory.
        history: curve to the level and the buckets, of dtype :data:`BUCKET`, that an earlier rollup has of points that are gone.
    """

    def __init__(self, run: str, keys: list[str], folder: Path, history: Mapping[int, tuple[int, Any]] | None = None) -> None:
        self._run, self._keys, self._folder, self._history = run, keys, folder, dict(history or {})
        self._only_history = sorted(self._history, key=keys.__getitem__, reverse=True)
        self._spools: dict[int, _Spool] = {}
        self._open: _Pyramid | None = None

    def add(self, points: Any) -> None:
        """Take the next sorted points, of dtype ``POINT``; a curve may go on in the next call, with later points."""
        import numpy as np

        starts = np.concatenate([[0], np.flatnonzero(np.diff(points["curve"])) + 1])
        ends = np.append(starts[1:], len(points))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            code = int(points["curve"][start])
            if self._open is None or self._open.code != code:
                self._close()
                self._add_history(before=self._keys[code])
                self._open = _Pyramid(code, *self._history.get(code, (0, None)))
            self._open.add(points[start:end])

    def write(self, path: Path) -> None:
        """Write everything, sorted by (level descending, key, step)."""
        import pyarrow.parquet as pq

        self._close()
        self._add_history()
        options = {"compression": "zstd", "use_dictionary": ["run", "key", "level"], "data_page_size": 1 << 18}
        with pq.ParquetWriter(path, schema(), **options) as writer:
            for level in sorted(self._spools, reverse=True):
                for buckets in self._spools[level].chunks():
                    writer.write_table(self._table(buckets, level), row_group_size=ROW_GROUP)

    def _add_history(self, before: str | None = None) -> None:
        """Add the curves without new points whose keys come before one that has some, or all that are left."""
        while self._only_history and (before is None or self._keys[self._only_history[-1]] <= before):
            code = self._only_history.pop()
            if self._keys[code] != before:
                self._open = _Pyramid(code, *self._history[code])
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            for level, buckets in self._open.levels():
                if level not in self._spools:
                    self._spools[level] = _Spool(self._folder / f"level-{level}")
                self._spools[level].add(buckets)
        self._open = None

    def _table(self, buckets: Any, level: int) -> "pa.Table":
        import numpy as np
        import pyarrow as pa

        curves, codes = np.unique(buckets["curve"], return_inverse=True)
        columns = [
            coded(np.zeros(len(buckets), np.int32), [self._run]),
            coded(codes, [self._keys[curve] for curve in curves.tolist()]),
            column_of(np.full(len(buckets), level, np.int32), pa.int32()),
        ]
        columns += [column_of(buckets[field.name], field.type) for field in list(schema())[3:]]
        return pa.Table.from_arrays(columns, schema=schema())


class _Pyramid:
    """The levels of one curve.

    Args:
        level: that of ``history``.
        history: buckets of an earlier rollup whose points were dropped. Points that are logged again at the steps of such a bucket
            become a bucket beside it. At level 0 a bucket is a single point, and the new point replaces it.
    """

    def __init__(self, code: int, level: int, history: Any) -> None:
        self.code, self._level, self._history = code, level, history
        self._points: list[Any] = []
        self._waiting = 0
        self._finished: list[Any] = []  # of level 2

    def add(self, points: Any) -> None:
        import numpy as np

        self._points.append(points)
        self._waiting += len(points)
        if self._waiting >= _MANY:
            points = stitched(np.concatenate(self._points))
            whole = (len(points) - 1) // FAN**2 * FAN**2  # the last point may be superseded yet
            if whole:
                self._finished.append(grouped(grouped(as_buckets(points[:whole]))))
            self._points, self._waiting = [points[whole:]], len(points) - whole

    def levels(self) -> Iterator[tuple[int, Any]]:
        """The levels to keep, each as (level, buckets), once all points are added."""
        level, buckets = self._new()
        if self._history is not None:
            level, buckets = self._with_history(level, buckets)
        while len(buckets) > COARSE:
            if level >= 2:
                yield level, buckets
            level, buckets = level + 1, grouped(buckets)
        yield level, buckets

    def _new(self) -> tuple[int, Any]:
        import numpy as np

        points = stitched(np.concatenate(self._points)) if self._points else np.empty(0, POINT)
        buckets = as_buckets(points)
        if not self._finished:
            return 0, buckets
        return 2, np.concatenate([*self._finished, grouped(grouped(buckets))])

    def _with_history(self, level: int, buckets: Any) -> tuple[int, Any]:
        import numpy as np

        common = max(level, self._level)
        for _ in range(common - level):
            buckets = grouped(buckets)
        history = self._history
        for _ in range(common - self._level):
            history = grouped(history)
        buckets = np.concatenate([history, buckets])
        buckets = buckets[np.argsort(buckets["step"], kind="stable")]
        return common, stitched(buckets) if common == 0 else buckets


class _Spool:
    """Buckets of one level: in memory while they are few, else in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[Any] = []
        self._count = 0

    def add(self, buckets: Any) -> None:
        self._rows.append(buckets)
        self._count += len(buckets)
        if self._count >= _MANY:
            self._flush()

    def _flush(self) -> None:
        with self._path.open("ab") as file:
            for rows in self._rows:
                rows.tofile(file)
        self._rows, self._count = [], 0

    def chunks(self) -> Iterator[Any]:
        """All of them in order, a whole number of row groups at a time."""
        import numpy as np

        if self._path.exists():
            self._flush()
            rows = np.asarray(np.memmap(self._path, BUCKET, mode="r"))
        else:
            rows = np.concatenate(self._rows)
        for start in range(0, len(rows), ROW_GROUP):
            yield rows[start : start + ROW_GROUP]
