"""Curves of trials that the catalog names, some of which may have logged nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halving import Store
from halving.errors import NotFound
from halving.metrics.manifest import runs_of
from halving.query.api import MAX_POINTS
from halving.query.api import curves as query_curves

if TYPE_CHECKING:
    import pyarrow as pa


def curves(
    store: Store, project: str, runs: Sequence[str], key: str, max_points: int | None = MAX_POINTS
) -> "pa.Table":
    """One metric of several runs, stitched over resumes.

    Returns:
        ``run, key, step, wall_time, value`` and, unless ``max_points`` is None, ``min, max, count``; see
        :func:`halving.query.curves`. Trials that never logged the key have no rows.
    """
    logged = sorted(set(runs) & set(runs_of(store, project)))
    try:
        return query_curves(logged, key, project=project, root=store, max_points=max_points)
    except NotFound:  # none of them has the key
        return query_curves([], key, project=project, root=store, max_points=max_points)
