"""Points of one curve as arrays, and which of them count where a step was logged more than once."""

from collections.abc import Iterable, Sequence
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
        """The chosen points; ``chosen`` is what NumPy takes as an index: places, a mask or a slice."""
        return Points(*(column[chosen] for column in self))


class MixedPoints(NamedTuple):
    """Points of several curves together, those of each as they were logged.

    Attributes:
        codes: int32 array of shape (n,): each point's place in ``keys``.
        keys: the curves' keys.
    """

    codes: np.ndarray[Any, Any]
    keys: Sequence[str]
    points: Points


def no_points() -> Points:
    """Points of a curve that has none."""
    return Points(
        np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)
    )


def join_points(parts: Sequence[Points]) -> Points:
    """The points of all parts, one part after the other."""
    return Points(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def stitch(points: Points) -> Points:
    """One point a step, sorted by step.

    ``points`` are ordered by attempt, then as logged: the last of a step counts.
    """
    if bool((points.step[1:] > points.step[:-1]).all()):
        return points
    points = points.take(np.argsort(points.step, kind="stable"))
    return points.take(np.append(points.step[1:] != points.step[:-1], True))


def within(points: Points, ranges: Ranges) -> Points:
    """The points whose step lies in one of the ranges, which are sorted and apart."""
    if ranges is EVERYWHERE:
        return points
    starts, lasts = (np.array(side, np.int64) for side in zip(*ranges, strict=True))
    place = np.searchsorted(starts, points.step, "right") - 1
    return points.take((place >= 0) & (points.step <= lasts[np.maximum(place, 0)]))


def separate(parts: Iterable[MixedPoints]) -> dict[str, Points]:
    """The points of each curve by its key, in the order of the parts, in memory of their own."""
    places: dict[str, int] = {}
    codes: list[np.ndarray[Any, Any]] = []
    columns: list[list[np.ndarray[Any, Any]]] = [[column] for column in no_points()]
    for part in parts:
        moved = np.array([places.setdefault(key, len(places)) for key in part.keys], np.int32)
        codes.append(moved[part.codes])
        for column, more in zip(columns, part.points, strict=True):
            column.append(more)
    if not places:
        return {}
    whole = np.concatenate(codes)
    sortable = whole
    if len(places) < 1 << 15:
        sortable = whole.astype(np.int16)  # numpy sorts 16 bits by their digits, without comparing
    order = np.argsort(sortable, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(whole, minlength=len(places)))[:-1])
    separated = []
    while columns:  # one after the other, so that what is joined is not all in memory twice
        joined = np.concatenate(columns.pop(0))
        separated.append([joined[each] for each in rows])
    return {key: Points(*own) for key, own in zip(places, zip(*separated, strict=True), strict=True)}


def by_attempt(points: Points) -> Points:
    """The same points ordered by attempt; those of one attempt keep their order."""
    if bool((points.attempt[1:] >= points.attempt[:-1]).all()):
        return points
    return points.take(np.argsort(points.attempt, kind="stable"))
