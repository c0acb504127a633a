"""The points of a run's system metrics, and a cache of them for pages that read them every few seconds."""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from halving import Store
from halving.errors import StoreError
from halving.metrics.points import Points
from halving.query.run_points import RunPoints

MAX_BYTES = 128 << 20
_MAX_RUNS = 256  # runs without points take some memory, too


def read_system_points(
    store: Store, project: str, run: str, patterns: Iterable[re.Pattern[str]]
) -> dict[str, Points] | None:
    """Read every point of a run's metrics whose names match one of the patterns.

    Returns:
        Points of all attempts by metric, ordered by attempt, then as logged. A metric whose points retention
        has dropped is left out. None while the store cannot be read.
    """
    return _look_at(_points_of(store, project, run, tuple(patterns)))


@dataclass
class _Kept:
    """A run's points in memory, and their size in bytes after the last look."""

    points: RunPoints
    lock: threading.Lock = field(default_factory=threading.Lock)
    size: int = 0


class KeptSystemPoints:
    """A cache of :func:`read_system_points` for runs that are looked at again and again.

    A call reads only points that are new since the last call for this run. Memory is bounded: the run whose
    last call is the oldest is dropped first.

    Args:
        limit: the bytes of all points, at most.
    """

    def __init__(self, store: Store, patterns: Iterable[re.Pattern[str]], limit: int = MAX_BYTES) -> None:
        self._store = store
        self._patterns = tuple(patterns)
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[tuple[str, str, int | None], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, project: str, run: str) -> dict[str, Points] | None:
        """Read the points of a run, as :func:`read_system_points` does."""
        record = self._store.path(f"runs/project={project}/{run}/record.json")
        try:
            # A run that was deleted and recorded again under its id may have files of the same names.
            name = (project, run, self._store.filesystem.get_file_info(record).mtime_ns)
        except OSError:
            return None
        with self._lock:
            kept = self._kept.setdefault(name, _Kept(_points_of(self._store, project, run, self._patterns)))
            self._kept.move_to_end(name)
        with kept.lock:  # A second call at the same time must not read the same points again.
            points = _look_at(kept.points)
            size = kept.points.nbytes
        with self._lock:
            if self._kept.get(name) is kept:
                self._size += size - kept.size
                kept.size = size
            while self._size > self._limit or len(self._kept) > _MAX_RUNS:
                self._size -= self._kept.popitem(last=False)[1].size
        return points


def _points_of(store: Store, project: str, run: str, patterns: tuple[re.Pattern[str], ...]) -> RunPoints:
    return RunPoints(store, project, run, lambda key: any(pattern.fullmatch(key) for pattern in patterns))


def _look_at(points: RunPoints) -> dict[str, Points] | None:
    try:
        return points.look().points
    except StoreError:
        return None
