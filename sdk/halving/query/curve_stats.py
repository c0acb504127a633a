"""What is read of the points of single runs: last values that no end record has, curves in four numbers, and
whole curves.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from halving.query.runs import RunInfo, in_threads
from halving.store.store import Store

if TYPE_CHECKING:
    from halving.metrics.points import Points
    from halving.query.curve_reader import RunCurves

_Result = TypeVar("_Result")


class Extremes(NamedTuple):
    """A curve in four numbers, of the stitched view.

    Attributes:
        last: the value that was logged last, NaN and infinities too, as the run's attempts recorded it when
            they ended. While the newest has not, the value at the greatest step: in which order points came
            is not kept for ever.
        min, max: over finite values; None if there are none, or if retention left nothing of them.
        points: how many steps have a value; None if retention left nothing of them.
    """

    last: float
    min: float | None
    max: float | None
    points: int | None


def fill_last(store: Store, runs: list[RunInfo], keys: list[str] | None = None) -> list[RunInfo]:
    """The runs, each with a summary: where the newest attempt recorded none, it is read from the points.

    Args:
        keys: read only these; None reads all, and then the runs count as summarized.
    """

    def filled(info: RunInfo) -> RunInfo:
        if info.summarized:
            return info
        last = {key: value.last for key, value in read_extremes(store, info, keys).items()}
        return replace(info, summary=info.summary | last, summarized=keys is None)

    return in_threads(filled, runs)


def read_extremes(store: Store, info: RunInfo, keys: list[str] | None = None) -> dict[str, Extremes]:
    """Last, min, max and number of points by key; where retention left nothing, the last value alone.

    Raises:
        StoreError: a metric file is damaged.
    """
    # To look for the keys in the points takes as long as everything else.
    wanted = (
        keys
        if keys is not None
        else sorted(info.summary)
        if info.all_summarized
        else keys_of(store, info.project, info.run)
    )
    read = _read(
        store, info.project, info.run, wanted, lambda reader: {key: _extremes(reader, key) for key in wanted}
    )
    found = {key: value for key, value in read.items() if value is not None}
    for key, last in info.summary.items():
        if key in found:
            found[key] = found[key]._replace(last=last) if info.summarized else found[key]
        elif keys is None or key in keys:
            found[key] = Extremes(last, None, None, None)
    return dict(sorted(found.items()))


def keys_of(store: Store, project: str, run: str) -> list[str]:
    """Every key that the run has points of, sorted."""
    return _read(store, project, run, [], lambda reader: reader.keys())


def read_curve(store: Store, project: str, run: str, key: str) -> "Points":
    """The stitched curve, point by point.

    Raises:
        NotFound: retention left only its rollups.
    """
    return _read(store, project, run, [key], lambda reader: reader.stitched(key))


def _extremes(reader: "RunCurves", key: str) -> Extremes | None:
    import numpy as np

    units = reader.units(key, 1)
    if not len(units):
        return None
    low = units["min"][np.isfinite(units["min"])]
    high = units["max"][np.isfinite(units["max"])]
    least = float(low.min()) if len(low) else None
    most = float(high.max()) if len(high) else None
    return Extremes(float(units["last"][-1]), least, most, int(units["count"].sum()))


def _read(
    store: Store, project: str, run: str, keys: Sequence[str], of_run: "Callable[[RunCurves], _Result]"
) -> _Result:
    from halving.query.curve_reader import read_run_curves

    return read_run_curves(store, project, run, keys, of_run)
