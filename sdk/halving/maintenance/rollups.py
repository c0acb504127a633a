"""Rollups: a curve of any length in at most 2,000 buckets, and finer levels to zoom in.

A bucket of level L holds 8^L consecutive points of the stitched curve: by step, each step once, with the
value that the highest attempt logged last. Level 0 exists for curves of at most :data:`COARSE` points; else
every level from 2 up that has more than :data:`COARSE` buckets, and the first level that has no more than
that.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.maintenance.external_sort import POINT
from halving.metrics import downsampling
from halving.metrics.numpy_arrow import column_of, dictionary_of, moments

if TYPE_CHECKING:
    import pyarrow as pa

COARSE = 2_000
FAN = 8
ROW_GROUP = 1 << 12
_MANY = 1 << 16  # points of a curve that wait to be group_by_eight
_MEMORY = 1 << 22  # bytes of a level's buckets, above which they go to a file
BUCKET = [("curve", "<i4"), *downsampling.BUCKET]


def schema() -> "pa.Schema":
    """The columns of a rollup file."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    types = {"<i8": pa.int64(), "<f8": pa.float64()}
    times = {"wall_time": moments(), "wall_time_last": moments()}
    rest = [(name, times.get(name, types[kind])) for name, kind in BUCKET[1:]]
    return pa.schema([("run", text), ("key", text), ("level", pa.int32()), *rest])


def stitch(points: Any) -> Any:
    """The last point of each (curve, step) of sorted points."""
    keep = np.ones(len(points), bool)
    keep[:-1] = (points["step"][1:] != points["step"][:-1]) | (points["curve"][1:] != points["curve"][:-1])
    return points[keep]


def as_buckets(points: Any) -> np.ndarray[Any, Any]:
    """Points as buckets of level 0."""
    buckets: np.ndarray[Any, Any] = downsampling.of_points(
        points["step"], points["wall_time"], points["value"], BUCKET
    )
    buckets["curve"] = points["curve"]
    return buckets


def group_by_eight(finer: Any) -> Any:
    """Join one curve's buckets eight by eight; the last group may have fewer."""
    return downsampling.join_buckets(finer, np.arange(0, len(finer), FAN))


class Rollup:
    """Collects sorted points, curve by curve, and writes the rollup file.

    Args:
        keys: what the points' column ``curve`` has places in.
        history: curve to the level and the buckets, of dtype :data:`BUCKET`, that an earlier rollup has of
            points that are gone.
    """

    def __init__(self, run: str, keys: list[str], history: Mapping[int, tuple[int, Any]]) -> None:
        self._run = run
        self._keys = keys
        self._history = history
        self._only_history = sorted(self._history, key=keys.__getitem__, reverse=True)
        self._levels: dict[int, SpooledTemporaryFile[bytes]] = {}  # buckets: in memory while they are few
        self._open: _Pyramid | None = None

    def add(self, points: Any) -> None:
        """Take the next sorted points of a curve, of dtype ``POINT``.

        The curve may go on in the next call, with later points.
        """
        code = int(points["curve"][0])
        if self._open is None or self._open.code != code:
            self._close()
            self._add_history(before=self._keys[code])
            self._open = _Pyramid(code, *self._history.get(code, (0, None)))
        self._open.add(points)

    def write(self, path: Path) -> None:
        """Write everything, sorted by (level descending, key, step)."""
        import pyarrow.parquet as pq

        self._close()
        self._add_history()
        options = {
            "compression": "zstd",
            "use_dictionary": ["run", "key", "level"],
            "data_page_size": 1 << 18,
        }
        with pq.ParquetWriter(path, schema(), **options) as writer:
            for level in sorted(self._levels, reverse=True):
                with self._levels[level] as file:
                    file.seek(0)
                    while data := file.read(ROW_GROUP * np.dtype(BUCKET).itemsize):
                        writer.write_table(self._table(np.frombuffer(data, BUCKET), level))

    def _add_history(self, before: str | None = None) -> None:
        """Add the curves without new points whose keys come before ``before``, or all that are left."""
        while self._only_history and (before is None or self._keys[self._only_history[-1]] <= before):
            code = self._only_history.pop()
            if self._keys[code] != before:
                self._open = _Pyramid(code, *self._history[code])
                self._close()

    def _close(self) -> None:
        if self._open is not None:
            for level, buckets in self._open.levels():
                if level not in self._levels:
                    self._levels[level] = SpooledTemporaryFile(_MEMORY)  # noqa: SIM115  # write() closes it
                self._levels[level].write(buckets.tobytes())
        self._open = None

    def _table(self, buckets: Any, level: int) -> "pa.Table":
        import pyarrow as pa

        curves, codes = np.unique(buckets["curve"], return_inverse=True)
        columns = [
            dictionary_of(np.zeros(len(buckets), np.int32), [self._run]),
            dictionary_of(codes, [self._keys[curve] for curve in curves.tolist()]),
            column_of(np.full(len(buckets), level, np.int32), pa.int32()),
        ]
        columns += [column_of(buckets[field.name], field.type) for field in list(schema())[3:]]
        return pa.Table.from_arrays(columns, schema=schema())


class _Pyramid:
    """The levels of one curve.

    Args:
        level: that of ``history``.
        history: buckets of an earlier rollup whose points were dropped. Points that are logged again at the
            steps of such a bucket become a bucket beside it. At level 0 a bucket is a single point, and the
            new point replaces it.
    """

    def __init__(self, code: int, level: int, history: Any) -> None:
        self.code = code
        self._level = level
        self._history = history
        self._points: list[Any] = []
        self._waiting = 0
        self._finished: list[Any] = []  # The buckets of level 2.

    def add(self, points: Any) -> None:
        """Take the curve's next points, of dtype ``POINT``, in order."""
        self._points.append(points)
        self._waiting += len(points)
        if self._waiting >= _MANY:
            points = stitch(np.concatenate(self._points))
            whole = (len(points) - 1) // FAN**2 * FAN**2  # the last point may be superseded yet
            if whole:
                self._finished.append(group_by_eight(group_by_eight(as_buckets(points[:whole]))))
            self._points = [points[whole:]]
            self._waiting = len(points) - whole

    def levels(self) -> Iterator[tuple[int, Any]]:
        """The levels to keep as (level, buckets), once all points are added."""
        points = stitch(np.concatenate([np.empty(0, POINT), *self._points]))
        level = 0
        buckets = as_buckets(points)
        if self._finished:
            level = 2
            buckets = np.concatenate([*self._finished, group_by_eight(group_by_eight(buckets))])
        if self._history is not None:
            level, buckets = self._with_history(level, buckets)
        while len(buckets) > COARSE:
            if level >= 2:
                yield level, buckets
            level = level + 1
            buckets = group_by_eight(buckets)
        yield level, buckets

    def _with_history(self, level: int, buckets: Any) -> tuple[int, Any]:
        """Join new buckets with those of ``history``, at the coarser level of the two."""
        common = max(level, self._level)
        for _ in range(common - level):
            buckets = group_by_eight(buckets)
        history = self._history
        for _ in range(common - self._level):
            history = group_by_eight(history)
        buckets = np.concatenate([history, buckets])
        buckets = buckets[np.argsort(buckets["step"], kind="stable")]
        if common == 0:
            buckets = stitch(buckets)
        return common, buckets
