"""Groups of rows judged apart: by a column's values, or by a condition on columns, with Fairlearn's
``MetricFrame``.

Differences and ratios are between the largest and the smallest value of a metric over the groups (Fairlearn's
``between_groups``). Groups of fewer than 30 rows are shown and marked, but are neither the worst nor part of
a difference: their values are mostly noise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from halving.errors import InvalidInput
from resources.evaluation.columns import coded_arrow, joined, shared
from resources.evaluation.measures import measure
from resources.evaluation.predictions import Predictions
from resources.evaluation.resampling import Resampled, interval_of
from resources.evaluation.statistics.clusters import Clusters
from resources.sweep_spec.base import did_you_mean, listed
from resources.sweep_spec.constraints import constraint
from resources.sweep_spec.evaluation import is_column

SMALL = 30
"""Rows below which a group is small."""

_MOST_GROUPS = 50  # of one slice
_AT_ONCE = 1 << 16  # rows
_PLAIN = ("int", "uint", "float", "double", "halffloat", "bool", "string", "large_string", "dictionary")


def check_slices(slices: Sequence[str], schema: Mapping[str, str]) -> None:
    """Refuse a slice by what is no column.

    Args:
        schema: Arrow's names of types by column.

    Raises:
        InvalidInput: naming the slice, and the columns that there are.
    """
    for index, given in enumerate(slices):
        for name in columns_of(given):
            if name not in schema:
                hint = did_you_mean(name, schema)
                raise InvalidInput(
                    f"slices.{index} = {given!r} is not accepted: the snapshot has no column "
                    f"{name!r}{hint}; it has {listed(schema)}"
                )
            if not schema[name].startswith(_PLAIN):
                raise InvalidInput(
                    f"slices.{index} = {given!r} is not accepted: the column {name!r} is of type "
                    f"{schema[name]}; "
                    "give a column of texts, numbers or booleans"
                )


def columns_of(given: str) -> list[str]:
    """The columns that a slice is of."""
    return [given] if is_column(given) else sorted(constraint(given).names)


def groups_of(slices: Sequence[str], table: pa.Table) -> dict[str, NDArray[np.int64]]:
    """The positions of each group's rows, named ``SLICE = GROUP``; of a condition's two groups the one that
    meets it, by the condition.

    A slice that could not be judged has none.
    """
    found: dict[str, NDArray[np.int64]] = {}
    for given in slices:
        try:
            names = group_names(given, table)
        except InvalidInput:
            continue
        wanted = sorted(set(names), key=_order) if is_column(given) else [given]
        found |= {
            f"{given} = {name}" if is_column(given) else name: np.flatnonzero(names == name)
            for name in wanted
        }
    return found


def judge_slices(
    slices: Sequence[str],
    table: pa.Table,
    predictions: Predictions,
    metrics: Mapping[str, bool],
    main_metric: str,
) -> list[dict[str, Any]]:
    """Every slice with its groups: rows, metrics with intervals, the worst group, and the differences between
    groups.

    Args:
        table: the rows that were predicted, in the same order.
        metrics: those that have a value on any rows, and whether higher is better.

    Returns:
        For each slice ``slice``, ``groups``, ``worst`` (of the main metric; None with fewer than two groups
        that are not small), ``difference`` and ``ratio`` by metric, the latter where all values are positive,
        and ``error`` where it could not be judged.
    """
    measures = {metric: measure(predictions, metric) for metric in metrics}
    return [_judged(given, table, measures, metrics, main_metric, predictions.clusters) for given in slices]


def _judged(
    given: str,
    table: pa.Table,
    measures: Mapping[str, Resampled],
    higher: Mapping[str, bool],
    main_metric: str,
    clusters: Clusters | None,
) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "slice": given,
        "groups": [],
        "worst": None,
        "difference": {},
        "ratio": {},
        "error": None,
    }
    try:
        names = group_names(given, table)
    except InvalidInput as error:
        return {**nothing, "error": str(error)}
    groups = []
    for name in dict.fromkeys(sorted(set(names), key=_order)):
        rows = np.flatnonzero(names == name)
        metrics = {metric: interval_of(one, rows, clusters).as_dict() for metric, one in measures.items()}
        groups.append({"name": name, "rows": len(rows), "small": len(rows) < SMALL, "metrics": metrics})
    large = [group["name"] for group in groups if not group["small"]]
    if len(large) < 2:
        return {**nothing, "groups": groups}
    values = {
        metric: [group["metrics"][metric]["value"] for group in groups if not group["small"]]
        for metric in measures
    }
    frame = _frame(large, values)
    worst = None
    if main_metric in measures and len(of_main := frame.by_group[main_metric].dropna()):
        worst = str(of_main.idxmin() if higher[main_metric] else of_main.idxmax())
    difference = frame.difference(errors="coerce")
    ratio = frame.ratio(errors="coerce")
    return {
        **nothing,
        "groups": groups,
        "worst": worst,
        "difference": {metric: float(difference[metric]) for metric in measures},
        "ratio": {
            metric: float(ratio[metric]) for metric in measures if (frame.by_group[metric].dropna() > 0).all()
        },
    }


def _frame(names: list[str], values: Mapping[str, list[float]]) -> Any:
    """Fairlearn's frame of what groups have: it is given the groups in place of their rows, of which it would
    make several copies.
    """
    from fairlearn.metrics import MetricFrame

    def of(some: list[float]) -> Any:
        return lambda groups, _: some[groups[0]] if len(groups) == 1 else math.nan

    functions = {metric: of(some) for metric, some in values.items()}
    places = np.arange(len(names))
    return MetricFrame(metrics=functions, y_true=places, y_pred=places, sensitive_features=np.array(names))


def group_names(given: str, table: pa.Table) -> NDArray[Any]:
    """The name of each row's group.

    Raises:
        InvalidInput: it has too many values, or compares what cannot be compared.
    """
    if not is_column(given):
        return shared([f"not ({given})", given])[_holds(given, table).astype(np.intp)]
    values = table.column(given).unify_dictionaries()
    if (count := len(values.unique())) > _MOST_GROUPS:
        raise InvalidInput(
            f"the column {given!r} has {count} values in these rows, more than {_MOST_GROUPS}; give a "
            f"condition, such as {given!r} >= …"
        )
    column = joined(map(coded_arrow, values.chunks))
    return shared(["(none)" if value is None else f"{value}" for value in column.values])[column.codes]


def _holds(given: str, table: pa.Table) -> NDArray[np.bool_]:
    """Whether each row meets a condition; one without a value in a column that it compares does not.

    Rows are Python's objects only some thousands at a time, of which equal ones are asked once.
    """
    condition = constraint(given)
    columns = sorted(condition.names)
    holds = [np.zeros(0, np.bool_)]
    for batch in table.select(columns).to_batches(max_chunksize=_AT_ONCE):
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        known = {
            row: not any(map(_is_missing, row)) and condition.holds(dict(zip(columns, row, strict=True)))
            for row in dict.fromkeys(rows)
        }
        holds.append(np.fromiter((known[row] for row in rows), np.bool_, len(rows)))
    return np.concatenate(holds)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _order(name: str) -> tuple[int, float, str]:
    """Numbers by their value, then texts."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
