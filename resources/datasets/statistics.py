"""Statistics of a snapshot's columns: missing values, bounds, and the target's classes.

The statistics of parts add up to those of the whole.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MAX_CLASSES = 100
"""A target with more values is a number to predict, or has too many classes to list."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MAX_CHARACTERS = 100  # characters of a text that is shown
_TARGET_KINDS = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)
Statistics = dict[str, dict[str, Any]]
"""Statistics by column.

``nulls`` (of floats NaN, too), ``null_items`` within lists (if there are some), ``not_utf8`` (if a text is
not), ``min`` and ``max`` (if it has an order), and of the target ``classes``: the rows of each class.
"""


def statistics_of(rows: pa.RecordBatch, target: str) -> Statistics:
    """The statistics of a batch of rows."""
    return {
        name: _column_statistics(column, name == target)
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }


def merge(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of all parts together."""
    columns: Statistics = {}
    for part in parts:
        for name, column in part.items():
            merged_column = columns.setdefault(name, {"nulls": 0})
            merged_column["nulls"] += column["nulls"]
            if "null_items" in column:
                merged_column["null_items"] = merged_column.get("null_items", 0) + column["null_items"]
            if "not_utf8" in column:
                merged_column["not_utf8"] = True
            for bound, choose in (("min", min), ("max", max)):
                if bound in column:
                    merged_column[bound] = choose(merged_column.get(bound, column[bound]), column[bound])
            if "classes" in column or "classes" in merged_column:
                merged_column["classes"] = _add_classes(
                    merged_column.get("classes", {}), column.get("classes", {})
                )
    return columns


def all_columns(manifest: Mapping[str, Any]) -> Statistics:
    """The statistics of all rows of a snapshot, from its manifest, which has them by split."""
    return merge(manifest["statistics"].values())


def subtract(columns: Statistics, parts: Iterable[Statistics]) -> Statistics:
    """Take parts off the counts of a whole; its bounds stay."""
    remaining = {name: dict(column) for name, column in columns.items()}
    for part in parts:
        for name, column in part.items():
            remaining[name]["nulls"] -= column["nulls"]
            if "null_items" in column:
                remaining[name]["null_items"] -= column["null_items"]
            if remaining[name].get("classes") is not None and column.get("classes") is not None:
                rest = Counter(remaining[name]["classes"])
                rest.subtract(column["classes"])
                remaining[name]["classes"] = {value: count for value, count in rest.items() if count}
    return remaining


def _add_classes(first: dict[str, int] | None, second: dict[str, int] | None) -> dict[str, int] | None:
    if first is None or second is None:
        return None
    counts = dict(Counter(first) + Counter(second))
    if len(counts) > MAX_CLASSES:
        return None
    return dict(sorted(counts.items()))


def _column_statistics(column: pa.Array, is_target: bool) -> dict[str, Any]:
    statistics: dict[str, Any] = {"nulls": column.null_count}
    if pa.types.is_floating(column.type):
        statistics["nulls"] = missing(column).true_count
    values = column
    null_items = 0
    while pa.types.is_nested(values.type) and not pa.types.is_struct(values.type):
        values = values.flatten()
        null_items += values.null_count
    kind = values.type
    if null_items:
        statistics["null_items"] = null_items
    if not _is_utf8(column):
        statistics["not_utf8"] = True
    if not (
        pa.types.is_struct(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        statistics |= _bounds(comparable(values))
    if is_target and any(is_kind(column.type) for is_kind in _TARGET_KINDS):
        counted = pc.value_counts(column.drop_null())
        if len(counted) > MAX_CLASSES:
            statistics["classes"] = None
        else:
            pairs = zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)
            statistics["classes"] = {str(value): count for value, count in sorted(pairs)}
    return statistics


def _is_utf8(column: pa.Array) -> bool:
    """Whether all texts are UTF-8, which Arrow takes for granted; true of other types."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bounds(values: pa.Array) -> dict[str, Any]:
    """``min`` and ``max``; empty if there are none that Python can hold.

    Python has no times after the year 9999, and no texts that are not UTF-8.
    """
    try:
        bounds = _float_bounds(values) or pc.min_max(values).as_py()
    except (pa.ArrowNotImplementedError, OverflowError, ValueError):
        return {}
    if bounds["min"] is None or bounds["min"] != bounds["min"]:  # All of it is null or NaN.
        return {}
    return {bound: _json_value(value) for bound, value in bounds.items()}


def _float_bounds(values: pa.Array) -> dict[str, Any] | None:
    """The bounds of floats without nulls and NaN, by NumPy, which is seven times as fast; else None."""
    if not pa.types.is_floating(values.type) or values.null_count or not len(values):
        return None
    numbers = values.to_numpy()
    low = numbers.min()
    high = numbers.max()
    if low != low:  # There is a NaN.
        return None
    return {"min": low.item(), "max": high.item()}


def missing(values: pa.Array) -> pa.Array:
    """Where a value is null, or a float is NaN, as which pandas and NumPy write null."""
    return pc.is_null(comparable(values), nan_is_null=True)


def comparable(values: pa.Array) -> pa.Array:
    """Convert types that Arrow does not compare: durations to seconds, half precision to single."""
    if pa.types.is_duration(values.type):
        return pc.divide(
            values.cast(pa.int64()).cast(pa.float64(), safe=False), float(_PER_SECOND[values.type.unit])
        )
    if pa.types.is_float16(values.type):
        return values.cast(pa.float32())
    return values


def _json_value(value: Any) -> Any:
    """A value as JSON that keeps its order: a text's beginning, a time in ISO 8601."""
    if isinstance(value, str):
        return value[:_MAX_CHARACTERS]
    if isinstance(value, bool | int | float):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)
