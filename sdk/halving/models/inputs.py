"""Checks rows that a model is asked about against the schema that it was trained with."""

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import time
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

_LIST = re.compile(
    r"(?P<kind>fixed_size_list|large_list|list)<[^:]+: (?P<item>.+?)(?: not null)?>(?:\[(?P<length>\d+)\])?"
)
_DICTIONARY = re.compile(
    r"dictionary<values=(?P<values>.+), indices=(?P<indices>\w+), ordered=(?P<ordered>[01])>"
)
_DECIMAL = re.compile(r"decimal(?P<bits>32|64|128|256)\((?P<precision>\d+), (?P<scale>-?\d+)\)")
_TIMESTAMP = re.compile(r"timestamp\[(?P<unit>s|ms|us|ns), tz=(?P<zone>.+)\]")
_FIXED_BINARY = re.compile(r"fixed_size_binary\[(?P<length>\d+)\]")


def checked_inputs(rows: Any, schema: Mapping[str, str], complete: Iterable[str] = ()) -> "pa.Table":
    """Convert rows to a table with exactly the schema's columns and types; further columns are left out.

    Args:
        rows: a :class:`pyarrow.Table` or record batch, a dict of columns (lists, or NumPy arrays, of two
            dimensions for lists), or a pandas data frame. A data frame's missing values (NaN, NaT, None, NA)
            are nulls. In lists, times may be texts in ISO 8601, decimals texts, bytes base64, and durations
            numbers of their unit, as JSON has them.
        schema: Arrow types by column, as text.
        complete: columns that had no nulls in training, and so may have none.

    Raises:
        InvalidInput: a column is missing, is not of its type, or has nulls; the message names it.
    """
    import pyarrow as pa

    columns = _columns(rows)
    if missing := [name for name in schema if name not in columns]:
        raise InvalidInput(
            f"column {missing[0]!r} ({schema[missing[0]]}) is missing: the model takes "
            f"{_list_columns(schema)}; given were {sorted(columns)}"
        )
    taken = {name: _column(name, columns[name], wanted) for name, wanted in schema.items()}
    lengths = {name: len(column) for name, column in taken.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(
            f"columns of different lengths are not accepted: {lengths}; give one value of each for every row"
        )
    for name in complete:
        if name in taken and (nulls := taken[name].null_count):
            first = taken[name].is_null().index(True).as_py()
            raise InvalidInput(
                f"column {name!r} has {nulls} nulls, the first in row {first}: there were none in what the "
                "model was trained on"
            )
    return pa.table(taken)


def arrow_type(text: str) -> "pa.DataType | None":
    """Parse the text of an Arrow type; None if it is not of numbers, texts, times or lists of these."""
    import pyarrow as pa

    if match := _LIST.fullmatch(text):
        item = arrow_type(match["item"])
        if item is None:
            return None
        if match["kind"] == "list":
            return pa.list_(item)
        if match["kind"] == "large_list":
            return pa.large_list(item)
        if not match["length"]:
            return None
        return pa.list_(item, int(match["length"]))
    if match := _DICTIONARY.fullmatch(text):
        values = arrow_type(match["values"])
        indices = arrow_type(match["indices"])
        if values is None or indices is None:
            return None
        return pa.dictionary(indices, values, ordered=match["ordered"] == "1")
    if match := _DECIMAL.fullmatch(text):
        decimal: pa.DataType = getattr(pa, f"decimal{match['bits']}")(
            int(match["precision"]), int(match["scale"])
        )
        return decimal
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match["unit"], match["zone"])
    if match := _FIXED_BINARY.fullmatch(text):
        return pa.binary(int(match["length"]))
    try:
        return pa.type_for_alias({"halffloat": "float16"}.get(text, text))
    except ValueError:
        return None


def _columns(rows: Any) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        return dict(zip(rows.schema.names, rows.columns, strict=True))
    if isinstance(rows, Mapping):
        return dict(rows)
    if hasattr(rows, "columns") and hasattr(rows, "items"):  # a pandas data frame
        return {str(name): column for name, column in rows.items()}
    raise InvalidInput(
        f"rows of type {type(rows).__qualname__} are not accepted: give a pyarrow.Table, a dict of columns "
        "or a data frame"
    )


def _column(name: str, values: Any, wanted: str) -> "pa.Array | pa.ChunkedArray":
    import pyarrow as pa

    target = arrow_type(wanted)
    try:
        column = _as_arrow(values, target)
        if str(column.type) == wanted:
            return column
        if target is None or not _is_safe_cast(column.type, target):
            raise pa.ArrowInvalid(f"it is {column.type}")
        cast = column.cast(target)
        if (
            pa.types.is_date(target)
            and pa.types.is_timestamp(column.type)
            and not cast.cast(column.type).equals(column)
        ):
            raise pa.ArrowInvalid("it has times, which a date has not: cut them off where that is meant")
        return cast
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(f"column {name!r} is not accepted: the model takes {wanted}; {reason}") from None


def _as_arrow(column: Any, target: "pa.DataType | None") -> "pa.Array | pa.ChunkedArray":
    import numpy as np
    import pyarrow as pa

    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    is_series = hasattr(column, "dtype") and hasattr(column, "index")
    if is_series and column.dtype != object:
        return pa.Array.from_pandas(column)
    if isinstance(column, np.ndarray) and column.dtype != object:
        if column.ndim == 2:
            items = pa.array(np.ascontiguousarray(column).ravel())
            return pa.FixedSizeListArray.from_arrays(items, column.shape[1])
        return pa.array(column, from_pandas=False)
    values = list(column)
    if target is not None and (
        pa.types.is_fixed_size_list(target) or pa.types.is_list(target) or pa.types.is_large_list(target)
    ):
        # Only the wanted type has the length of the lists.
        return pa.array([_as_list(value) for value in values], target)
    try:
        array = pa.array(values, from_pandas=is_series)
    except OverflowError:  # an integer does not fit into int64
        array = pa.array(values, target, from_pandas=is_series)
    if target is None:
        return array
    return _from_json(array, target)


def _as_list(value: Any) -> list[Any] | None:
    """Convert a value to a list; None where a data frame has NaN, NA or None, because the list is missing."""
    if hasattr(value, "__iter__"):
        return list(value)
    if value is None or type(value).__name__ == "NAType" or value != value:
        return None
    raise ValueError(f"{value!r} is no list")


def _from_json(array: "pa.Array", target: "pa.DataType") -> "pa.Array":
    """Convert values of types that JSON does not have from their form in JSON.

    That form is :func:`halving.models.example.as_json`'s.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_string(array.type):
        if types.is_timestamp(target) or types.is_date(target) or types.is_decimal(target):
            return array.cast(target)
        texts = array.to_pylist()
        if types.is_time(target):
            times = [None if text is None else time.fromisoformat(text) for text in texts]
            return pa.array(times, target)
        if types.is_binary(target) or types.is_large_binary(target) or types.is_fixed_size_binary(target):
            contents = [None if text is None else base64.b64decode(text, validate=True) for text in texts]
            return pa.array(contents, target)
    if types.is_integer(array.type) and types.is_duration(target):
        return array.cast(target)
    return array


def _is_safe_cast(actual: "pa.DataType", wanted: "pa.DataType") -> bool:
    """Whether a cast between the types keeps the meaning; a text is never read as a number."""
    import pyarrow as pa

    types = pa.types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    while types.is_dictionary(actual):
        actual = actual.value_type
    while types.is_dictionary(wanted):
        wanted = wanted.value_type
    if any(is_list(wanted) for is_list in lists):
        return any(is_list(actual) for is_list in lists) and _is_safe_cast(
            actual.value_type, wanted.value_type
        )
    kinds = (
        lambda kind: types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind),
        lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind),
        types.is_boolean,
        lambda kind: types.is_timestamp(kind) or types.is_date(kind),
        types.is_time,
        types.is_duration,
    )
    return types.is_null(actual) or any(kind(actual) and kind(wanted) for kind in kinds)


def _list_columns(schema: Mapping[str, str]) -> str:
    columns = [f"{name} ({kind})" for name, kind in schema.items()]
    text = ", ".join(columns[:8])
    if len(columns) > 8:
        text += f" and {len(columns) - 8} more"
    return text
