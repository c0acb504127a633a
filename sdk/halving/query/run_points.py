"""Every point of many of a run's metrics, read together.

Each file is read once for all metrics. Files never change, so a later look reads only the new ones.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

from halving.metrics.manifest import RunFiles, project_folder, run_files
from halving.metrics.parquet_reader import Files, mixed_of, read_mixed
from halving.metrics.points import MixedPoints, Points, by_attempt, join_points, separate
from halving.query.curve_reader import read_listed
from halving.query.runs import in_threads
from halving.query.tail import tail
from halving.store.store import Store


class PointsNow(NamedTuple):
    """A run's points at one time.

    Attributes:
        points: by metric, of all attempts, ordered by attempt, then as logged (compacted ones by step).
            Read-only.
        dropped: the metrics of which retention has dropped points; they are not in ``points``.
    """

    points: dict[str, Points]
    dropped: list[str]


class RunPoints:
    """The points of some of a run's metrics, kept in memory as far as they were read.

    Only one thread at a time may use it.

    Args:
        wants: whether a metric is wanted, by its name.
    """

    def __init__(self, store: Store, project: str, run: str, wants: Callable[[str], bool]) -> None:
        self._store = store
        self._project = project
        self._run = run
        self._wants = cache(wants)
        self._points: dict[str, Points] = {}
        self._generation = 0  # of the manifest whose file was read
        self._segments: set[str] = set()  # that were read
        self._rolled_up: set[str] = set()  # metrics of which retention has left only a rollup

    @property
    def nbytes(self) -> int:
        """Bytes of the points that are kept."""
        return sum(column.nbytes for points in self._points.values() for column in points)

    def look(self) -> PointsNow:
        """Read every point that the run has now.

        Raises:
            StoreError: the store cannot be read, a metric file is damaged, or files are missing each time.
        """
        return read_listed(self._store, self._run, self._look)

    def _look(self) -> PointsNow:
        listed = run_files(self._store, self._project, self._run)
        live = tail(self._store, self._project, self._run, listed)
        if listed.manifest.generation != self._generation or not self._segments <= listed.segments.keys():
            self._forget()
        self._read_new(listed)
        points = self._points
        if live is not None:
            points = _join(points, [mixed_of(live, self._wants)])
        complete = {key: own for key, own in points.items() if listed.manifest.has_all_points(key)}
        return PointsNow(complete, sorted((points.keys() | self._rolled_up) - complete.keys()))

    def _read_new(self, listed: RunFiles) -> None:
        """Read the files that were not read yet; if one is gone, nothing changes."""
        manifest = listed.manifest
        rolled_up = self._rolled_up
        is_compacted_anew = manifest.generation != self._generation
        if is_compacted_anew and manifest.rollup and (manifest.history or not manifest.full):
            rolled_up = set(filter(self._wants, Files(self._store).keys(self._path(manifest.rollup))))
        new = [name for name in listed.segments if name not in self._segments]
        full = None
        if is_compacted_anew:
            full = manifest.full
        # The parts are an iterator, so that each is freed after it was joined.
        self._points = _join(
            self._points, self._parts(full, {name: listed.segments[name][0] for name in new})
        )
        self._generation = manifest.generation
        self._rolled_up = rolled_up
        self._segments.update(new)

    def _parts(self, full: str | None, segments: dict[str, int]) -> Iterator[MixedPoints]:
        """The wanted points of some files.

        Args:
            segments: to their attempts.
        """
        if full is not None:
            yield from read_mixed(self._store, self._path(full), self._wants)

        def read(name: str) -> list[MixedPoints]:
            return list(read_mixed(self._store, self._store.path(name), self._wants, segments[name]))

        # One thread reads local files as fast as several; each file of an object store is a wait.
        if self._store.folder is None:
            parts: Iterable[list[MixedPoints]] = in_threads(read, segments)
        else:
            parts = map(read, segments)
        for part in parts:
            yield from part

    def _path(self, name: str) -> str:
        return self._store.path(f"{project_folder(self._project)}/{name}")

    def _forget(self) -> None:
        self._points = {}
        self._generation = 0
        self._segments = set()
        self._rolled_up = set()


def _join(points: dict[str, Points], parts: Iterable[MixedPoints]) -> dict[str, Points]:
    """Append parts to points; the result is read-only, because callers share it."""
    joined = dict(points)
    for key, more in separate(parts).items():
        if key in points:
            more = join_points([points[key], more])
        joined[key] = by_attempt(more)
        for column in joined[key]:
            column.flags.writeable = False
    return joined
