"""The columns that a loader reads: accepted types, their buffers, and batches as NumPy arrays or Arrow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    Array = np.ndarray[Any, Any]

ACCEPTED = (
    "numbers, booleans, dates and times, binary, strings, fixed-size lists of numbers, and lists of numbers"
)
_NULLS = {"f": np.nan, "M": np.datetime64("NaT"), "m": np.timedelta64("NaT")}  # by a dtype's kind
_MEND_TEXT = (
    "make it text or binary in the dataset's transform, or read it by transform=…, which is given Arrow"
)


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Attributes:
        node, buffer: its first field node and buffer in a record batch. That buffer says which rows are not
            null.
        kind: ``fixed`` (the same number of bytes for each row), ``bits`` (booleans), or ``variable``.
        dtype: of a number; one byte for binary and strings.
        shape: of a row, where the column is ``fixed``.
        offset_bytes, data_buffer: for a ``variable`` column the width of an offset, and the buffer that the
            offsets point into.
        nodes: number of field nodes, of the column and the lists in it.
    """

    name: str
    type: "pa.DataType"
    node: int
    buffer: int
    kind: str
    dtype: "np.dtype[Any]"
    shape: tuple[int, ...] = ()
    offset_bytes: int = 0
    data_buffer: int = 0
    nodes: int = 1

    @property
    def has_null(self) -> bool:
        """Whether NumPy can represent a null of this column: as NaN, NaT, or None among objects."""
        return self.kind == "variable" or self.dtype.kind in _NULLS

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a ``fixed`` column."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass
class Gathered:
    """Rows of a column that are collected from shards.

    ``values`` is an array of numbers ``(rows, *shape)`` or of booleans ``(rows,)``, or a list of ``rows``
    memoryviews. ``valid`` is ``(rows,)``, or None where no row is null.
    """

    column: Column
    values: Any
    valid: "Array | None" = None


def columns_of(schema: "pa.Schema", names: Sequence[str] | None, where: str) -> list[Column]:
    """Look up columns by name, in the order of the names; all columns without names.

    Args:
        where: the dataset and split, for messages.

    Raises:
        InvalidInput: there is no such column, or its type is not accepted.
    """
    if names is None:
        names = schema.names
    wanted = list(names)
    if unknown := [name for name in wanted if schema.names.count(name) != 1]:
        raise InvalidInput(f"columns = {unknown[0]!r} is not accepted: {where} has {', '.join(schema.names)}")
    if not wanted:
        raise InvalidInput(f"columns = {wanted!r} is not accepted: give some of {', '.join(schema.names)}")
    places = {}
    node = 0
    buffer = 0
    view = ""
    for field in schema:
        places[field.name] = (node, buffer)
        if not view and _has_views(field.type):
            view = field.name
        if view and field.name in wanted:  # a view has any number of buffers
            raise InvalidInput(
                f"column {field.name!r} of {where} is not read, because {view!r} is of type "
                f"{schema.field(view).type}"
            )
        nodes, buffers = _counts(field.type)
        node += nodes
        buffer += buffers
    columns = []
    for name in wanted:
        column = _column(name, schema.field(name).type, *places[name])
        if column is None:
            raise InvalidInput(
                f"column {name!r} of {where} is of type {schema.field(name).type}, which a loader does not "
                f"read: it reads {ACCEPTED}; "
                "name the columns to read by columns=[…], or give it another form in the dataset's transform"
            )
        columns.append(column)
    return columns


def refuse_unreadable(
    columns: Sequence[Column],
    statistics: Sequence[Mapping[str, Mapping[str, Any]]],
    where: str,
    *,
    for_numpy: bool,
) -> None:
    """Refuse columns with nulls or broken texts that batches cannot represent.

    What a column has was counted when the snapshot was taken, so that nothing is read for this.

    Args:
        statistics: by column, of each part of the rows; see :meth:`halving.data.dataset.Dataset.statistics`.
        where: the dataset and split, for messages.
        for_numpy: whether batches are NumPy arrays; Arrow has null for any row.

    Raises:
        InvalidInput: naming the first column that has some, how many nulls there are, and what to do.
    """
    for column in columns:
        counts = [part.get(column.name, {}) for part in statistics]
        nulls = sum(part.get("nulls", 0) for part in counts)
        items = sum(part.get("null_items", 0) for part in counts)
        subject = f"column {column.name!r} of {where} is of type {column.type} and has"
        if items:
            raise InvalidInput(
                f"{subject} {_count_of_nulls(items)} within its lists, which a loader does not read: "
                "fill them in the dataset's transform, or leave the column out by columns=[…]"
            )
        if nulls and for_numpy and not column.has_null:
            raise InvalidInput(
                f"{subject} {_count_of_nulls(nulls)}, for which NumPy has no value: fill them in "
                "transform=…, which is given Arrow, or in the dataset's transform, or leave the column out "
                "by columns=[…]"
            )
        if for_numpy and any("not_utf8" in part for part in counts):
            raise InvalidInput(f"{subject} text that is not UTF-8: {_MEND_TEXT}")


def _count_of_nulls(nulls: int) -> str:
    """The number of nulls, for messages."""
    if nulls == 1:
        return "1 null"
    return f"{nulls:,} nulls"


def as_numpy(gathered: Gathered, begin: int, end: int) -> "Array":
    """Convert some of the rows to an array.

    Numbers have the shape ``(rows, *shape)``. ``bytes``, ``str`` or arrays are objects ``(rows,)``, with None
    for null.

    Raises:
        InvalidInput: a row of integers or booleans is null, for which NumPy has no value, or a text is not
            UTF-8.
    """
    column = gathered.column
    values = gathered.values[begin:end]
    valid = gathered.valid
    if valid is not None:
        valid = valid[begin:end]
    if column.kind == "variable":
        return _objects(column, values, valid)
    if valid is not None and not valid.all():
        if not column.has_null:
            raise InvalidInput(
                f"column {column.name!r} of type {column.type} has a null, for which NumPy has no number: "
                "fill it in transform=…, which is given Arrow, or when the dataset is made"
            )
        values = values.copy()
        values[~valid] = _NULLS[column.dtype.kind]
    return values  # type: ignore[no-any-return]


def as_arrow(columns: Sequence[Gathered]) -> "pa.RecordBatch":
    """Convert all rows of some columns to a record batch, which shares the memory of the numbers."""
    import pyarrow as pa

    arrays = [_arrow(gathered) for gathered in columns]
    return pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([(gathered.column.name, gathered.column.type) for gathered in columns])
    )


def _objects(column: Column, views: "list[memoryview]", valid: "Array | None") -> "Array":
    """Convert rows of a ``variable`` column to objects; None stands for null."""
    import pyarrow as pa

    objects = np.empty(len(views), object)
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    for place, view in enumerate(views):
        if valid is not None and not valid[place]:
            continue
        if is_text:
            objects[place] = _text(column, view)
        elif is_list:
            objects[place] = np.frombuffer(view, column.dtype).copy()
        else:
            objects[place] = bytes(view)
    return objects


def _text(column: Column, view: memoryview) -> str:
    """Decode a text; one that is not UTF-8 is refused."""
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(
            f"column {column.name!r} of type {column.type} has {bytes(view[:40])!r}, which is not UTF-8: "
            f"{_MEND_TEXT}"
        ) from None


def _arrow(gathered: Gathered) -> "pa.Array":
    """Convert all rows of a column to an Arrow array."""
    import pyarrow as pa

    column = gathered.column
    values = gathered.values
    valid = gathered.valid
    bits = None
    if valid is not None:
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    count = len(values)
    if column.kind == "bits":
        return pa.Array.from_buffers(
            column.type, count, [bits, pa.py_buffer(np.packbits(values, bitorder="little"))]
        )
    if column.kind == "fixed":
        return _fixed_size_array(column.type, count, bits, pa.py_buffer(np.ascontiguousarray(values)))
    ends = np.cumsum([0, *(view.nbytes for view in values)], dtype=np.int64) // column.dtype.itemsize
    if column.offset_bytes == 4 and ends[-1] >= 1 << 31:
        raise InvalidInput(
            f"a batch of column {column.name!r} has {ends[-1]:,} items, and {column.type} takes "
            "2,147,483,647: make batches smaller"
        )
    offsets = pa.py_buffer(ends.astype(f"<i{column.offset_bytes}"))
    data = pa.py_buffer(b"".join(values))
    if not hasattr(column.type, "value_type"):
        return pa.Array.from_buffers(column.type, count, [bits, offsets, data])
    items = pa.Array.from_buffers(column.type.value_type, int(ends[-1]), [None, data])
    return pa.Array.from_buffers(column.type, count, [bits, offsets], children=[items])


def _fixed_size_array(type_: "pa.DataType", count: int, bits: Any, data: Any) -> "pa.Array":
    """Make an array of numbers, or of fixed-size lists of them, from buffers.

    Args:
        bits: which rows are not null; None for all.
        data: the numbers of all rows.
    """
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(type_):
        return pa.Array.from_buffers(type_, count, [bits, data])
    items = _fixed_size_array(type_.value_type, count * type_.list_size, None, data)
    return pa.Array.from_buffers(type_, count, [bits], children=[items])


def _column(name: str, type_: "pa.DataType", node: int, buffer: int) -> Column | None:
    """Describe a column that begins at a field node and a buffer; None if its type is not accepted."""
    from pyarrow import types

    byte = np.dtype(np.uint8)
    if types.is_boolean(type_):
        return Column(name, type_, node, buffer, "bits", np.dtype(bool))
    if types.is_binary(type_) or types.is_string(type_):
        return Column(name, type_, node, buffer, "variable", byte, offset_bytes=4, data_buffer=buffer + 2)
    if types.is_large_binary(type_) or types.is_large_string(type_):
        return Column(name, type_, node, buffer, "variable", byte, offset_bytes=8, data_buffer=buffer + 2)
    if types.is_list(type_) or types.is_large_list(type_):
        item = _number(type_.value_type)
        width = 4 if types.is_list(type_) else 8
        return item and Column(name, type_, node, buffer, "variable", item, (), width, buffer + 3, nodes=2)
    shape: tuple[int, ...] = ()
    inner = type_
    while types.is_fixed_size_list(inner):
        shape = (*shape, inner.list_size)
        inner = inner.value_type
    nodes, buffers = _counts(type_)
    if types.is_fixed_size_binary(inner):
        return Column(
            name,
            type_,
            node,
            buffer,
            "fixed",
            byte,
            (*shape, inner.byte_width),
            data_buffer=buffer + buffers - 1,
            nodes=nodes,
        )
    number = _number(inner)
    return number and Column(
        name, type_, node, buffer, "fixed", number, shape, data_buffer=buffer + buffers - 1, nodes=nodes
    )


def _number(type_: "pa.DataType") -> "np.dtype[Any] | None":
    """The dtype with which NumPy reads numbers, dates or times of a type; None for other types."""
    from pyarrow import types

    if types.is_integer(type_) or types.is_floating(type_):
        number: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return number
    if types.is_timestamp(type_):
        return np.dtype(f"datetime64[{type_.unit}]")
    if types.is_duration(type_):
        return np.dtype(f"timedelta64[{type_.unit}]")
    if types.is_date64(type_):
        return np.dtype("datetime64[ms]")
    if types.is_date32(type_) or types.is_time(type_):
        return np.dtype(f"int{type_.bit_width}")  # days since 1970; since midnight, in the type's unit
    return None


def _has_views(type_: "pa.DataType") -> bool:
    """Whether a type is a view, or has one in it; its number of buffers then differs between batches."""
    return str(type_).endswith("_view") or any(
        _has_views(type_.field(number).type) for number in range(type_.num_fields)
    )


def _counts(type_: "pa.DataType") -> tuple[int, int]:
    """The number of field nodes and of buffers that a type has in a record batch."""
    from pyarrow import types

    if types.is_null(type_):
        return 1, 0
    if types.is_dictionary(type_) or not type_.num_fields:
        is_variable = (
            types.is_binary(type_)
            or types.is_string(type_)
            or types.is_large_binary(type_)
            or types.is_large_string(type_)
        )
        if is_variable:
            return 1, 3
        return 1, 2
    has_offsets = not (types.is_struct(type_) or types.is_fixed_size_list(type_))
    own_buffers = 1 + has_offsets
    parts = [_counts(type_.field(number).type) for number in range(type_.num_fields)]
    return 1 + sum(nodes for nodes, _ in parts), own_buffers + sum(buffers for _, buffers in parts)
