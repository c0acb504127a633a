"""What columns files say they have, before a row is read; their union; and rows brought to it, each value as it was or refused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from halving.errors import InvalidInput
from resources.source_files.column_types import Unlike, cast_exactly, plain_type, united_type

_WAYS = "write it with one type, or give sql with a cast"


@dataclass(frozen=True)
class Columns:
    """The columns of one file.

    Attributes:
        types: as :func:`plain_type` gives them; null where the file holds no value from which a type could be told.
        large: names of those with whole numbers beyond 2**53, as far as a text format knows. Of Parquet the rows tell.
        optional: whether a column, or a field of a struct, that is not there is null, as a key of JSON is.
    """

    types: pa.Schema
    large: frozenset[str] = frozenset()
    optional: bool = False


def united(field: str, files: Iterable[tuple[str, Columns]]) -> pa.Schema:
    """Unite the columns of files, each with its name as people know it; columns are in the order in which they are first there.

    Raises:
        InvalidInput: two files have other columns, or types that do not go together; both are named.
    """
    types: dict[str, pa.DataType] = {}
    shown_of_type: dict[str, str] = {}  # of each column the file that gave it its type
    shown_of_large: dict[str, str] = {}
    first = ""
    last: Columns | None = None
    are_optional = True  # whether each file so far may lack columns
    for shown, columns in files:
        if columns == last:
            continue
        for name in columns.large:
            shown_of_large.setdefault(name, shown)
        _refuse_double_names(field, shown, columns.types.names)
        if last is None:
            first = shown
        else:
            _refuse_other_columns(field, (first, set(types), are_optional), (shown, set(columns.types.names), columns.optional))
        for column in columns.types:
            before = types.get(column.name, pa.null())
            try:
                after = united_type(before, plain_type(column.type), optional=columns.optional)
            except Unlike:
                raise InvalidInput(
                    f"{field} is not accepted: the column {column.name!r} is {before} in {shown_of_type[column.name]} "
                    f"and {column.type} in {shown}; {_WAYS}"
                ) from None
            if after != before or column.name not in types:
                shown_of_type[column.name] = shown
            types[column.name] = after
        are_optional = are_optional and columns.optional
        last = columns
    for name, shown in shown_of_large.items():
        if pa.types.is_floating(types[name]):
            raise InvalidInput(
                f"{field} is not accepted: the column {name!r} has whole numbers beyond 2**53 in {shown} and fractions in "
                f"{shown_of_type[name]}, and no double is both; write whole numbers as texts, or give sql with a cast"
            )
    return pa.schema(list(types.items()))


def _refuse_double_names(field: str, shown: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{field} is not accepted: {shown} has {names.count(name)} columns of the name {name!r}; give each its own")


def _refuse_other_columns(field: str, first: tuple[str, set[str], bool], later: tuple[str, set[str], bool]) -> None:
    """Refuse a file that lacks a column of the first, or has one more, where such a column is not simply null."""
    shown_first, names_first, is_first_optional = first
    shown, names, is_optional = later
    missing = sorted(names_first - names)
    more = sorted(names - names_first)
    ways = "give files of the same columns, or sql with read_csv or read_parquet('…', union_by_name = true), which fills with null"
    if missing and not is_optional:
        also = f" (and has {more} more)" if more else ""
        raise InvalidInput(f"{field} is not accepted: {shown} has no column {missing[0]!r}, which {shown_first} has{also}; {ways}")
    if more and not is_first_optional:
        raise InvalidInput(f"{field} is not accepted: {shown_first} has no column {more[0]!r}, which {shown} has; {ways}")


def as_united(
    rows: pa.RecordBatch, wanted: pa.Schema, constants: Mapping[str, Any], shown: str, *, field: str, optional: bool = False
) -> pa.RecordBatch:
    """Bring rows of a file to the united columns: in their order, with their types.

    Args:
        constants: of each column that the file has by its path alone, its value; what the file itself has comes first.
        shown: the file as people know it.
        optional: as :attr:`Columns.optional`.

    Raises:
        InvalidInput: a value does not fit, or the file has other columns than it said.
    """
    names = set(rows.schema.names)
    missing = set(wanted.names) - names - set(constants)
    if names - set(wanted.names) or (missing and not optional):
        raise InvalidInput(f"{field} is not accepted: {shown} has the columns {rows.schema.names}, and before it had {wanted.names}")
    columns = []
    for column in wanted:
        if column.name in names:
            values = rows.column(column.name)
        elif column.name in constants:
            values = pa.repeat(pa.scalar(constants[column.name], column.type), rows.num_rows)
        else:
            values = pa.nulls(rows.num_rows, column.type)
        try:
            columns.append(cast_exactly(values, column.type))
        except (Unlike, pa.ArrowException) as error:
            raise InvalidInput(
                f"{field} is not accepted: the column {column.name!r} of {shown} does not become {column.type}, which it is "
                f"with the other files: {error}; {_WAYS}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
