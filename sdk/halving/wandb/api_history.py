"""Curves of a run as rows by step, as W&B's history has them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from halving.wandb.recorded_runs import Curve


def history_rows(curves: Mapping[str, Curve], began: float) -> list[dict[str, Any]]:
    """Rows by rising step, each with the values that were logged at it.

    Args:
        curves: by name; ``_step`` is no curve.
        began: when the run began, in seconds since 1970.

    Returns:
        ``_step``, the names, and where times are told ``_timestamp`` and ``_runtime`` in seconds.
    """
    rows: dict[int, dict[str, Any]] = {}
    for key, curve in curves.items():
        times = [None] * len(curve.step)
        if curve.time is not None:
            times = (curve.time / 1000).tolist()
        for step, value, time in zip(curve.step.tolist(), curve.value.tolist(), times, strict=True):
            row = rows.setdefault(step, {"_step": step})
            row[key] = value
            if time is not None:
                row["_timestamp"] = max(time, row.get("_timestamp", time))
                row["_runtime"] = row["_timestamp"] - began
    return [rows[step] for step in sorted(rows)]


def sampled(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """At most ``count`` rows, evenly spread, the first and the last among them."""
    if len(rows) <= count:
        return rows
    if count == 1:
        return rows[-1:]
    places = np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))
    return [rows[place] for place in places.tolist()]
