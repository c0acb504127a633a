"""Points of one curve as arrays, and which of them count where a step was logged more than once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

EVERYWHERE = [(-(2**63), 2**63 - 1)]
Ranges = Sequence[tuple[int, int]]


class Points(NamedTuple):
    """Points as arrays of one length: attempt int32; step, time (ms since 1970) int64; value float64."""

    attempt: "np.ndarray[Any, Any]"
    step: "np.ndarray[Any, Any]"
    time: "np.ndarray[Any, Any]"
    value: "np.ndarray[Any, Any]"

    def take(self, chosen: Any) -> "Points":
        return Points(*(column[chosen] for column in self))


def no_points() -> Points:
    import numpy as np

    return Points(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


def stitch(points: Points) -> Points:
    """One point a step, sorted by step. ``points`` are ordered by attempt, then as logged: the last of a step counts."""
    import numpy as np

    if bool((points.step[1:] > points.step[:-1]).all()):
        return points
    points = points.take(np.argsort(points.step, kind="stable"))
    return points.take(np.append(points.step[1:] != points.step[:-1], True))


def within(points: Points, ranges: Ranges) -> Points:
    """Those with their step in one of the ranges."""
    if ranges is EVERYWHERE:
        return points
    return points.take(in_ranges(points.step, ranges))


def in_ranges(steps: Any, ranges: Ranges) -> Any:
    """Which steps are in one of the ranges, which are sorted and apart."""
    import numpy as np

    starts, lasts = (np.array(side, np.int64) for side in zip(*ranges, strict=True))
    place = np.searchsorted(starts, steps, "right") - 1
    return (place >= 0) & (steps <= lasts[np.maximum(place, 0)])
