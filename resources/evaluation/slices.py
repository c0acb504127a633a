"""Metrics of groups of rows, which are given by a column's values or by a condition on columns.

They are computed with Fairlearn's ``MetricFrame``.

Differences and ratios are between the largest and the smallest value of a metric over the groups (Fairlearn's
``between_groups``). Groups of fewer than 30 rows are reported and marked as small, but are neither the worst
group nor part of a difference, because their values are mostly noise.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from halving.errors import InvalidInput
from halving.text import comma_list, did_you_mean
from resources.evaluation.columns import encode_arrow, join_columns, object_array
from resources.evaluation.measures import measure
from resources.evaluation.predictions import Predictions
from resources.evaluation.resampling import Resampled, interval_of
from resources.evaluation.statistics.clusters import Clusters
from resources.sweep_spec.constraints import constraint
from resources.sweep_spec.evaluation import is_column

SMALL = 30
"""Rows below which a group is small."""

_MAX_GROUPS = 50  # of one slice
_AT_ONCE = 1 << 16  # rows
_ACCEPTED_TYPES = (
    "int",
    "uint",
    "float",
    "double",
    "halffloat",
    "bool",
    "string",
    "large_string",
    "dictionary",
)


def check_slices(slices: Sequence[str], schema: Mapping[str, str]) -> None:
    """Refuse a slice by a column that the snapshot does not have, or whose type is not accepted.

    Args:
        schema: Arrow's names of types by column.

    Raises:
        InvalidInput: naming the slice, and the columns that there are.
    """
    for index, condition in enumerate(slices):
        for name in columns_of(condition):
            if name not in schema:
                hint = did_you_mean(name, schema)
                raise InvalidInput(
                    f"slices.{index} = {condition!r} is not accepted: the snapshot has no column "
                    f"{name!r}{hint}; it has {comma_list(schema)}"
                )
            if not schema[name].startswith(_ACCEPTED_TYPES):
                raise InvalidInput(
                    f"slices.{index} = {condition!r} is not accepted: the column {name!r} is of type "
                    f"{schema[name]}; give a column of texts, numbers or booleans"
                )


def columns_of(condition: str) -> list[str]:
    """The columns of a slice, which is a column's name or a condition."""
    if is_column(condition):
        return [condition]
    return sorted(constraint(condition).names)


def groups_of(slices: Sequence[str], table: pa.Table) -> dict[str, NDArray[np.int64]]:
    """The positions of each group's rows, by ``COLUMN = GROUP`` or by the condition.

    For a condition it is the group that meets it. A slice that could not be judged has no groups.
    """
    groups: dict[str, NDArray[np.int64]] = {}
    for condition in slices:
        try:
            names = group_names(condition, table)
        except InvalidInput:
            continue
        if not is_column(condition):
            groups[condition] = np.flatnonzero(names == condition)
            continue
        for name in sorted(set(names), key=_order):
            groups[f"{condition} = {name}"] = np.flatnonzero(names == name)
    return groups


def judge_slices(
    slices: Sequence[str],
    table: pa.Table,
    predictions: Predictions,
    metrics: Mapping[str, bool],
    main_metric: str,
) -> list[dict[str, Any]]:
    """Judge every slice: its groups with metrics and intervals, the worst group, and differences of groups.

    Args:
        table: the rows that were predicted, in the same order.
        metrics: the metrics that have a value on any rows, and whether higher is better.

    Returns:
        For each slice ``slice``, ``groups``, ``worst`` (by the main metric; None with fewer than two groups
        that are not small), ``difference`` and ``ratio`` by metric, the latter if all values are positive,
        and ``error`` if it could not be judged.
    """
    measures = {metric: measure(predictions, metric) for metric in metrics}
    return [
        _judge_slice(condition, table, measures, metrics, main_metric, predictions.clusters)
        for condition in slices
    ]


def _judge_slice(
    condition: str,
    table: pa.Table,
    measures: Mapping[str, Resampled],
    higher: Mapping[str, bool],
    main_metric: str,
    clusters: Clusters | None,
) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "slice": condition,
        "groups": [],
        "worst": None,
        "difference": {},
        "ratio": {},
        "error": None,
    }
    try:
        names = group_names(condition, table)
    except InvalidInput as error:
        return {**nothing, "error": str(error)}
    groups = []
    for name in dict.fromkeys(sorted(set(names), key=_order)):
        rows = np.flatnonzero(names == name)
        metrics = {
            metric: interval_of(measured, rows, clusters).as_dict() for metric, measured in measures.items()
        }
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
        lowest = of_main.idxmin()
        highest = of_main.idxmax()
        worst = str(lowest if higher[main_metric] else highest)
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
    """Fairlearn's frame of the groups' values.

    It gets the groups in place of their rows, of which it would make several copies.
    """
    from fairlearn.metrics import MetricFrame

    def value_by_group(group_values: list[float]) -> Any:
        def value_of(groups: NDArray[np.int64], _: Any) -> float:
            if len(groups) != 1:
                return math.nan
            return group_values[groups[0]]

        return value_of

    functions = {metric: value_by_group(group_values) for metric, group_values in values.items()}
    places = np.arange(len(names))
    return MetricFrame(metrics=functions, y_true=places, y_pred=places, sensitive_features=np.array(names))


def group_names(condition: str, table: pa.Table) -> NDArray[Any]:
    """The name of each row's group.

    Raises:
        InvalidInput: the column has too many values, or the condition compares what cannot be compared.
    """
    if not is_column(condition):
        return object_array([f"not ({condition})", condition])[_holds(condition, table).astype(np.intp)]
    values = table.column(condition).unify_dictionaries()
    count = len(values.unique())
    if count > _MAX_GROUPS:
        raise InvalidInput(
            f"the column {condition!r} has {count} values in these rows, more than {_MAX_GROUPS}; give a "
            f"condition, such as {condition!r} >= …"
        )
    column = join_columns(map(encode_arrow, values.chunks))
    return object_array(["(none)" if value is None else f"{value}" for value in column.values])[column.codes]


def _holds(text: str, table: pa.Table) -> NDArray[np.bool_]:
    """Whether each row meets a condition; a row without a value in one of its columns does not.

    Rows become Python objects only some thousands at a time, and equal rows are checked once.
    """
    condition = constraint(text)
    columns = sorted(condition.names)
    holds = [np.zeros(0, np.bool_)]
    for batch in table.select(columns).to_batches(max_chunksize=_AT_ONCE):
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        holds_for = {
            row: not any(map(_is_missing, row)) and condition.holds(dict(zip(columns, row, strict=True)))
            for row in dict.fromkeys(rows)
        }
        holds.append(np.fromiter((holds_for[row] for row in rows), np.bool_, len(rows)))
    return np.concatenate(holds)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _order(name: str) -> tuple[int, float, str]:
    """Numbers by their value, then texts."""
    try:
        return 0, float(name), name
    except ValueError:
        return 1, 0.0, name
