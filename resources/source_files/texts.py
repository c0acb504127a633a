"""The types of values that are written as texts, in CSV files and in names of folders."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

LEADING_ZERO = r"^\s*[+-]?0[0-9xX]"
"""Texts that Arrow would read as whole numbers, wrongly: zip codes, and 0xFF…, of which it makes -1."""

# A double holds all whole numbers of 15 digits, but not all longer ones.
_LONG = r"^\s*[+-]?[0-9]{16,}\s*$"


def types_of_texts(texts: pa.RecordBatch) -> pa.Schema:
    """Find the type of each column of texts, as Arrow's CSV reader has it, but never change a number.

    ``007`` is a text, like zip codes, and so is ``0x1F``. Whole numbers beyond int64 are uint64 if they fit,
    and else texts. They are texts, too, where a fraction makes the column double, which would round them. A
    column without values has the type null.
    """
    types = values_of_texts(texts).schema
    for place, field in enumerate(types):
        column = texts.column(place)
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            types = types.set(place, field.with_type(_exact_type(column, field.type)))
    return types


def wider(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The type of the values of both, as they are written in texts; None if only text would do."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    kinds = {first, second}
    if kinds <= {pa.int64(), pa.uint64(), pa.float64()}:
        return pa.float64() if pa.float64() in kinds else pa.uint64()
    for order in (
        [pa.date32(), pa.timestamp("s"), pa.timestamp("ns")],
        [pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC")],
    ):
        if kinds <= set(order):
            return max(first, second, key=order.index)
    return None


def values_of_texts(texts: pa.RecordBatch, types: pa.Schema | None = None) -> pa.Table:
    """Read columns of texts as values of these types, or of those that Arrow finds.

    If there is a single column, rows in which it is null are left out.

    Raises:
        pyarrow.ArrowInvalid: a text is no value of its column's type.
    """
    names = [str(place) for place in range(texts.num_columns)]  # Two columns may have the same name.
    type_of = {field.name: field.type for field in types or ()}
    kinds = [type_of.get(name) for name in texts.schema.names]
    sink = pa.BufferOutputStream()
    csv.write_csv(texts.rename_columns(names), sink, csv.WriteOptions(include_header=False))
    content = sink.getvalue()
    if not content.size:
        return pa.Table.from_arrays([pa.nulls(0, kind) for kind in kinds], texts.schema.names)
    values = csv.read_csv(
        content,
        csv.ReadOptions(use_threads=False, block_size=content.size + 1, column_names=names),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types={name: kind for name, kind in zip(names, kinds, strict=True) if kind is not None}
        ),
    )
    return values.rename_columns(texts.schema.names)


def _exact_type(texts: pa.Array, kind: pa.DataType) -> pa.DataType:
    """The type in which numbers are what is written: the given one, uint64 or text."""
    if _any(texts, LEADING_ZERO):
        return pa.string()
    if pa.types.is_floating(kind) and _any(texts, _LONG):
        return pa.uint64() if _are_all(texts, pa.uint64()) else pa.string()
    return kind


def _any(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _are_all(texts: pa.Array, kind: pa.DataType) -> bool:
    try:
        values_of_texts(pa.record_batch({"": texts}), pa.schema([("", kind)]))
    except pa.ArrowInvalid:
        return False
    return True
