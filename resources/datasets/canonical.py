"""Rows in the one form that snapshots store, so that equal rows are equal bytes.

How the rows were built and batched has no effect.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halving.data.exact_casts import Unlike, cast_exactly
from halving.errors import InvalidInput
from resources.source_files.column_types import canonical_type, plain_type, unite_types

BATCH_BYTES = 4 * 2**20
"""Size of a record batch in a shard, and of the work done at a time; a larger row is a batch by itself."""


def canonical_schema(schema: pa.Schema, field: str = "dataset.source") -> pa.Schema:
    """The schema in which a snapshot stores rows of this schema.

    It has no metadata, no encodings, no views and no decimals, and each column may hold nulls.

    Raises:
        InvalidInput: a column has no name of its own, or a type that a snapshot cannot hold.
    """
    if not schema.names:
        raise InvalidInput(f"{field} is not accepted: its rows have no columns")
    for name in schema.names:
        if not name or schema.names.count(name) > 1:
            raise InvalidInput(
                f"{field} is not accepted: its columns are {schema.names}; give each a name of its own"
            )
    return pa.schema(
        [pa.field(column.name, _canonical_type(column.type, column.name, field)) for column in schema]
    )


def canonical(rows: pa.RecordBatch, schema: pa.Schema, field: str = "dataset.source") -> pa.RecordBatch:
    """Cast rows to the canonical schema, and clear what lies under their nulls.

    Raises:
        InvalidInput: they have other columns, or a value that does not fit the type of the first rows.
    """
    if set(rows.schema.names) != set(schema.names):
        missing = set(schema.names) - set(rows.schema.names)
        more = set(rows.schema.names) - set(schema.names)
        raise InvalidInput(
            f"{field} is not accepted: some rows have other columns than the first ones; "
            f"missing are {sorted(missing) or 'none'}, more are {sorted(more) or 'none'}"
        )
    columns = []
    for column in schema:
        values = rows.column(column.name)
        if not _has_fields(values.type, column.type):
            raise InvalidInput(
                f"{field} is not accepted: in the column {column.name!r} the first rows are {column.type}, "
                f"later ones {values.type}; give all of them the same fields"
            )
        if not _goes_with(values.type, column.type):
            raise InvalidInput(
                f"{field} is not accepted: in the column {column.name!r} the first rows are {column.type}, "
                f"later ones {values.type}; give all of them one type"
            )
        try:
            columns.append(_clear_under_nulls(cast_exactly(values, column.type)))
        except Unlike as error:
            raise InvalidInput(
                f"{field} is not accepted: the column {column.name!r} does not become {column.type}: "
                f"{error}; cast it in a query, or in dataset.transform, for example to a text"
            ) from None
        except pa.ArrowException as error:
            raise InvalidInput(
                f"{field} is not accepted: in the column {column.name!r} the first rows have the type "
                f"{column.type}, later ones {values.type} with values that do not fit: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def row_bytes(rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Approximate bytes of each row in a shard, from the row's values alone. Shape (rows,)."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        sizes += _value_bytes(column)
    return sizes


def rebatch(batches: Iterable[pa.RecordBatch], batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Regroup rows into batches of about this size, whatever batches they came in."""
    pending: list[pa.RecordBatch] = []
    taken = 0
    group = 0
    for rows in batches:
        sizes = row_bytes(rows)
        ends = taken + np.cumsum(sizes)
        groups = (ends - sizes) // batch_bytes
        begin = 0
        for end in [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), rows.num_rows]:
            if begin < end:
                if pending and groups[begin] != group:
                    yield join_batches(pending)
                    pending = []
                group = int(groups[begin])
                pending.append(rows.slice(begin, end - begin))
                begin = end
        if len(ends):
            taken = int(ends[-1])
    if pending:
        yield join_batches(pending)


def join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches into one with buffers of its own.

    It has no offsets, and no bits of other rows in the last byte of a bitmap.
    """
    rows = batches[0]
    if len(batches) > 1:
        rows = pa.concat_batches(batches)
    return rows.take(pa.array(np.arange(rows.num_rows)))


def _canonical_type(kind: pa.DataType, column: str, field: str) -> pa.DataType:
    try:
        return canonical_type(kind)
    except Unlike as error:
        raise InvalidInput(
            f"{field} is not accepted: its column {column!r} has the type {error}; "
            "give numbers, texts, binary values, times, or lists and structs of them "
            "(a column that is all null needs a type, too)"
        ) from None


def _has_fields(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether structs of one type have the fields of another; a cast would drop and invent some."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(kind):
        wanted_types = {
            wanted.field(number).name: wanted.field(number).type for number in range(wanted.num_fields)
        }
        types = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
        return wanted_types.keys() == types.keys() and all(
            _has_fields(types[name], wanted_types[name]) for name in wanted_types
        )
    if pa.types.is_nested(wanted) and pa.types.is_nested(kind) and kind.num_fields == wanted.num_fields == 1:
        return _has_fields(kind.field(0).type, wanted.field(0).type)
    return True


def _goes_with(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type fit another without a change of meaning.

    Arrow's own cast would read texts as numbers, and write numbers as texts.
    """
    try:
        unite_types(wanted, plain_type(kind))
    except Unlike:
        return False
    return True


def _clear_under_nulls(values: pa.Array) -> pa.Array:
    """Set what is stored in place of nulls to zero; Arrow leaves it open, so equal rows could differ."""
    if pa.types.is_struct(values.type):
        inner = [
            _clear_under_nulls(child) for child in values.flatten()
        ]  # Fields of a null struct become null.
        names = [values.type.field(number).name for number in range(values.type.num_fields)]
        if not names:
            return values
        return pa.StructArray.from_arrays(inner, fields=list(values.type), mask=pc.is_null(values))
    if not values.null_count:
        return values
    return values.take(pa.array(np.arange(len(values))))


def _value_bytes(values: pa.Array) -> NDArray[np.int64] | int:
    kind = values.type
    if pa.types.is_struct(kind):
        return sum(
            (_value_bytes(values.field(number)) for number in range(kind.num_fields)),
            np.zeros(len(values), np.int64),
        )
    if pa.types.is_fixed_size_list(kind):
        inner = _value_bytes(
            values.values.slice(values.offset * kind.list_size, len(values) * kind.list_size)
        )
        if isinstance(inner, int):
            return inner * kind.list_size
        return inner.reshape(len(values), kind.list_size).sum(axis=1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(values.offsets).astype(np.int64)
        inner = _value_bytes(values.values.slice(offsets[0], offsets[-1] - offsets[0]))
        if isinstance(inner, int):
            return np.diff(offsets) * inner + 4
        return np.diff(np.concatenate([[0], np.cumsum(inner)])[offsets - offsets[0]]) + 4
    if any(
        is_text(kind)
        for is_text in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    ):
        return pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64) + 4
    return max(1, kind.bit_width // 8)
