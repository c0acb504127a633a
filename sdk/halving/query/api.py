"""Reading curves, last and best values of many runs.

This is fast: a curve of any length is read from a few thousand buckets.

It is done with Arrow and numpy, in half the time that it takes to import a database;
:func:`halving.query.sql` asks DuckDB.
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
from halving.query.curve_table import CurveRows, board_of, rows_of, smoothed, table_of
from halving.query.runs import find_run, list_names, read_run, there_are
from halving.records.amendments import ACTIVE
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

Direction = Literal["minimize", "maximize"]
Root = str | os.PathLike[str] | Store | None

MAX_POINTS = 1_000
_NAMED = 8  # names in a message
_REMOTE_THREADS = 16  # an object store is mostly waited for


class _Asked(NamedTuple):
    """A run as it was asked for, and where it is."""

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
    """Metrics of runs as curves. A run that is training on this machine is read up to its latest ``log()``.

    Args:
        runs: ids, as ``project/run``, or plain with ``project`` given, or plain if no other project has such
            a run.
        keys: names of metrics.
        root: the store (default: ``HALVING_ROOT``, then ``./.halving``).
        x: what the curve is sorted and windowed by.
        max_points: the most rows of a curve. A longer curve comes in buckets of neighbouring points, at least
            half as many: ``step`` and ``wall_time`` of the first point, ``value`` the mean of finite values,
            ``min``, ``max``, and the ``count`` of points. None gives every point and no ``min, max, count``.
        window: ``(low, high)``, both included, either None for open; steps, or with ``x="time"`` datetimes or
            seconds since 1970. The points in it are downsampled by themselves, so that a narrow window shows
            every point.
        edges: ``exact``: nothing outside of the window enters. ``whole``: a bucket that crosses an end of the
            window is given whole, which is faster, because no points are read for it. Single points outside
            of the window are never given.
        smooth: ``{"ema": w}``, an exponential moving average with weight 0 <= w < 1 for the past, unbiased at
            the start as Adam's moments are (Kingma & Ba 2014, section 3); or ``{"mean": n}``, the mean of the
            last n points. It is applied to the rows of the result, after downsampling. NaN and infinities
            stay where they are and do not enter the averages.
        attempts: ``stitched``: at each step the value that the highest attempt logged last. ``raw``: all
            values, each attempt a curve.

    Returns:
        ``run`` (as asked for), ``key``, with raw attempts ``attempt``, ``step``, ``wall_time`` (UTC),
        ``value``, and ``min, max, count`` unless ``max_points`` is None; sorted by run, key, (attempt,) x.

    Raises:
        NotFound: no such run; none of the runs has the key; or single points were asked for and retention has
            left only rollups.
        InvalidInput: an argument is not accepted.
    """
    found = curve_rows(
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
    return table_of(found, raw=attempts == "raw", single=max_points is None)


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
    """What :func:`curves` gives, each curve's rows as arrays; curves without rows are left out.

    Arguments and errors are the same.

    Args:
        known_keys: a key that none of the runs has is an error.
        after_each: called after each curve with the number of its rows, and with 0 before each block that is
            read of it, by several threads. What it raises ends the query.
        opened: gives the reader of a project's run for some keys, where the caller may have it already. Local
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
    asked_keys = _keys(keys)
    smoother = smoothed(smooth)
    part = _window(axis, window, edges == "exact")

    def of_run(asked: _Asked, reader: RunCurves) -> list[CurveRows]:
        found = []
        if after_each is not None:
            reader.check_while_reading(partial(after_each, 0))
        for key in asked_keys:
            for attempt, units in _parts(reader, key, part, max_points, attempts == "raw"):
                ordered = units if axis == "step" else units[np.argsort(units["wall_time"], kind="stable")]
                found.append(CurveRows.of(asked.name, key, attempt, ordered, max_points, smoother))
                if after_each is not None:
                    after_each(len(found[-1].step))
        return found

    return [
        curve
        for curve in _read(runs, asked_keys, project, root, of_run, known_keys, opened)
        if len(curve.step)
    ]


def last(
    runs: str | Iterable[str], keys: str | Iterable[str], *, project: str | None = None, root: Root = None
) -> "pa.Table":
    """The value at the greatest step of each run's stitched curve, NaN and infinities too: ``run, key, step,
    wall_time, value``.

    Arguments and errors are as in :func:`curves`. A run without the key has no row.
    """
    asked_keys = _keys(keys)
    found = _read(
        runs,
        asked_keys,
        project,
        root,
        lambda asked, reader: [(asked.name, key, reader.last(key)) for key in asked_keys],
    )
    return rows_of(found, ("step_last", "wall_time_last", "last"))


def best(
    runs: str | Iterable[str],
    keys: str | Iterable[str],
    *,
    direction: Direction,
    project: str | None = None,
    root: Root = None,
) -> "pa.Table":
    """The best finite value of each run's stitched curve, and its first step: ``run, key, step, wall_time,
    value``.

    Args:
        direction: ``minimize`` or ``maximize``.

    Where retention has left only rollups the value is exact, and ``step`` and ``wall_time`` are null. Other
    arguments and errors are as in :func:`curves`. A run without a finite value has no row.
    """
    column = _column(direction)
    asked_keys = _keys(keys)

    def of_run(asked: _Asked, reader: RunCurves) -> list[Any]:
        return [(asked.name, key, reader.best(key, column)) for key in asked_keys]

    return rows_of(_read(runs, asked_keys, project, root, of_run), ("step", "wall_time", column))


def leaderboard(
    project: str, metric: str, *, direction: Direction, limit: int | None = 20, root: Root = None
) -> "pa.Table":
    """A project's runs by the best value of a metric, the best first, without those that are archived or
    deleted.

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

    def of_run(asked: _Asked, reader: RunCurves) -> list[Any]:
        return [(asked.run, metric, reader.last(metric), reader.best(metric, column))]

    rows = [
        (run, top, end) for run, _, end, top in _read(names, [metric], project, store, of_run) if len(top)
    ]
    ranked = sorted(rows, key=lambda row: (float(row[1][column][0]) * (1 if column == "min" else -1), row[0]))
    described = ((*row, read_run(store, project, row[0])) for row in ranked)
    return board_of(list(islice((row for row in described if row[-1].lifecycle == ACTIVE), limit)), column)


def sql(query: str, *, root: Root = None) -> "pa.Table":
    """Ask the store in SQL; see :mod:`halving.query.sql` for the views ``metrics``, ``points``, ``runs``,
    ``params`` and ``media``.
    """
    from halving.query.sql import ask

    return ask(_store(root), query)


def _read(
    runs: str | Iterable[str],
    keys: Sequence[str],
    project: str | None,
    root: Root,
    of_run: Callable[[_Asked, RunCurves], list[Any]],
    known_keys: bool = True,
    opened: Callable[[str, str, Sequence[str]], RunCurves] | None = None,
) -> list[Any]:
    """``of_run`` of every run, sorted by name.

    Args:
        of_run: gives rows, each of which begins with the run, the key and what was found, which is empty if
            nothing was.
        known_keys: whether a key that none of the runs has is refused.
        opened: as in :func:`curve_rows`.
    """
    store = _store(root)
    asked = _asked(store, runs, project)
    local = store.folder is not None

    def reader_of(one: _Asked) -> RunCurves:
        # With its listing and footers; the files are closed again, and opened by what reads them.
        return (
            opened(one.project, one.run, keys)
            if opened
            else open_run_curves(store, one.project, one.run, keys)
        )

    def answered(one: _Asked, reader: RunCurves) -> list[Any]:
        return read_run_curves(store, one.project, one.run, keys, lambda latest: of_run(one, latest), reader)

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1) if local else _REMOTE_THREADS) as pool:
        # Footers of local files are read faster than by threads; rows are decoded outside of the
        # interpreter's lock.
        # whoever has readers has threads, too, and mostly nothing is decoded
        each = map if local and opened else pool.map
        readers = [reader_of(one) for one in asked] if local else list(pool.map(reader_of, asked))
        for one, reader in zip(asked, readers, strict=True):
            if reader.is_empty:
                _check_run(store, one)
        found = [row for rows in each(answered, asked, readers) for row in rows]
    if not known_keys:
        return found
    full = [one for one, reader in zip(asked, readers, strict=True) if not reader.is_empty]
    missing = set(keys) - {key for _, key, units, *_ in found if len(units)}
    if missing and full:
        _check_keys(store, full[:_NAMED], missing)
    return found


def _parts(
    reader: RunCurves, key: str, window: Window | None, max_points: int | None, raw: bool
) -> Iterable[tuple[int | None, Any]]:
    """A key's curve, or with raw attempts one for each: attempt and units."""
    if not raw:
        yield None, reader.units(key, max_points, window)
        return
    points = reader.raw(key)
    for attempt in np.unique(points.attempt).tolist():
        own = points.take(points.attempt == attempt)
        own = own.take(np.argsort(own.step, kind="stable"))
        units = downsampling.of_points(own.step, own.time, own.value)
        yield attempt, units[window.meets(units)] if window else units


def _store(root: Root) -> Store:
    return root if isinstance(root, Store) else Store(root)


def _asked(store: Store, runs: str | Iterable[str], project: str | None) -> list[_Asked]:
    found: dict[str, _Asked] = {}
    for name in runs if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]:
        if not isinstance(name, str):
            raise InvalidInput(f"run {name!r} is not accepted: give its id, or project/run")
        given, _, run = name.rpartition("/")
        if given or project:
            found[name] = _Asked(
                name, check_name("project", given or str(project)), check_name("run id", run)
            )
        else:
            found[name] = _Asked(name, *find_run(store, name))
    return sorted(found.values())


def _keys(keys: str | Iterable[str]) -> list[str]:
    found = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else [keys]
    for key in found:
        if not isinstance(key, str):
            raise InvalidInput(f"key {key!r} is not accepted: give the name of a metric")
    return sorted(set(found))


def _check_run(store: Store, asked: _Asked) -> None:
    if store.exists(f"runs/project={asked.project}/{asked.run}/record.json"):
        return  # it has logged nothing yet
    names = [run for _, run in list_names(store, asked.project)]
    raise NotFound(
        f"no run {asked.run!r} in project {asked.project!r} of {store.root}; "
        f"{there_are('runs', asked.run, names)}"
    )


def _check_keys(store: Store, runs: list[_Asked], missing: set[str]) -> None:
    """Refuse a key that none of the runs has: it is misspelt."""
    known = {key for one in runs for key in read_run_curves(store, one.project, one.run, (), RunCurves.keys)}
    for key in sorted(missing - known):
        raise NotFound(
            f"no metric {key!r} in {', '.join(one.name for one in runs)}; "
            f"{there_are('metrics', key, sorted(known))}"
        )


def _axis(x: str) -> str:
    if x not in ("step", "time"):
        raise InvalidInput(f'x {x!r} is not accepted: give "step" or "time"')
    return "step" if x == "step" else "wall_time"


def _column(direction: str) -> str:
    if direction not in ("minimize", "maximize"):
        raise InvalidInput(f'direction {direction!r} is not accepted: give "minimize" or "maximize"')
    return "min" if direction == "minimize" else "max"


def _window(axis: str, window: tuple[Any, Any] | None, exact: bool) -> Window | None:
    if window is None:
        return None
    try:
        low, high = window
        ends = [
            bound if end is None else _place(axis, end)
            for end, bound in zip((low, high), EVERYWHERE[0], strict=True)
        ]
    except (TypeError, ValueError, OverflowError):
        accepted = "two steps" if axis == "step" else "two datetimes, or seconds since 1970"
        raise InvalidInput(
            f"window {window!r} is not accepted: give {accepted}, the lower first; None leaves an end open"
        ) from None
    if ends[0] > ends[1]:
        raise InvalidInput(
            f"window {window!r} is not accepted: its first end {low!r} comes after the second, {high!r}"
        )
    return Window(axis, max(ends[0], EVERYWHERE[0][0]), min(ends[1], EVERYWHERE[0][1]), exact)


def _place(axis: str, end: Any) -> int:
    if axis == "step":
        return index(end)
    if isinstance(end, datetime):
        return round((end if end.tzinfo else end.astimezone()).timestamp() * 1000)
    return round(float(end) * 1000)
