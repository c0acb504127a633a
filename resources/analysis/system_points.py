"""The points of what a run samples and counts of itself, read together: its page asks for them every few seconds."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from halving import Store
from halving.errors import NotFound, StoreError
from halving.query.curve_reader import read_run_curves
from halving.query.curve_stats import keys_of

if TYPE_CHECKING:
    from halving.metrics.points import Points
    from halving.query.curve_reader import RunCurves


def read_system_points(store: Store, project: str, run: str, patterns: Iterable[re.Pattern[str]]) -> "dict[str, Points] | None":
    """Every point of a run's metrics whose names match one of the patterns, by name; of all attempts, ordered by attempt, then as logged.

    Returns:
        Nothing of a metric whose points retention has dropped; None while the store does not say.
    """
    try:
        keys = [key for key in keys_of(store, project, run) if any(pattern.fullmatch(key) for pattern in patterns)]
        return read_run_curves(store, project, run, keys, lambda curves: _points_of(curves, keys))
    except StoreError:
        return None


def _points_of(curves: "RunCurves", keys: Iterable[str]) -> "dict[str, Points]":
    points = {}
    for key in keys:
        with suppress(NotFound):  # only its rollups are left
            points[key] = curves.raw(key)
    return points
