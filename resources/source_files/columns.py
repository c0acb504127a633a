"""What columns files say they have, before a row is read; their union; and rows brought to it, each value as
it was or refused.
"""

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
        types: as :func:`plain_type` gives them; null where the file holds no value from which a type could be
            told.
        large: names of those with whole numbers beyond 2**53, as far as a text format knows. Of Parquet the
            rows tell.
        optional: whether a column, or a field of a struct, that is not there is null, as a key of JSON is.
        texts: names of those that can be read as the texts that are written there, as all of a CSV file can.
    """

    types: pa.Schema
    large: frozenset[str] = frozenset()
    optional: bool = False
    texts: frozenset[str] = frozenset()


def is_leftover_index(name: str) -> bool:
    """Whether a column is the index of a pandas frame that was filtered or sorted: where its rows stood
    before, which says nothing of them.

    The name alone tells. The metadata that names such columns, too, is lost where another tool has written
    the rows.
    """
    return _LEFTOVER_INDEX.fullmatch(name) is not None


def without_index(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without the columns that are a leftover index."""
    names = [name for name in rows.schema.names if is_leftover_index(name)]
    return rows.drop_columns(names) if names else rows


def unite(field: str, files: Iterable[tuple[str, Columns]], *, ways: str = _WAYS) -> pa.Schema:
    """Unite the columns of files, each with its name as people know it; columns are in the order in which
    they are first there.

    Of texts alone the union is the type that they have within one file, where numbers beside words are texts.

    Args:
        ways: what to do about two types that do not go together, for the message.

    Raises:
        InvalidInput: two files have other columns, or types that do not go together; both are named.
    """
    types: dict[str, pa.DataType] = {}
    file_of_column: dict[str, str] = {}  # the first file that has it
    file_of_type: dict[str, str] = {}  # the file that gave it its type
    file_of_large: dict[str, str] = {}
    file_without_texts: dict[str, str] = {}  # the first file in which it is not written as texts
    unlike: dict[str, dict[str, pa.DataType]] = {}  # two files whose types go together as texts alone
    complete_file: str | None = None  # the first file that has all of its columns, and so all that there are
    last: Columns | None = None
    for file, columns in files:
        if columns == last:
            continue
        names = [name for name in columns.types.names if not is_leftover_index(name)]
        _refuse_double_names(field, file, names)
        missing = sorted(set(types) - set(names))
        more = sorted(set(names) - set(types))
        if missing and not columns.optional:
            also = f" (and has {more} more)" if more else ""
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
                both = " and ".join(
                    f"{type_there} in {name}" for name, type_there in unlike[column.name].items()
                )
                raise InvalidInput(f"{field} is not accepted: the column {column.name!r} is {both}; {ways}")
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
                "and fractions in "
                f"{file_of_type[name]}, and no double is both; write whole numbers as texts, or give sql "
                "with a cast"
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
    """Bring rows of a file to the united columns: in their order, with their types.

    Args:
        constants: of each column that the file's path says, its value; what the file itself has comes first.
        shown: the file as people know it.
        optional: as :attr:`Columns.optional`; then null is what the path says, too.

    Raises:
        InvalidInput: a value does not fit, or the file has other columns than it said.
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
        values = rows.column(column.name) if column.name in names else pa.nulls(rows.num_rows, column.type)
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
                f"{column.type}, which it is "
                f"with the other files: {error}; {_WAYS}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
