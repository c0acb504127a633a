"""Curves, last values and best values of many runs.

A curve of any length is read from a few thousand buckets, with Arrow and numpy, in half the time that it
takes to import a database. :func:`halving.query.sql` asks DuckDB.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from halving.errors import InvalidInput, NotFound
from halving.identifiers import check_name
from halving.metrics import downsampling
from halving.metrics.manifest import runs_of
from halving.metrics.points import EVERYWHERE
from halving.query.curve_reader import RunCurves, Window, open_run_curves, read_run_curves
from halving.query.curve_table import CurveRows, board_of, rows_of, smoother_of, table_of
from halving.query.runs import describe_choices, find_run, list_names, read_run
from halving.records.amendments import ACTIVE
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

Direction = Literal["minimize", "maximize"]
Root = str | os.PathLike[str] | Store | None

MAX_POINTS = 1_000
_MAX_NAMED = 8  # names in a message
_REMOTE_THREADS = 16  # reading an object store is mostly waiting


class _NamedRun(NamedTuple):
    """A run as the caller named it, with its project and id."""

    name: str
    project: str
    run: str


def curves(
    runs: str | Iterable[str],
    keys: str | Iterable[str],
    *,
    project: str | None = None,
    root: Root = None,
    x: Literal["step", "time"] = "step",
    max_points: int | None = MAX_POINTS,
    window: tuple[Any, Any] | None = None,
    smooth: Mapping[str, float] | None = None,
    attempts: Literal["stitched", "raw"] = "stitched",
    edges: Literal["exact", "whole"] = "exact",
) -> "pa.Table":
    """Read metrics of runs as curves.

    A run that is training on this machine is read up to its latest ``log()``.

    Args:
        runs: ids, as ``project/run``; or without the project, if ``project`` is given or if no other project
            has such a run.
        keys: names of metrics.
        root: the store (default: ``HALVING_ROOT``, then ``./.halving``).
        x: what the curve is sorted and windowed by.
        max_points: the greatest number of rows of a curve. A longer curve comes in buckets of neighbouring
            points, at least half as many: ``step`` and ``wall_time`` of the first point, ``value`` the mean
            of finite values, ``min``, ``max``, and the ``count`` of points. None returns every point and no
            ``min, max, count``.
        window: ``(low, high)``, both included, either None for open; steps, or with ``x="time"`` datetimes or
            seconds since 1970. Only the points in it are downsampled, so that a narrow window has every
            point.
        edges: ``exact``: nothing outside of the window enters. ``whole``: a bucket that crosses an end of the
            window is returned whole, which is faster, because no points are read for it. Single points
            outside of the window are never returned.
        smooth: ``{"ema": w}``, an exponential moving average with weight 0 <= w < 1 for the past, unbiased at
            the start as Adam's moments are (Kingma & Ba 2014, section 3); or ``{"mean": n}``, the mean of the
            last n points. It is applied to the rows of the result, after downsampling. NaN and infinities
            stay where they are and do not enter the averages.
        attempts: ``stitched``: at each step the value that the highest attempt logged last. ``raw``: all
            values, each attempt a curve.

    Returns:
        ``run`` (the caller's name for it), ``key``, with raw attempts ``attempt``, ``step``,
        ``wall_time`` (UTC), ``value``, and ``min, max, count`` unless ``max_points`` is None; sorted by run,
        key, (attempt,) x.

    Raises:
        NotFound: no such run; none of the runs has the key; or single points are needed and retention has
            left only rollups.
        InvalidInput: an argument is not accepted.
    """
    rows = curve_rows(
        runs,
        keys,
        project=project,
        root=root,
        x=x,
        max_points=max_points,
        window=window,
        smooth=smooth,
        attempts=attempts,
        edges=edges,
    )
    return table_of(rows, raw=attempts == "raw", single=max_points is None)


def curve_rows(
    runs: str | Iterable[str],
    keys: str | Iterable[str],
    *,
    project: str | None = None,
    root: Root = None,
    x: Literal["step", "time"] = "step",
    max_points: int | None = MAX_POINTS,
    window: tuple[Any, Any] | None = None,
    smooth: Mapping[str, float] | None = None,
    attempts: Literal["stitched", "raw"] = "stitched",
    edges: Literal["exact", "whole"] = "exact",
    known_keys: bool = True,
    after_each: Callable[[int], None] | None = None,
    opened: Callable[[str, str, Sequence[str]], RunCurves] | None = None,
) -> list[CurveRows]:
    """Read curves as :func:`curves` does, with the rows as arrays; curves without rows are left out.

    Arguments and errors are the same.

    Args:
        known_keys: raise an error for a key that none of the runs has.
        after_each: called after each curve with the number of its rows, and with 0 before each block that is
            read of it, by several threads. What it raises ends the query.
        opened: returns a reader for a project, a run and keys, where the caller may have it already. Local
            files are then read by this thread alone.
    """
    if max_points is not None and (
        isinstance(max_points, bool) or not isinstance(max_points, int) or max_points < 1
    ):
        raise InvalidInput(
            f"max_points {max_points!r} is not accepted: give a number from 1 on, or None for every point"
        )
    if attempts not in ("stitched", "raw"):
        raise InvalidInput(f'attempts {attempts!r} is not accepted: give "stitched" or "raw"')
    if edges not in ("exact", "whole"):
        raise InvalidInput(f'edges {edges!r} is not accepted: give "exact" or "whole"')
    axis = _axis(x)
    names = _keys(keys)
    smoother = smoother_of(smooth)
    part = _window(axis, window, edges == "exact")

    def of_run(named_run: _NamedRun, reader: RunCurves) -> list[CurveRows]:
        curves = []
        if after_each is not None:
            reader.check_while_reading(partial(after_each, 0))
        for key in names:
            for attempt, units in _parts(reader, key, part, max_points, attempts == "raw"):
                if axis == "wall_time":
                    units = units[np.argsort(units["wall_time"], kind="stable")]
                curves.append(CurveRows.of(named_run.name, key, attempt, units, max_points, smoother))
                if after_each is not None:
                    after_each(len(curves[-1].step))
        return curves

    return [
        curve for curve in _read(runs, names, project, root, of_run, known_keys, opened) if len(curve.step)
    ]


def last(
    runs: str | Iterable[str], keys: str | Iterable[str], *, project: str | None = None, root: Root = None
) -> "pa.Table":
    """Read the value at the greatest step of each run's stitched curve.

    The columns are ``run, key, step, wall_time, value``; values may be NaN and infinite. Arguments and errors
    are as in :func:`curves`. A run without the key has no row.
    """
    names = _keys(keys)
    rows = _read(
        runs,
        names,
        project,
        root,
        lambda named_run, reader: [(named_run.name, key, reader.last(key)) for key in names],
    )
    return rows_of(rows, ("step_last", "wall_time_last", "last"))


def best(
    runs: str | Iterable[str],
    keys: str | Iterable[str],
    *,
    direction: Direction,
    project: str | None = None,
    root: Root = None,
) -> "pa.Table":
    """Read the best finite value of each run's stitched curve, and the first step that has it.

    The columns are ``run, key, step, wall_time, value``. Where retention has left only rollups the value is
    exact, and ``step`` and ``wall_time`` are null. A run without a finite value has no row.

    Args:
        direction: ``minimize`` or ``maximize``; other arguments and errors are as in :func:`curves`.
    """
    column = _column(direction)
    names = _keys(keys)

    def of_run(named_run: _NamedRun, reader: RunCurves) -> list[Any]:
        return [(named_run.name, key, reader.best(key, column)) for key in names]

    return rows_of(_read(runs, names, project, root, of_run), ("step", "wall_time", column))


def leaderboard(
    project: str, metric: str, *, direction: Direction, limit: int | None = 20, root: Root = None
) -> "pa.Table":
    """Rank a project's active runs by the best value of a metric, the best first.

    Returns:
        ``rank`` (from 1), ``run``, ``value`` (the best finite), ``step`` (its first), ``last`` (the latest
        value), ``status``, and a column ``params.NAME`` for each param, nested ones as
        ``params.optimizer/lr``; numbers where all runs have numbers that one type holds exactly (beyond 64
        bits decimals of 38 digits), else text.

    Raises:
        NotFound: no such project, or none of its runs has the metric.
        InvalidInput: ``limit`` or ``direction`` is not accepted.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidInput(f"limit {limit!r} is not accepted: give a number from 1 on, or None for all runs")
    column = _column(direction)
    store = _store(root)
    names = sorted({run for _, run in list_names(store, project)} & set(runs_of(store, project)))

    def of_run(named_run: _NamedRun, reader: RunCurves) -> list[Any]:
        return [(named_run.run, metric, reader.last(metric), reader.best(metric, column))]

    rows = [
        (run, top, end) for run, _, end, top in _read(names, [metric], project, store, of_run) if len(top)
    ]
    sign = {"min": 1, "max": -1}[column]
    ranked = sorted(rows, key=lambda row: (sign * float(row[1][column][0]), row[0]))
    described = ((*row, read_run(store, project, row[0])) for row in ranked)
    return board_of(list(islice((row for row in described if row[-1].lifecycle == ACTIVE), limit)), column)


def sql(query: str, *, root: Root = None) -> "pa.Table":
    """Query the store in SQL.

    :mod:`halving.query.sql` describes the views ``metrics``, ``points``, ``runs``, ``params`` and ``media``.
    """
    from halving.query.sql import ask

    return ask(_store(root), query)


def _read(
    runs: str | Iterable[str],
    keys: Sequence[str],
    project: str | None,
    root: Root,
    of_run: Callable[[_NamedRun, RunCurves], list[Any]],
    known_keys: bool = True,
    opened: Callable[[str, str, Sequence[str]], RunCurves] | None = None,
) -> list[Any]:
    """Read the rows that ``of_run`` returns for each run, sorted by the run's name.

    Args:
        of_run: returns rows, each of which begins with the run, the key and the units, which may be empty.
        known_keys: whether a key that none of the runs has is refused.
        opened: as in :func:`curve_rows`.
    """
    store = _store(root)
    named_runs = _find_runs(store, runs, project)
    local = store.folder is not None

    def reader_of(named_run: _NamedRun) -> RunCurves:
        # It has the listing and the footers; the files are closed again, and opened by what reads them.
        if opened:
            return opened(named_run.project, named_run.run, keys)
        return open_run_curves(store, named_run.project, named_run.run, keys)

    def read_rows(named_run: _NamedRun, reader: RunCurves) -> list[Any]:
        read = partial(of_run, named_run)
        return read_run_curves(store, named_run.project, named_run.run, keys, read, reader)

    threads = _REMOTE_THREADS
    if local:
        threads = min(4, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        # Threads do not speed up reading the footers of local files, but they speed up decoding rows, which
        # is done outside of the interpreter's lock. A caller that passes ``opened`` has threads of its own,
        # and mostly there is nothing to decode.
        readers = list(map(reader_of, named_runs)) if local else list(pool.map(reader_of, named_runs))
        for named_run, reader in zip(named_runs, readers, strict=True):
            if reader.is_empty:
                _check_run(store, named_run)
        parts: Iterable[list[Any]] = map(read_rows, named_runs, readers)
        if not local or opened is None:
            parts = pool.map(read_rows, named_runs, readers)
        rows = [row for part in parts for row in part]
    if not known_keys:
        return rows
    full = [run for run, reader in zip(named_runs, readers, strict=True) if not reader.is_empty]
    missing = set(keys) - {key for _, key, units, *_ in rows if len(units)}
    if missing and full:
        _check_keys(store, full[:_MAX_NAMED], missing)
    return rows


def _parts(
    reader: RunCurves, key: str, window: Window | None, max_points: int | None, raw: bool
) -> Iterable[tuple[int | None, Any]]:
    """The attempt and the units of a key's curve; with raw attempts, those of each attempt's curve."""
    if not raw:
        yield None, reader.units(key, max_points, window)
        return
    points = reader.raw(key)
    for attempt in np.unique(points.attempt).tolist():
        own = points.take(points.attempt == attempt)
        own = own.take(np.argsort(own.step, kind="stable"))
        units = downsampling.of_points(own.step, own.time, own.value)
        if window:
            units = units[window.meets(units)]
        yield attempt, units


def _store(root: Root) -> Store:
    if isinstance(root, Store):
        return root
    return Store(root)


def _find_runs(store: Store, runs: str | Iterable[str], project: str | None) -> list[_NamedRun]:
    named_runs: dict[str, _NamedRun] = {}
    for name in _as_list(runs):
        if not isinstance(name, str):
            raise InvalidInput(f"run {name!r} is not accepted: give its id, or project/run")
        own_project, _, run = name.rpartition("/")
        own_project = own_project or project or ""
        if own_project:
            named_runs[name] = _NamedRun(name, check_name("project", own_project), check_name("run id", run))
        else:
            named_runs[name] = _NamedRun(name, *find_run(store, name))
    return sorted(named_runs.values())


def _keys(keys: str | Iterable[str]) -> list[str]:
    names = _as_list(keys)
    for key in names:
        if not isinstance(key, str):
            raise InvalidInput(f"key {key!r} is not accepted: give the name of a metric")
    return sorted(set(names))


def _as_list(names: str | Iterable[str]) -> list[str]:
    if isinstance(names, Iterable) and not isinstance(names, str):
        return list(names)
    return [names]


def _check_run(store: Store, named_run: _NamedRun) -> None:
    if store.exists(f"runs/project={named_run.project}/{named_run.run}/record.json"):
        return  # The run has logged nothing yet.
    names = [run for _, run in list_names(store, named_run.project)]
    raise NotFound(
        f"no run {named_run.run!r} in project {named_run.project!r} of {store.root}; "
        f"{describe_choices('runs', named_run.run, names)}"
    )


def _check_keys(store: Store, runs: list[_NamedRun], missing: set[str]) -> None:
    """Refuse a key that none of the runs has, because it must be misspelt."""
    existing: set[str] = set()
    for named_run in runs:
        existing.update(read_run_curves(store, named_run.project, named_run.run, (), RunCurves.keys))
    for key in sorted(missing - existing):
        raise NotFound(
            f"no metric {key!r} in {', '.join(named_run.name for named_run in runs)}; "
            f"{describe_choices('metrics', key, sorted(existing))}"
        )


def _axis(x: str) -> str:
    if x == "step":
        return "step"
    if x == "time":
        return "wall_time"
    raise InvalidInput(f'x {x!r} is not accepted: give "step" or "time"')


def _column(direction: str) -> str:
    if direction == "minimize":
        return "min"
    if direction == "maximize":
        return "max"
    raise InvalidInput(f'direction {direction!r} is not accepted: give "minimize" or "maximize"')


def _window(axis: str, window: tuple[Any, Any] | None, exact: bool) -> Window | None:
    if window is None:
        return None
    try:
        low, high = window
        lowest, highest = EVERYWHERE[0]
        start = lowest
        if low is not None:
            start = _place(axis, low)
        end = highest
        if high is not None:
            end = _place(axis, high)
    except (TypeError, ValueError, OverflowError):
        accepted = "two steps"
        if axis == "wall_time":
            accepted = "two datetimes, or seconds since 1970"
        raise InvalidInput(
            f"window {window!r} is not accepted: give {accepted}, the lower first; None leaves an end open"
        ) from None
    if start > end:
        raise InvalidInput(
            f"window {window!r} is not accepted: its first end {low!r} comes after the second, {high!r}"
        )
    return Window(axis, max(start, lowest), min(end, highest), exact)


def _place(axis: str, end: Any) -> int:
    if axis == "step":
        return index(end)
    if isinstance(end, datetime):
        return round(end.timestamp() * 1000)
    return round(float(end) * 1000)
