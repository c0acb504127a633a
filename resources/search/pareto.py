"""Pareto dominance between trials with several objectives."""

from collections.abc import Sequence

import numpy as np


def front(values: Sequence[Sequence[float]], maximize: Sequence[bool]) -> list[int]:
    """Indices of the points that no other point dominates, in ascending order; of equal points all are kept.

    Args:
        values: shape (points, objectives).
        maximize: for each objective, whether larger is better.
    """
    if not values:
        return []
    points = np.where(np.asarray(maximize), -1.0, 1.0) * np.asarray(values, dtype=float)
    kept: list[int] = []
    # In lexical order no point dominates an earlier one, so only the kept points have to be compared.
    for index in np.lexsort(points.T[::-1]):
        point = points[index]
        kept_points = points[kept]
        if not ((kept_points <= point).all(axis=1) & (kept_points < point).any(axis=1)).any():
            kept.append(int(index))
    return sorted(kept)
