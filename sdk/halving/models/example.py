"""Converts rows to JSON, in the form that :func:`halving.models.inputs.checked_inputs` reads."""

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def as_json(table: "pa.Table") -> dict[str, Any]:
    """Convert a table to columns of JSON values.

    Times become ISO 8601, decimals texts, bytes base64, and durations numbers of their unit.
    """
    import pyarrow as pa

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_duration(column.type):
            column = column.cast(pa.int64())
        columns[name] = [_value(value) for value in column.to_pylist()]
    return columns


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(item) for item in value]
    return str(value)
