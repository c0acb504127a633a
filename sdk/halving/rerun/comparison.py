"""Comparing the metrics of two runs point by point, to find where they first differ."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from halving.errors import NotFound
from halving.metrics.points import Points, no_points
from halving.query.run_points import RunPoints
from halving.store.store import Store

IGNORED = ("system/*",)
"""Metrics of the machine's load, not of the training."""
Curves = Mapping[str, Points]


@dataclass(frozen=True)
class FirstDifference:
    """The first point that differs: at the lowest step, of the metrics there the first by name.

    Attributes:
        recorded, rerun: the values; None where one of the runs has no such point.
        difference: ``rerun - recorded``; None without two values.
        metrics: the number of metrics that differ.
        points: the number of points that differ.
    """

    step: int
    metric: str
    recorded: float | None
    rerun: float | None
    difference: float | None
    metrics: int
    points: int

    def as_dict(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return asdict(self)


def read_points(store: Store, project: str, run: str, ignore: Sequence[str] = ()) -> dict[str, Points]:
    """Read every point of a run by metric, except system metrics and those of patterns (``time/*``).

    They are sorted by step, those of one step by attempt and then in the order of logging.

    Raises:
        NotFound: retention has dropped points.
        StoreError: a metric file cannot be read.
    """
    patterns = (*IGNORED, *ignore)
    points, dropped = RunPoints(
        store, project, run, lambda key: not any(fnmatchcase(key, pattern) for pattern in patterns)
    ).look()
    if dropped:
        raise NotFound(
            f"the points of {dropped[0]!r} in run {run!r} were dropped by retention, and only their "
            "rollups are left"
        )
    return {key: own.take(np.argsort(own.step, kind="stable")) for key, own in sorted(points.items())}


def first_difference(recorded: Curves, rerun: Curves) -> FirstDifference | None:
    """Find where two runs' curves first differ, to the last bit; None if they are equal.

    NaN equals NaN, and times are not compared. The points of a step are compared in the order in which they
    were logged. Where several attempts logged the step, its last point counts, because a resumed attempt
    replaces what the one before had logged at it.

    Args:
        recorded, rerun: results of :func:`read_points`.
    """
    places: list[tuple[int, str, int]] = []
    points = 0
    for metric in sorted(recorded.keys() | rerun.keys()):
        different = _different(*_comparable(recorded.get(metric), rerun.get(metric)))
        if different:
            step, place = different[0]
            places.append((step, metric, place))
            points += len(different)
    if not places:
        return None
    step, metric, place = min(places)
    ours, theirs = (
        _value_at(side, step, place) for side in _comparable(recorded.get(metric), rerun.get(metric))
    )
    difference = None
    if ours is not None and theirs is not None:
        difference = theirs - ours
    return FirstDifference(step, metric, ours, theirs, difference, len(places), points)


def up_to(curves: Curves, end: Curves) -> tuple[dict[str, Points], int]:
    """Cut curves after the last point of each metric in ``end``; return them and the number of cut points."""
    curves_up_to = {}
    for metric, points in curves.items():
        last = end.get(metric)
        if last is not None and len(last.step):
            step = last.step[-1]
            more = int((last.step == last.step[-1]).sum())
            kept = points.take((points.step < step) | ((points.step == step) & (_place(points) < more)))
            curves_up_to[metric] = kept
    return curves_up_to, count(curves) - count(curves_up_to)


def count(curves: Curves) -> int:
    """The number of points."""
    return sum(len(points.step) for points in curves.values())


def _comparable(recorded: Points | None, rerun: Points | None) -> tuple[Points, Points]:
    """The points of both runs; where several attempts of either logged a step, only its last point."""
    ours = no_points() if recorded is None else recorded
    theirs = no_points() if rerun is None else rerun
    repeated = np.concatenate([_repeated_steps(ours), _repeated_steps(theirs)])
    if not len(repeated):
        return ours, theirs
    return _without_repeats(ours, repeated), _without_repeats(theirs, repeated)


def _repeated_steps(points: Points) -> Any:
    return points.step[1:][~_last_of_step(points)[:-1] & (points.attempt[1:] != points.attempt[:-1])]


def _without_repeats(points: Points, steps: Any) -> Points:
    return points.take(_last_of_step(points) | ~np.isin(points.step, steps))


def _last_of_step(points: Points) -> Any:
    return np.append(points.step[1:] != points.step[:-1], True)[: len(points.step)]


def _different(recorded: Points, rerun: Points) -> list[tuple[int, int]]:
    """The steps, rising, and the places in their steps at which the two differ or one has no point."""
    ours = _bits(recorded)
    theirs = _bits(rerun)
    if np.array_equal(recorded.step, rerun.step):
        chosen = np.flatnonzero(ours != theirs)
        return _places(recorded.take(chosen), _place(recorded)[chosen])
    has, have = (
        dict(zip(_places(side, _place(side)), bits.tolist(), strict=True))
        for side, bits in ((recorded, ours), (rerun, theirs))
    )
    return sorted(place for place in has.keys() | have.keys() if has.get(place) != have.get(place))


def _bits(points: Points) -> Any:
    """The bits of each value, so that -0.0 differs from 0.0 and NaN equals NaN."""
    return np.where(np.isnan(points.value), np.nan, points.value).view(np.int64)


def _places(points: Points, place: Any) -> list[tuple[int, int]]:
    return list(zip(points.step.tolist(), place.tolist(), strict=True))


def _place(points: Points) -> Any:
    """The place of each point among those of its step, from 0."""
    _, first, inverse = np.unique(points.step, return_index=True, return_inverse=True)
    return np.arange(len(points.step)) - first[inverse]


def _value_at(points: Points, step: int, place: int) -> float | None:
    places = np.flatnonzero(points.step == step)
    if len(places) <= place:
        return None
    return float(points.value[places[place]])
