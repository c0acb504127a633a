"""Sorting more points than fit into memory: sorted runs on the local disk, merged curve by curve.

The points of a run's key are one curve. Within it they come in the order (step, attempt, order of arrival),
so that the last one of a step is the one that counts.
"""

import mmap
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from halving.metrics.numpy_arrow import codes_of, numbers_in

if TYPE_CHECKING:
    import pyarrow as pa

POINT = [("curve", "<i4"), ("attempt", "<i4"), ("step", "<i8"), ("wall_time", "<i8"), ("value", "<f8")]
LIMIT = 1 << 21  # points in memory at once: 64 MiB, and about three times that while they are sorted


class Sorter:
    """Sorts a run's points, which are added in order of arrival.

    Args:
        limit: how many points to hold in memory.

    Attributes:
        keys: of each curve; the column ``curve`` has places in it.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.keys: list[str] = []
        self._codes: dict[str, int] = {}
        self._limit = limit
        self._pending: list[Any] = []
        self._count = 0
        self._sorted: list[_Sorted] = []
        self._maps: list[mmap.mmap] = []

    def add(self, batch: "pa.RecordBatch") -> None:
        """Add points; among equal ones, those that are added first come first.

        Args:
            batch: columns ``attempt, key, step, wall_time, value``.
        """
        if not batch.num_rows:
            return
        places, keys = codes_of(batch.column("key"))
        codes = np.zeros(len(keys), np.int32)
        for place in np.unique(places).tolist():  # a dictionary may name more keys than occur
            codes[place] = self.code(keys[place])
        points = np.empty(batch.num_rows, POINT)
        points["curve"] = codes[places]
        for name in ("attempt", "step", "wall_time", "value"):
            points[name] = numbers_in(batch.column(name))
        self._pending.append(points)
        self._count += len(points)
        if self._count >= self._limit:
            self._spill()

    def code(self, key: str) -> int:
        """The place of a key in :attr:`keys`; a new key is appended."""
        if key not in self._codes:
            self._codes[key] = len(self.keys)
            self.keys.append(key)
        return self._codes[key]

    def totals(self) -> np.ndarray[Any, Any]:
        """How many points each curve has, shape (curves,)."""
        self._sort_pending()
        totals = np.zeros(len(self.keys), np.int64)
        for part in self._sorted:
            totals[: len(part.starts) - 1] += np.diff(part.starts)
        return totals

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """The points in the order (key, step, attempt, arrival), about ``limit`` at a time.

        They are of dtype :data:`POINT`. A chunk ends between two curves; it ends within a curve only if the
        curve alone is longer than ``limit``.
        """
        self._sort_pending()
        waiting: list[tuple[int, list[Any]]] = []
        count = 0
        for code in sorted(range(len(self.keys)), key=self.keys.__getitem__):
            slices = [points for points in (part.of(code) for part in self._sorted) if len(points)]
            length = sum(map(len, slices))
            if waiting and count + length > self._limit:
                yield self._merge(waiting)
                waiting = []
                count = 0
            if length > self._limit:
                for part in _split(slices, self._limit):
                    yield self._merge([(code, part)])
            elif length:
                waiting.append((code, slices))
                count += length
        if waiting:
            yield self._merge(waiting)

    def _merge(self, waiting: Sequence[tuple[int, list[Any]]]) -> Any:
        points = np.concatenate([part for _, slices in waiting for part in slices])
        for mapped in self._maps:
            # The pages are copied, and need not count as memory of this process any longer.
            mapped.madvise(mmap.MADV_DONTNEED)
        lengths = [sum(map(len, slices)) for _, slices in waiting]
        return _in_order(points, np.repeat(np.arange(len(waiting), dtype=np.int32), lengths))

    def _sort_pending(self) -> None:
        if self._pending:
            points = np.concatenate(self._pending)
            self._pending = []
            self._count = 0
            points = _in_order(points, points["curve"])
            self._sorted.append(
                _Sorted(points, np.searchsorted(points["curve"], np.arange(len(self.keys) + 1)))
            )

    def _spill(self) -> None:
        self._sort_pending()
        with tempfile.TemporaryFile() as file:
            self._sorted[-1].points.tofile(file)
            # The file exists as long as this mapping does.
            self._maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._sorted[-1] = _Sorted(np.frombuffer(self._maps[-1], POINT), self._sorted[-1].starts)


class _Sorted(NamedTuple):
    """Points sorted by the number of their curve, and where each curve starts."""

    points: Any
    starts: Any

    def of(self, code: int) -> Any:
        if code + 1 >= len(self.starts):
            return self.points[:0]
        return self.points[self.starts[code] : self.starts[code + 1]]


def _in_order(points: Any, rank: Any) -> Any:
    """Sort points stably by (rank, step, attempt).

    Points that are in order already, as nearly all are, are only compared.
    """
    if (rank[1:] < rank[:-1]).any():
        order = np.argsort(rank, kind="stable")
        points = points[order]
        rank = rank[order]
    step = points["step"]
    attempt = points["attempt"]
    down = (step[1:] < step[:-1]) | ((step[1:] == step[:-1]) & (attempt[1:] < attempt[:-1]))
    if (down & (rank[1:] == rank[:-1])).any():
        points = points[np.lexsort((attempt, step, rank))]
    return points


def _split(
    slices: list[Any], limit: int, fields: tuple[str, ...] = ("step", "attempt")
) -> Iterator[list[Any]]:
    """One long curve's sorted slices in parts of at most ``limit`` points, in order."""
    if sum(map(len, slices)) <= limit:
        yield slices
    elif not fields:  # all of one step and attempt: the order of arrival is the order
        for points in slices:
            for start in range(0, len(points), limit):
                yield [points[start : start + limit]]
    else:
        columns = [points[fields[0]] for points in slices]
        low = min(int(column[0]) for column in columns)
        high = max(int(column[-1]) for column in columns)
        if low == high:
            yield from _split(slices, limit, fields[1:])
            return
        cuts = [bisect_right(column, (low + high) // 2) for column in columns]
        for half in (
            [points[:cut] for points, cut in zip(slices, cuts, strict=True) if cut],
            [points[cut:] for points, cut in zip(slices, cuts, strict=True) if cut < len(points)],
        ):
            if half:
                yield from _split(half, limit, fields)
