"""One run's curves, read from buckets, and from points only where buckets do not suffice.

Buckets are in rollups and in the footers of segments. A curve is put together from units: buckets and single
points, each with its range of steps. Where the ranges of units overlap, steps were logged again by a resumed
run or out of order; only those ranges are read as points and stitched.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from halving.errors import HalvingError, NotFound, StoreError
from halving.metrics import downsampling
from halving.metrics.manifest import RunFiles, project_folder, run_files
from halving.metrics.numpy_arrow import numbers_of
from halving.metrics.parquet_reader import Files
from halving.metrics.points import (
    EVERYWHERE,
    Points,
    Ranges,
    by_attempt,
    join_points,
    no_points,
    stitch,
    within,
)
from halving.query.tail import tail
from halving.store.store import Store

_LISTINGS = 10  # tries while compactions delete the files that were listed
_Result = TypeVar("_Result")


class Window(NamedTuple):
    """A part of the x axis, both ends included.

    Attributes:
        axis: ``step`` or ``wall_time``.
        exact: buckets that cross an end are read as points; otherwise they are returned whole.
    """

    axis: str
    low: int
    high: int
    exact: bool = True

    def holds(self, units: Any) -> Any:
        """A mask of the units that lie in the window entirely."""
        return (units[self.axis] >= self.low) & (units[self.axis + "_last"] <= self.high)

    def meets(self, units: Any) -> Any:
        """A mask of the units that lie in the window at least in part."""
        return (units[self.axis + "_last"] >= self.low) & (units[self.axis] <= self.high)


class RunCurves:
    """The curves in a run's files, as they were listed once.

    Only one thread at a time may use it, and holds :attr:`lock`.

    Args:
        keys: all keys that will be read.

    Attributes:
        grew: called with the number of additional bytes, where a cache keeps what is read in memory for later
            queries on the same state of the run; None without a cache.
        size: bytes in memory at first.

    Raises:
        FileNotFoundError: here and in any method: a compaction has deleted a file since; create a new one.
    """

    def __init__(self, store: Store, project: str, run: str, keys: Sequence[str]) -> None:
        self.project = project
        self.run = run
        self._files = Files(store)
        self._keys = keys
        # The paths of thousands of segments are joined fastest as texts.
        self._base = store.path("").rstrip("/")
        self.listed: RunFiles = run_files(store, project, run)
        self._tail = tail(store, project, run, self.listed)
        # For each segment the buckets of those keys for which it has some.
        self._summaries = {
            name: _blocks_of(self._files.summary(self._segment_path(name)), keys)
            for name in self.listed.segments
        }
        self._loaded: dict[str, dict[str, Points]] = {}
        self._live: dict[str, Any] = {}
        self._levels: dict[str, _Levels] = {}
        self.lock = threading.Lock()
        self.grew: Callable[[int], None] | None = None
        self.size = sum(block.nbytes for blocks in self._summaries.values() for block in blocks.values())
        if self._tail is not None:
            self.size += self._tail.nbytes

    @property
    def is_empty(self) -> bool:
        """Whether the run has no points at all."""
        return not self.listed.manifest.generation and not self.listed.segments and self._tail is None

    @property
    def is_compacted(self) -> bool:
        """Whether all points are in the manifest's files; then any key may be read."""
        return not self.listed.segments and self._tail is None

    def keys(self) -> list[str]:
        """Every key that the run has points of, sorted."""
        keys: set[str] = set()
        if self._tail is not None:
            keys.update(self._tail["key"].unique().to_pylist())
        compacted = self.listed.manifest.rollup or self.listed.manifest.full
        if compacted:
            keys |= self._files.keys(self._path(compacted))
        for path in map(self._segment_path, self.listed.segments):
            keys |= self._files.keys(path)
        return sorted(keys)

    def close(self) -> None:
        """Close the files and free the points; a method that is called later reads them again."""
        self._loaded.clear()
        self._files.before_each = None
        self._count(self._files.close(keep=self.grew is not None))

    def check_while_reading(self, check: Callable[[], None]) -> None:
        """Call ``check`` before each block that is read, until this is closed; its exception ends reading."""
        self._files.before_each = check

    def forget(self) -> None:
        """Stop keeping data in memory.

        If another thread is reading, it frees the rest when it closes this.
        """
        self.grew = None
        self._levels = {}
        self._live = {}
        if self.lock.acquire(blocking=False):
            self._files.close()
            self.lock.release()

    def raw(self, key: str, ranges: Ranges = EVERYWHERE) -> Points:
        """Every point of a key in some ranges of steps, ordered by attempt.

        The points of an attempt are in the order of logging, but compacted ones in the order of steps.

        Raises:
            NotFound: retention has dropped points of the key.
        """
        if not self._complete(key):
            raise NotFound(
                f"the points of {key!r} in run {self.run!r} were dropped by retention, and only their "
                'rollups are left: give max_points and attempts="stitched"'
            )
        return self._points(key, ranges)

    def stitched_points(self, key: str, ranges: Ranges = EVERYWHERE) -> Points:
        """One point for each step: of the highest attempt, and within it the one logged last.

        It raises the errors of :meth:`raw`.
        """
        return stitch(self.raw(key, ranges))

    def units(self, key: str, limit: int | None, window: Window | None = None) -> Any:
        """The stitched curve in the window, sorted by step, in units.

        It has single points if they are no more than ``limit``, else buckets, at least half as many as
        ``limit``.

        Args:
            limit: the number of rows to which the caller reduces the curve; None for single points.
        """
        if limit is not None:
            live = self._live_units(key)
            rolled = downsampling.empty()
            for rolled in self._rollups(key):  # If no level suffices, the finest one remains.
                if _suffices(_in_window(_both(rolled, live), window), limit):
                    break
            merged = _both(rolled, live)
            if _suffices(_in_window(merged, window), limit) or not self._complete(key):
                return self._resolve_overlaps(key, rolled, live, window)
            if window is not None:
                met = _in_window(merged, window)
                steps = (int(met["step"].min()), int(met["step_last"].max()))
                return _in_window(_units(self.stitched_points(key, [steps])), window)
        return _in_window(_units(self.stitched_points(key)), window)

    def last(self, key: str) -> Any:
        """The curve's last unit, with its ``step_last`` and ``last``; empty without points."""
        return self.units(key, 1)[-1:]

    def best(self, key: str, column: str) -> Any:
        """The unit of the first point with the extreme finite value; empty without one.

        Args:
            column: ``min`` or ``max``.

        Its count is more than 1 only when retention left nothing finer.
        """
        units = self.units(key, 1)
        units = units[units["nonfinite"] < units["count"]]
        if not len(units):
            return units
        extreme = {"min": np.argmin, "max": np.argmax}[column]
        place = int(extreme(units[column]))
        unit = units[place : place + 1]
        if unit["count"][0] > 1 and self._complete(key):
            points = _units(self.stitched_points(key, [(int(unit["step"][0]), int(unit["step_last"][0]))]))
            unit = points[points[column] == unit[column]][:1]
        return unit

    def _resolve_overlaps(self, key: str, rolled: Any, live: Any, window: Window | None) -> Any:
        """Units in the window, with points stitched where the ranges of units overlap or cross an end."""
        complete = self._complete(key)
        if not complete:
            # The points of the buckets are gone; what a resumed run logged again at their steps replaces
            # them.
            rolled = rolled[~_overlapping(rolled, live)]
        units = _both(rolled, live)
        if not len(units):
            return units
        cut = None
        if complete and window is not None and window.exact:
            cut = window
        if bool((units["step"][1:] > units["step_last"][:-1]).all()) and cut is None:
            return _in_window(units, window)
        units = units[np.argsort(units["step"], kind="stable")]
        ends = np.maximum.accumulate(units["step_last"])
        opens = np.append(True, units["step"][1:] > ends[:-1])
        group = np.cumsum(opens) - 1
        sizes = np.bincount(group)
        split = sizes[group] > 1
        if cut is not None:
            split |= (cut.meets(units) & ~cut.holds(units)) & (units["count"] > 1)
        if not split.any():
            return _in_window(units, window)
        starts = units["step"][opens]
        lasts = np.maximum.reduceat(units["step_last"], np.flatnonzero(opens))
        torn = np.unique(group[split])
        points = stitch(
            self._points(key, list(zip(starts[torn].tolist(), lasts[torn].tolist(), strict=True)))
        )
        whole = np.concatenate([units[~np.isin(group, torn)], _units(points)])
        return _in_window(whole[np.argsort(whole["step"], kind="stable")], window)

    def _rollups(self, key: str) -> Iterator[Any]:
        """The compacted part of a curve, level by level from the coarsest to the finest, each read lazily."""
        if not self.listed.manifest.rollup:
            return
        levels = self._levels
        cached = levels.get(key, _Levels((), False))
        yield from cached.read
        if cached.are_all:
            return
        path = self._path(self.listed.manifest.rollup)
        for level in islice(self._files.levels(path, key), len(cached.read), None):
            cached = _Levels((*cached.read, level), False)
            if self._keep(level):
                levels[key] = cached
            yield level
        if self.grew:
            levels[key] = cached._replace(are_all=True)

    def _live_units(self, key: str) -> Any:
        """The buckets and points of a curve that are in no compacted file."""
        if key in self._live:
            return self._live[key]
        live = self._live
        units = self._read_live(key)
        if self._keep(units):
            live[key] = units
        return units

    def _keep(self, units: Any) -> bool:
        """Count units that a cache keeps and make them read-only; whether there is a cache."""
        if self.grew is None:
            return False
        units.flags.writeable = False
        self._count(units.nbytes)
        return True

    def _count(self, more: int) -> None:
        grew = self.grew
        if more and grew:
            grew(more)

    def _read_live(self, key: str) -> Any:
        parts = [
            downsampling.unpack_blocks([blocks[key] for blocks in self._summaries.values() if key in blocks])
        ]
        parts += [
            _units(self._segment(name, key)) for name, blocks in self._summaries.items() if key not in blocks
        ]
        if self._tail is not None:
            parts.append(_units(self._tail_points(key)))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts)

    def _points(self, key: str, ranges: Ranges) -> Points:
        parts = []
        manifest = self.listed.manifest
        if manifest.full:
            parts.append(self._files.points(self._path(manifest.full), key, ranges))
        for name, blocks in self._summaries.items():
            if key in blocks and ranges is not EVERYWHERE:
                own = downsampling.unpack_blocks([blocks[key]])
                if not any(((own["step"] <= high) & (own["step_last"] >= low)).any() for low, high in ranges):
                    continue
            parts.append(within(self._segment(name, key), ranges))
        parts.append(within(self._tail_points(key), ranges))
        return by_attempt(join_points(parts))

    def _segment(self, name: str, key: str) -> Points:
        if name not in self._loaded:
            # Keys with buckets are read as points one at a time, if at all: they have many.
            self._loaded[name] = self._read(
                name, [other for other in self._keys if other not in self._summaries[name]]
            )
        loaded = self._loaded[name]
        if key not in loaded:
            loaded = self._read(name, [key])
        return loaded[key]

    def _read(self, name: str, keys: list[str]) -> dict[str, Points]:
        return self._files.segment(self._segment_path(name), self.listed.segments[name][0], keys)

    def _tail_points(self, key: str) -> Points:
        if self._tail is None:
            return no_points()
        import pyarrow as pa
        import pyarrow.compute as pc

        own = self._tail.filter(pc.equal(self._tail["key"].cast(pa.string()), key))
        return Points(*(numbers_of(own[name]) for name in ("attempt", "step", "wall_time", "value")))

    def _complete(self, key: str) -> bool:
        return self.listed.manifest.has_all_points(key)

    def _path(self, name: str) -> str:
        return f"{self._base}/{project_folder(self.project)}/{name}"

    def _segment_path(self, name: str) -> str:
        return f"{self._base}/{name}"


def open_run_curves(store: Store, project: str, run: str, keys: Sequence[str]) -> RunCurves:
    """Read the listing and the footers of a run's curves; no file stays open.

    Args:
        keys: all keys that will be read.

    Raises:
        StoreError: as :func:`read_run_curves`.
    """
    return read_run_curves(store, project, run, keys, lambda curves: curves)


def read_run_curves(
    store: Store,
    project: str,
    run: str,
    keys: Sequence[str],
    read: Callable[[RunCurves], _Result],
    reader: RunCurves | None = None,
) -> _Result:
    """Call ``read`` with a run's curves, and again with new ones when a compaction has deleted files.

    Args:
        keys: all keys that ``read`` needs.
        reader: the curves to try first, where the caller has them already.

    Raises:
        StoreError: a metric file is damaged, or files are missing each time.
    """

    def read_next() -> _Result:
        nonlocal reader
        curves = reader or RunCurves(store, project, run, keys)
        reader = None
        with curves.lock, closing(curves):
            return read(curves)

    return read_listed(store, run, read_next)


def read_listed(store: Store, run: str, read: Callable[[], _Result]) -> _Result:
    """Call ``read``, and again when a compaction has deleted files between its listing and its opening them.

    Raises:
        StoreError: a metric file is damaged, or files are missing each time.
    """
    for tries_left in reversed(range(_LISTINGS)):
        try:
            return read()
        except FileNotFoundError as error:
            if not tries_left:
                raise StoreError(
                    f"files of run {run!r} in {store.root} are missing each time they are opened: {error}"
                ) from error
        except HalvingError:
            raise
        except ValueError as error:
            # Arrow raises a ValueError for a damaged file.
            raise StoreError(f"a metric file of run {run!r} in {store.root} is damaged: {error}") from error
    raise RuntimeError("no try was made")


class _Levels(NamedTuple):
    """The levels of a curve that were read, the coarsest first, and whether these are all."""

    read: tuple[Any, ...]
    are_all: bool


def _units(points: Points) -> Any:
    return downsampling.of_points(points.step, points.time, points.value)


def _blocks_of(summary: downsampling.SegmentBuckets | None, keys: Sequence[str]) -> dict[str, Any]:
    if summary is None:
        return {}
    return {key: summary.block(key) for key in keys if key in summary.rows}


def _in_window(units: Any, window: Window | None) -> Any:
    if window is None:
        return units
    return units[window.meets(units)]


def _suffices(units: Any, limit: int) -> bool:
    """Whether units are fine enough; a curve with no more points than the limit needs each of its points."""
    if (units["count"] == 1).all():
        return True
    return 2 * len(units) >= limit and int(units["count"].sum()) > limit


def _both(units: Any, others: Any) -> Any:
    if not len(units):
        return others
    if not len(others):
        return units
    return np.concatenate([units, others])


def _overlapping(units: Any, others: Any) -> Any:
    """A mask of the units that share steps with any of ``others``."""
    starts = np.sort(others["step"])
    lasts = np.sort(others["step_last"])
    # Where as many ranges begin up to a unit's end as have ended before its beginning, none overlaps it.
    return np.searchsorted(starts, units["step_last"], "right") > np.searchsorted(
        lasts, units["step"], "left"
    )
