"""A view's Parquet files as one relation of DuckDB's, whose columns have types that hold each value of each file."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset, fs

from halving.errors import InvalidInput
from halving.store.faults import store_faults
from resources.features.engine import quoted, text
from resources.source_files.column_types import plain_type
from resources.source_files.columns import Columns, is_leftover_index, united
from resources.source_files.listing import SourceFile, SourceFiles

if TYPE_CHECKING:
    import duckdb

_READERS = 16  # threads that read footers: of an object store each takes a request or two
_WAYS = "write it with one type"
_TYPES = "types_of_files"  # a relation without rows
_NULL = 'NULL::"NULL"'  # becomes what the column is in the other files


def select_parquet(connection: "duckdb.DuckDBPyConnection", field: str, files: SourceFiles) -> str:
    """Write SQL for the rows of all files, with the columns of all: one that a file lacks, or that is all null there, is null.

    DuckDB by itself would take the types of the first file, or round whole numbers to the doubles of another one.

    Raises:
        InvalidInput: two files have types that do not go together; both are named. What a common type does not hold is refused by
            the query.
        StoreError: a file cannot be read.
    """
    of_schema = _files_of_schemas(field, files)
    columns = ((some[0].shown, Columns(schema, optional=True)) for schema, some in of_schema.items())
    types = united(field, columns, ways=_WAYS)
    _refuse_case_alone(field, types, of_schema)
    groups: dict[frozenset[tuple[str, pa.DataType]], list[pa.Schema]] = {}
    for schema in of_schema:
        groups.setdefault(frozenset(_unlike(schema, types)), []).append(schema)
    selects = []
    for number, (unlike, schemas) in enumerate(groups.items()):
        some = [file for schema in schemas for file in of_schema[schema]]
        before = dict(unlike)
        relation = _relation(connection, number, some, pa.schema([(item.name, before.get(item.name, item.type)) for item in types]))
        selects.append(_select(connection, relation, schemas, types, before, some))
    return " UNION ALL ".join(selects)


def _files_of_schemas(field: str, files: SourceFiles) -> dict[pa.Schema, list[SourceFile]]:
    """The files that have rows, by their columns; where none has any, all."""

    def read(file: SourceFile) -> tuple[SourceFile, pa.Schema, int]:
        try:
            with store_faults(f"{field} = {file.shown!r} cannot be read"), file.filesystem.open_input_file(file.path) as handle:
                footer = pq.read_metadata(handle)
                return file, _columns(footer.schema.to_arrow_schema()), footer.num_rows
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"{field} = {file.shown!r} is not accepted: as Parquet it cannot be read: {error}") from None

    with_rows: dict[pa.Schema, list[SourceFile]] = {}
    without: dict[pa.Schema, list[SourceFile]] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        for file, schema, rows in pool.map(read, files):
            (with_rows if rows else without).setdefault(schema, []).append(file)
    return with_rows or without


def _columns(schema: pa.Schema) -> pa.Schema:
    """The columns of a file, plainly; moments of all time zones are those of UTC, as DuckDB has them."""
    kinds = [(item.name, plain_type(item.type)) for item in schema if not is_leftover_index(item.name)]
    return pa.schema([(name, pa.timestamp(kind.unit, "UTC") if _is_moment(kind) else kind) for name, kind in kinds])


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _unlike(schema: pa.Schema, types: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """The columns that have to be cast, for they are of another type than with all files."""
    return [(item.name, item.type) for item in schema if not pa.types.is_null(item.type) and item.type != types.field(item.name).type]


def _refuse_case_alone(field: str, types: pa.Schema, of_schema: dict[pa.Schema, list[SourceFile]]) -> None:
    """Refuse files of which one writes a column's name otherwise than another: SQL takes both for one."""
    names: dict[str, str] = {}
    for name in types.names:
        other = names.setdefault(name.lower(), name)
        if other != name and len(of_schema) > 1:
            shown = [next(some[0].shown for schema, some in of_schema.items() if each in schema.names) for each in (other, name)]
            raise InvalidInput(
                f"{field} is not accepted: {shown[0]} has a column {other!r} and {shown[1]} a column {name!r}; write the name in one way"
            )


def _relation(connection: "duckdb.DuckDBPyConnection", number: int, files: Sequence[SourceFile], schema: pa.Schema) -> str:
    """DuckDB reads files of this machine; those of an object store Arrow, because DuckDB would have to load an extension for them."""
    if isinstance(files[0].filesystem, fs.LocalFileSystem):
        paths = ", ".join(text(file.path) for file in files)
        return f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
    name = f"files_{number}"
    paths_there = [file.path for file in files]
    connection.register(name, dataset.dataset(paths_there, format="parquet", filesystem=files[0].filesystem, schema=schema))
    return name


def _select(
    connection: "duckdb.DuckDBPyConnection",
    relation: str,
    schemas: Sequence[pa.Schema],
    types: pa.Schema,
    unlike: dict[str, pa.DataType],
    files: Sequence[SourceFile],
) -> str:
    """SQL for the rows of files that differ from all in the types of the same columns."""
    there = {item.name for schema in schemas for item in schema if not pa.types.is_null(item.type)}
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    if unlike:
        connection.register(_TYPES, pa.schema([types.field(name) for name in unlike]).empty_table())
        before = _sql_types(connection, relation)
        after = _sql_types(connection, _TYPES)
    shown = files[0].shown if len(files) == 1 else f"{files[0].shown} or one of the {len(files) - 1} files like it"
    columns = []
    for name in types.names:
        column = quoted(name) if name in there else _NULL
        if name in unlike:
            column = _exact_cast(name, before[name], after[name], f"{unlike[name]} in {shown} and {types.field(name).type} with the others")
        columns.append(f"{column} AS {quoted(name)}")
    return f"SELECT {', '.join(columns)} FROM {relation}"


def _sql_types(connection: "duckdb.DuckDBPyConnection", relation: str) -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def _exact_cast(name: str, before: str, after: str, where: str) -> str:
    """SQL for a column as another type, which refuses a value that is not the same there."""
    column = quoted(name)
    value = f"{column}::VARCHAR" if before.startswith("DECIMAL") else column  # of a decimal's text DuckDB makes the nearest double
    cast = f"TRY_CAST({value} AS {after})"
    back = f"TRY_CAST({cast}::VARCHAR AS {before})" if before.startswith("DECIMAL") else f"TRY_CAST({cast} AS {before})"
    refused = f"{text(f'the column {name!r} is {where}, which does not hold ')} || {column}::VARCHAR || {text(f'; {_WAYS}')}"
    return f"CASE WHEN {back} IS NOT DISTINCT FROM {column} THEN {cast} ELSE error({refused}) END"
