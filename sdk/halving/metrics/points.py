"""Points of one curve as arrays, and which of them count where a step was logged more than once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

EVERYWHERE = [(-(2**63), 2**63 - 1)]
Ranges = Sequence[tuple[int, int]]


class Points(NamedTuple):
    """Points as arrays of one length: attempt int32; step, time (ms since 1970) int64; value float64."""

    attempt: np.ndarray[Any, Any]
    step: np.ndarray[Any, Any]
    time: np.ndarray[Any, Any]
    value: np.ndarray[Any, Any]

    def take(self, chosen: Any) -> "Points":
        return Points(*(column[chosen] for column in self))


def no_points() -> Points:
    return Points(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


def stitch(points: Points) -> Points:
    """One point a step, sorted by step. ``points`` are ordered by attempt, then as logged: the last of a step counts."""
    if bool((points.step[1:] > points.step[:-1]).all()):
        return points
    points = points.take(np.argsort(points.step, kind="stable"))
    return points.take(np.append(points.step[1:] != points.step[:-1], True))


def within(points: Points, ranges: Ranges) -> Points:
    """Those with their step in one of the ranges, which are sorted and apart."""
    if ranges is EVERYWHERE:
        return points
    starts, lasts = (np.array(side, np.int64) for side in zip(*ranges, strict=True))
    place = np.searchsorted(starts, points.step, "right") - 1
    return points.take((place >= 0) & (points.step <= lasts[np.maximum(place, 0)]))
