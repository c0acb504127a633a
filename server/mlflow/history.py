"""Histories of metrics: every logged value, from the store."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from sqlalchemy import select

from halving.metrics.points import Points
from halving.query.curve_reader import read_run_curves
from resources.catalog import TrackedRunRow
from resources.tracking.runs import Tracked, find_run, of_items, plain_number
from server.mlflow import pages
from server.mlflow.call import Call, invalid, missing
from server.mlflow.forms import without_empty
from server.mlflow.refusals import Refused
from server.mlflow.runs import visible_run

# Values in a page that a client may ask for, and in an answer without pages.
_MAX_VALUES = 50_000
_MAX_AT_ONCE = 250_000
_MAX_RUNS = 100
_MAX_EACH = 2_500
_MAX_BULK = 25_000


def get_history(call: Call) -> dict[str, Any]:
    """All values of one metric of a run, earliest first.

    A value that was sent again is there once, as in MLflow.
    """
    metric = call.text("metric_key")
    with call.state.catalog.read() as session:
        tracked = visible_run(call, session)
    paged = call.fields.get("max_results") not in (None, "")
    count = _MAX_AT_ONCE
    if paged:
        count = pages.size(call, _MAX_VALUES, _MAX_VALUES)
    begins = pages.offset(call)
    points = _in_order(_points(call, tracked, metric))
    following = {}
    if begins + count < len(points.step):
        following = {"next_page_token": pages.token_of(begins + count)}
    metrics = [_metric(metric, *value) for value in _values(points.take(slice(begins, begins + count)))]
    return without_empty(metrics=metrics) | following


def get_history_bulk(call: Call) -> dict[str, Any]:
    """The first values of a metric of several runs."""
    metric = call.maybe_text("metric_key")
    names = call.texts("run_id")
    if not names:
        raise Refused(
            "INVALID_PARAMETER_VALUE", "GetMetricHistoryBulk request must specify at least one run_id."
        )
    if len(names) > _MAX_RUNS:
        message = (
            f"GetMetricHistoryBulk request cannot specify more than {_MAX_RUNS} run_ids. Received "
            f"{len(names)} run_ids."
        )
        raise Refused("INVALID_PARAMETER_VALUE", message)
    if metric is None:
        raise Refused("INVALID_PARAMETER_VALUE", "GetMetricHistoryBulk request must specify a metric_key.")
    count = min(call.number("max_results", _MAX_BULK), _MAX_BULK)
    if count < 1:
        raise invalid("max_results", count, f"give 1 to {_MAX_BULK}")
    metrics: list[dict[str, Any]] = []
    for run in _visible_runs(call, sorted(set(names))):
        points = _in_order(_points(call, run, metric)).take(slice(0, count - len(metrics)))
        metrics += [{**_metric(metric, *value), "run_id": run.row.id} for value in _values(points)]
        if len(metrics) >= count:
            break
    return {"metrics": metrics}


def get_history_bulk_interval(call: Call) -> dict[str, Any]:
    """Values of a metric of several runs, each sampled evenly to a maximum.

    An unknown run has none.
    """
    metric = call.text("metric_key")
    names = call.texts("run_ids")
    if not names:
        raise missing("run_ids")
    if len(names) > _MAX_RUNS:
        message = (
            f"GetMetricHistoryBulkInterval request must specify at most {_MAX_RUNS} run_ids. Received "
            f"{len(names)} run_ids."
        )
        raise Refused("INVALID_PARAMETER_VALUE", message)
    count = call.number("max_results", _MAX_EACH)
    if not 1 <= count <= _MAX_EACH:
        raise invalid("max_results", count, f"max_results must be between 1 and {_MAX_EACH}.")
    first = call.maybe_number("start_step")
    last = call.maybe_number("end_step")
    if (first is None) != (last is None):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            "If either start step or end step are specified, both must be specified.",
        )
    if first is not None and last is not None and first > last:
        message = f"end_step must be greater than start_step. Found start_step={first} and end_step={last}."
        raise Refused("INVALID_PARAMETER_VALUE", message)
    metrics: list[dict[str, Any]] = []
    for run in _visible_runs(call, names):
        points = _in_order(_points(call, run, metric))
        points = points.take(np.lexsort((points.value, points.time, points.step)))
        if first is not None:
            points = points.take((points.step >= first) & (points.step <= last))
        metrics += [
            {**_metric(metric, *value), "run_id": run.row.id}
            for value in _values(points.take(_sampled_places(len(points.step), count)))
        ]
    return without_empty(metrics=metrics)


def _sampled_places(length: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices that sample ``length`` values down to ``count``.

    They are the first of each of ``count`` parts, as SQL's NTILE makes them, and the last.
    """
    if length <= count:
        return np.arange(length)
    size, larger = divmod(length, count)
    parts = np.arange(count)
    return np.append((parts * size + np.minimum(parts, larger))[:-1], length - 1)


def _visible_runs(call: Call, names: list[str]) -> list[Tracked]:
    """The runs of these ids, without unknown ones."""
    with call.state.catalog.read() as session:
        present = set(session.scalars(select(TrackedRunRow.id).where(TrackedRunRow.id.in_(names))))
        runs = [find_run(session, name) for name in names if name in present]
    for run in runs:
        call.check(run.project, f"run {run.row.id!r}")
    return runs


def _in_order(points: Points) -> Points:
    """The points by time, without duplicates."""
    points = points.take(np.lexsort((points.value, points.step, points.time)))
    before = points.take(slice(None, -1))
    after = points.take(slice(1, None))
    same_value = (before.value == after.value) | (np.isnan(before.value) & np.isnan(after.value))
    again = (before.time == after.time) & (before.step == after.step) & same_value
    if len(again):
        return points.take(np.concatenate([[True], ~again]))
    return points


def _values(points: Points) -> Iterable[tuple[int, int, float]]:
    """Time, step and value of each point."""
    return zip(points.time.tolist(), points.step.tolist(), points.value.tolist(), strict=True)


def _points(call: Call, run: Tracked, metric: str) -> Points:
    if metric not in of_items(run.row.metrics):
        return Points(
            np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)
        )
    return read_run_curves(
        call.state.store, run.project, run.row.id, [metric], lambda curves: curves.raw(metric)
    )


def _metric(key: str, time: int, step: int, value: float) -> dict[str, Any]:
    return {"key": key, "value": plain_number(value), "timestamp": time, "step": step}
