"""The columns of files, found before a row is read; their union; and rows cast to it, exactly or refused."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from halving.data.exact_casts import Unlike, cast_exactly
from halving.errors import InvalidInput
from resources.source_files.column_types import plain_type, unite_types
from resources.source_files.texts import wider

_LEFTOVER_INDEX = re.compile(r"__index_level_\d+__")
_SAME = (
    "give files of the same columns, or sql with read_csv or read_parquet('…', union_by_name = true), "
    "which fills with null"
)
_WAYS = "write it with one type, or give sql with a cast"


@dataclass(frozen=True)
class Columns:
    """The columns of one file.

    Attributes:
        types: types as :func:`plain_type` gives them; null for a column without a value to tell its type by.
        large: columns of a text format with whole numbers beyond 2**53; of Parquet only the rows tell.
        optional: whether a missing column, or field of a struct, counts as null, as a missing key of JSON.
        texts: columns that can be read as the texts that are written there; in a CSV file these are all.
    """

    types: pa.Schema
    large: frozenset[str] = frozenset()
    optional: bool = False
    texts: frozenset[str] = frozenset()


def is_leftover_index(name: str) -> bool:
    """Whether a column is the leftover index of a filtered or sorted pandas frame.

    It says where rows stood before, and nothing about them. The name alone decides: pandas' metadata, which
    also names such columns, is lost where another tool has written the rows.
    """
    return _LEFTOVER_INDEX.fullmatch(name) is not None


def without_index(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without leftover indexes."""
    names = [name for name in rows.schema.names if is_leftover_index(name)]
    if not names:
        return rows
    return rows.drop_columns(names)


def unite(field: str, files: Iterable[tuple[str, Columns]], *, ways: str = _WAYS) -> pa.Schema:
    """Unite the columns of files; each comes with its name in messages.

    Columns are in the order of their first appearance. If all values are texts, the type is the one that they
    would have within one file, where numbers beside words are texts.

    Args:
        ways: advice about two types that do not go together, for the message.

    Raises:
        InvalidInput: two files have other columns, or types that do not go together; both are named.
    """
    types: dict[str, pa.DataType] = {}
    file_of_column: dict[str, str] = {}  # the first file that has it
    file_of_type: dict[str, str] = {}  # the file that gave the column its type
    file_of_large: dict[str, str] = {}
    file_without_texts: dict[str, str] = {}  # the first file in which it is not written as texts
    unlike: dict[str, dict[str, pa.DataType]] = {}  # two files whose types unite only as texts
    complete_file: str | None = None  # the first file in which a missing column is not null
    last: Columns | None = None
    for file, columns in files:
        if columns == last:
            continue
        names = [name for name in columns.types.names if not is_leftover_index(name)]
        _refuse_double_names(field, file, names)
        missing = sorted(set(types) - set(names))
        more = sorted(set(names) - set(types))
        if missing and not columns.optional:
            also = ""
            if more:
                also = f" (and has {more} more)"
            raise InvalidInput(
                f"{field} is not accepted: {file} has no column {missing[0]!r}, which "
                f"{file_of_column[missing[0]]} has{also}; {_SAME}"
            )
        if more and complete_file is not None:
            raise InvalidInput(
                f"{field} is not accepted: {complete_file} has no column {more[0]!r}, which {file} has; "
                f"{_SAME}"
            )
        for name in columns.large:
            file_of_large.setdefault(name, file)
        for column in map(columns.types.field, names):
            before = types.get(column.name, pa.null())
            kind = plain_type(column.type)
            if column.name not in columns.texts and not pa.types.is_null(kind):
                file_without_texts.setdefault(column.name, file)
            try:
                after = unite_types(before, kind, optional=columns.optional)
            except Unlike:
                unlike[column.name] = {file_of_type[column.name]: before, file: column.type}
                after = wider(before, kind) or pa.string()
            if column.name in unlike and column.name in file_without_texts:
                types_of_files = " and ".join(
                    f"{type_there} in {name}" for name, type_there in unlike[column.name].items()
                )
                raise InvalidInput(
                    f"{field} is not accepted: the column {column.name!r} is {types_of_files}; {ways}"
                )
            file_of_column.setdefault(column.name, file)
            if after != before or column.name not in types:
                file_of_type[column.name] = file
            types[column.name] = after
        if complete_file is None and not columns.optional:
            complete_file = file
        last = columns
    for name, file in file_of_large.items():
        if pa.types.is_floating(types[name]):
            raise InvalidInput(
                f"{field} is not accepted: the column {name!r} has whole numbers beyond 2**53 in {file} "
                f"and fractions in {file_of_type[name]}, and no double is both; "
                "write whole numbers as texts, or give sql with a cast"
            )
    return pa.schema(list(types.items()))


def _refuse_double_names(field: str, file: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInput(
                f"{field} is not accepted: {file} has {count} columns of the name {name!r}; give each its own"
            )


def bring_to_union(
    rows: pa.RecordBatch,
    wanted: pa.Schema,
    constants: Mapping[str, pa.Scalar],
    file: str,
    *,
    field: str,
    optional: bool = False,
) -> pa.RecordBatch:
    """Cast rows of a file to the united columns, in their order.

    Args:
        constants: values of the columns that the file's path gives; what the file itself has comes first.
        file: its name in messages.
        optional: see :attr:`Columns.optional`; if true, nulls are filled from the path, too.

    Raises:
        InvalidInput: a value does not fit, or the file has other columns than before.
    """
    names = {name for name in rows.schema.names if not is_leftover_index(name)}
    missing = set(wanted.names) - names - set(constants)
    if names - set(wanted.names) or (missing and not optional):
        raise InvalidInput(
            f"{field} is not accepted: {file} has the columns {rows.schema.names}, and before it had "
            f"{wanted.names}"
        )
    columns = []
    for column in wanted:
        values = pa.nulls(rows.num_rows, column.type)
        if column.name in names:
            values = rows.column(column.name)
        is_of_path = column.name in constants and (optional or column.name not in names)
        try:
            values = cast_exactly(values, column.type)
            if is_of_path:
                values = pc.fill_null(
                    values, cast_exactly(pa.repeat(constants[column.name], 1), column.type)[0]
                )
            columns.append(values)
        except (Unlike, pa.ArrowException) as error:
            raise InvalidInput(
                f"{field} is not accepted: the column {column.name!r} of {file} does not become "
                f"{column.type}, which it is with the other files: {error}; {_WAYS}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
