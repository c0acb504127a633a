"""Last values, extremes and whole curves of single runs, read from their points."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from halving.query.runs import RunInfo, in_threads
from halving.store.store import Store

if TYPE_CHECKING:
    from halving.metrics.points import Points
    from halving.query.curve_reader import RunCurves

_Result = TypeVar("_Result")


class Extremes(NamedTuple):
    """A stitched curve in four numbers.

    Attributes:
        last: the value that was logged last, which may be NaN or infinite, as the run's attempts recorded it
            when they ended. Before the newest attempt has ended it is the value at the greatest step, because
            the order of logging is not kept for ever.
        min, max: over finite values; None if there are none, or if retention left no points.
        points: the number of steps with a value; None if retention left no points.
    """

    last: float
    min: float | None
    max: float | None
    points: int | None


def fill_last(store: Store, runs: list[RunInfo], keys: list[str] | None = None) -> list[RunInfo]:
    """Complete the summaries of runs from their points, where the newest attempt recorded none.

    Args:
        keys: read only these; None reads all, and then the runs count as summarized.
    """

    def fill(info: RunInfo) -> RunInfo:
        if info.summarized:
            return info
        extremes = read_extremes(store, info, keys)
        last = {key: value.last for key, value in extremes.items()}
        return replace(info, summary=info.summary | last | _defined(info, extremes), summarized=keys is None)

    return in_threads(fill, runs)


def _defined(info: RunInfo, extremes: Mapping[str, Extremes]) -> dict[str, float]:
    """The minima and maxima that a script wants of its metrics, which a killed attempt did not record."""
    values: dict[str, float] = {}
    for key, extreme in extremes.items():
        for operation in _wanted(info.defined_metrics, key):
            value = {"min": extreme.min, "max": extreme.max}.get(operation)
            if value is not None:
                values[f"{key}/{operation}"] = value
    return values


def _wanted(defined: Mapping[str, Mapping[str, Any]], key: str) -> list[str]:
    """What a script wants in the summary of a metric: by its name, or by the longest pattern that fits."""
    fitting = [name for name in defined if name.endswith("*") and key.startswith(name[:-1])]
    name = key.replace("/", ".")
    for exact in (key, name):
        if exact in defined:
            return list(defined[exact].get("summary") or ())
    if not fitting:
        return []
    return list(defined[max(fitting, key=len)].get("summary") or ())


def read_extremes(store: Store, info: RunInfo, keys: list[str] | None = None) -> dict[str, Extremes]:
    """Read the extremes of each key; where retention left no points, only the last value.

    Raises:
        StoreError: a metric file is damaged.
    """
    if keys is not None:
        wanted = keys
    elif info.all_summarized:
        # Searching the points for their keys would take as long as everything else.
        wanted = sorted(info.summary)
    else:
        wanted = keys_of(store, info.project, info.run)
    read = _read(
        store, info.project, info.run, wanted, lambda reader: {key: _extremes(reader, key) for key in wanted}
    )
    extremes = {key: value for key, value in read.items() if value is not None}
    for key, last in info.summary.items():
        if key not in extremes and (keys is None or key in keys):
            extremes[key] = Extremes(last, None, None, None)
        elif key in extremes and info.summarized:
            extremes[key] = extremes[key]._replace(last=last)
    return dict(sorted(extremes.items()))


def keys_of(store: Store, project: str, run: str) -> list[str]:
    """Every key that the run has points of, sorted."""
    return _read(store, project, run, [], lambda reader: reader.keys())


def greatest_step(store: Store, project: str, run: str, wants: Callable[[str], bool]) -> int:
    """The greatest step at which one of the keys that ``wants`` chooses has a value; -1 if none has."""

    def find(reader: "RunCurves") -> int:
        lasts = [reader.last(key) for key in filter(wants, reader.keys())]
        return max((int(unit["step_last"][-1]) for unit in lasts if len(unit)), default=-1)

    return _read(store, project, run, [], find)


def read_curve(store: Store, project: str, run: str, key: str) -> "Points":
    """The stitched curve, point by point.

    Raises:
        NotFound: retention left only its rollups.
    """
    return _read(store, project, run, [key], lambda reader: reader.stitched_points(key))


def _extremes(reader: "RunCurves", key: str) -> Extremes | None:
    import numpy as np

    units = reader.units(key, 1)
    if not len(units):
        return None
    last = float(units["last"][-1])
    points = int(units["count"].sum())
    # A unit without a finite value has NaN for both.
    low = units["min"][np.isfinite(units["min"])]
    high = units["max"][np.isfinite(units["max"])]
    if not len(low):
        return Extremes(last, None, None, points)
    return Extremes(last, float(low.min()), float(high.max()), points)


def _read(
    store: Store, project: str, run: str, keys: Sequence[str], of_run: "Callable[[RunCurves], _Result]"
) -> _Result:
    from halving.query.curve_reader import read_run_curves

    return read_run_curves(store, project, run, keys, of_run)
