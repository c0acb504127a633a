"""A view's Parquet files as one relation of DuckDB, whose column types hold every value of every file."""

import glob
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset, fs

from halving.errors import InvalidInput
from halving.store.faults import store_faults
from resources.features.engine import identifier, text
from resources.source_files.column_types import canonical_type, plain_type
from resources.source_files.columns import Columns, is_leftover_index, unite
from resources.source_files.listing import SourceFile, SourceFiles
from resources.source_files.partitions import Partitions, find_partitions

if TYPE_CHECKING:
    import duckdb

_READERS = 16  # threads that read footers: of an object store each takes a request or two
_WAYS = "write it with one type"
_WAYS_OF_FOLDERS = "give files whose folders have the same names"
_DIGITS = 38  # of a decimal of DuckDB's
_TYPES = "types_of_files"  # a relation without rows
_NULL = 'NULL::"NULL"'  # becomes what the column is in the other files


def select_parquet(connection: "duckdb.DuckDBPyConnection", field: str, files: SourceFiles) -> str:
    """Write SQL for the rows of all files with the columns of all; a column that a file lacks is null there.

    The names of a file's folders, ``country=de``, are columns of it, too, unless it has such a column itself.
    DuckDB by itself would take the types of the first file, or round whole numbers to the doubles of another
    one.

    Raises:
        InvalidInput: two files have types that do not go together; both are named. What a common type does
            not hold is refused by the query.
        StoreError: a file cannot be read.
    """
    partitions = find_partitions(field, files, ways=_WAYS_OF_FOLDERS)
    of_schema: dict[_Schema, list[SourceFile]] = {}
    for schema, some in _files_of_schemas(field, files).items():
        of_schema[_with_partitions(schema, partitions)] = some
    columns = ((some[0].address, Columns(schema.types, optional=True)) for schema, some in of_schema.items())
    types = _held_by_duckdb(unite(field, columns, ways=_WAYS))
    _refuse_case_alone(field, types, of_schema)
    groups: dict[tuple[frozenset[tuple[str, pa.DataType]], tuple[str, ...]], list[_Schema]] = {}
    for schema in of_schema:
        groups.setdefault((frozenset(_unlike(schema.types, types)), schema.of_folders), []).append(schema)
    selects = []
    for number, ((unlike, of_folders), schemas) in enumerate(groups.items()):
        some = [file for schema in schemas for file in of_schema[schema]]
        before = dict(unlike)
        types_before = pa.schema([(item.name, before.get(item.name, item.type)) for item in types])
        relation = _relation(connection, number, some, types_before, partitions, of_folders)
        selects.append(
            _select(connection, relation, [schema.types for schema in schemas], types, before, some)
        )
    return " UNION ALL ".join(selects)


@dataclass(frozen=True)
class _Schema:
    """The columns of files, and the names of those that are from the names of folders."""

    types: pa.Schema
    of_folders: tuple[str, ...]


def _with_partitions(schema: pa.Schema, partitions: Partitions) -> _Schema:
    of_folders = [column for column in partitions.types if column.name not in schema.names]
    return _Schema(pa.schema([*schema, *of_folders]), tuple(column.name for column in of_folders))


def _files_of_schemas(field: str, files: SourceFiles) -> dict[pa.Schema, list[SourceFile]]:
    """The files that have rows, by their columns; all files if none has rows."""

    def read(file: SourceFile) -> tuple[SourceFile, pa.Schema, int]:
        try:
            with (
                store_faults(f"{field} = {file.address!r} cannot be read"),
                file.filesystem.open_input_file(file.path) as handle,
            ):
                footer = pq.read_metadata(handle)
                return file, _columns(field, file, footer.schema.to_arrow_schema()), footer.num_rows
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"{field} = {file.address!r} is not accepted: as Parquet it cannot be read: {error}; give "
                "the path or a pattern of Parquet files alone"
            ) from None

    with_rows: dict[pa.Schema, list[SourceFile]] = {}
    without: dict[pa.Schema, list[SourceFile]] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        for file, schema, rows in pool.map(read, files):
            files_of = without
            if rows:
                files_of = with_rows
            files_of.setdefault(schema, []).append(file)
    return with_rows or without


def _columns(field: str, file: SourceFile, schema: pa.Schema) -> pa.Schema:
    """The columns of a file with DuckDB's types: zoned times in UTC, and decimals of one width."""
    columns = []
    for item in schema:
        kind = plain_type(item.type)
        if is_leftover_index(item.name):
            continue
        if pa.types.is_decimal(kind):
            if kind.precision > _DIGITS:  # DuckDB would make doubles of them
                raise InvalidInput(
                    f"{field} = {file.address!r} is not accepted: its column {item.name!r} is {kind}; write "
                    f"it as a decimal of at most {_DIGITS} digits, a double or a text"
                )
            kind = pa.decimal128(kind.precision, kind.scale)
        if _is_zoned_time(kind):
            kind = pa.timestamp(kind.unit, "UTC")
        columns.append((item.name, kind))
    return pa.schema(columns)


def _held_by_duckdb(types: pa.Schema) -> pa.Schema:
    """The types with a double where the decimals of two files together have more digits than DuckDB takes."""
    columns = []
    for item in types:
        kind = item.type
        if pa.types.is_decimal(kind) and kind.precision > _DIGITS:
            kind = canonical_type(kind)
        columns.append((item.name, kind))
    return pa.schema(columns)


def _is_zoned_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _unlike(schema: pa.Schema, types: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """The columns that have to be cast, because their type differs from that of all files."""
    return [
        (item.name, item.type)
        for item in schema
        if not pa.types.is_null(item.type) and item.type != types.field(item.name).type
    ]


def _refuse_case_alone(field: str, types: pa.Schema, of_schema: dict[_Schema, list[SourceFile]]) -> None:
    """Refuse files whose column names differ by case alone, as they are the same in SQL."""
    names: dict[str, str] = {}
    for name in types.names:
        other = names.setdefault(name.lower(), name)
        if other != name:
            first, second = (
                next(some[0].address for schema, some in of_schema.items() if column in schema.types.names)
                for column in (other, name)
            )
            raise InvalidInput(
                f"{field} is not accepted: {first} has a column {other!r} and {second} a column "
                f"{name!r}; write the name in one way"
            )


def _relation(
    connection: "duckdb.DuckDBPyConnection",
    number: int,
    files: Sequence[SourceFile],
    schema: pa.Schema,
    partitions: Partitions,
    of_folders: Sequence[str],
) -> str:
    """Make a relation of files; DuckDB reads those of this machine, and Arrow those of an object store.

    DuckDB would have to load an extension for object stores. Values from the names of folders are given with
    their types, as DuckDB would guess them by rules of its own.
    """
    filesystem = files[0].filesystem
    if isinstance(filesystem, fs.LocalFileSystem):
        path = "path"
        while path in map(str.lower, schema.names):
            path += "_"
        paths = ", ".join(text(glob.escape(_local_path(file))) for file in files)  # each would be a pattern
        rows = (
            f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false, filename = "
            f"{text(path)})"
        )
        if not of_folders:
            return rows
        folders = _folder_values(files, path, partitions, of_folders)
        return _join_folders(connection, f"folders_{number}", folders, rows)
    form = dataset.ParquetFileFormat()
    fragments = []
    for file in files:
        fragments.append(
            form.make_fragment(file.path, filesystem, _in_folders(partitions.scalars_of(file), of_folders))
        )
    name = f"files_{number}"
    connection.register(name, dataset.FileSystemDataset(fragments, schema, form, filesystem))
    return name


def _local_path(file: SourceFile) -> str:
    """A file's path without ``..``, which DuckDB removes from some paths."""
    return os.path.realpath(file.base) + file.path[len(file.base) :]


def _folder_values(
    files: Sequence[SourceFile], path: str, partitions: Partitions, of_folders: Sequence[str]
) -> pa.Table:
    """A table of the files' paths, and of the values in the names of their folders."""
    values = [partitions.values_in(file) for file in files]
    columns = [
        pa.array([of_file[name] for of_file in values], partitions.types.field(name).type)
        for name in of_folders
    ]
    return pa.Table.from_arrays(
        [pa.array([_local_path(file) for file in files]), *columns], [path, *of_folders]
    )


def _join_folders(connection: "duckdb.DuckDBPyConnection", name: str, folders: pa.Table, rows: str) -> str:
    """SQL for rows joined with the values of their files' folders, by the file's path, the first column."""
    connection.register(name, folders)
    path, *of_folders = folders.column_names
    # If DuckDB wrote a path in another way, rows would be lost or lack their folders' values.
    refused = f"error({text('DuckDB has another name for the file ')} || files.{path})"
    columns = []
    for column in map(identifier, of_folders):
        value = f"CASE WHEN folders.{path} IS NULL THEN {refused} ELSE folders.{column} END"
        columns.append(f"{value} AS {column}")
    return (
        f"(SELECT files.*, {', '.join(columns)} FROM {rows} AS files LEFT JOIN {name} AS folders ON "
        f"folders.{path} = files.{path})"
    )


def _in_folders(values: Mapping[str, pa.Scalar], names: Sequence[str]) -> dataset.Expression | None:
    """The condition that holds for each row of a file by the names of its folders."""
    terms = []
    for name in names:
        if values[name].is_valid:
            terms.append(dataset.field(name) == values[name])
        else:
            terms.append(dataset.field(name).is_null())
    if not terms:
        return None
    return reduce(and_, terms)


def _select(
    connection: "duckdb.DuckDBPyConnection",
    relation: str,
    schemas: Sequence[pa.Schema],
    types: pa.Schema,
    unlike: dict[str, pa.DataType],
    files: Sequence[SourceFile],
) -> str:
    """SQL for the rows of files that need casts of the same columns."""
    there = {item.name for schema in schemas for item in schema if not pa.types.is_null(item.type)}
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    if unlike:
        connection.register(_TYPES, pa.schema([types.field(name) for name in unlike]).empty_table())
        before = _sql_types(connection, relation)
        after = _sql_types(connection, _TYPES)
    files_named = files[0].address
    if len(files) > 1:
        files_named = f"{files_named} or one of the {len(files) - 1} files like it"
    columns = []
    for name in types.names:
        column = _NULL
        if name in there:
            column = identifier(name)
        if name in unlike:
            column = _exact_cast(
                name,
                before[name],
                after[name],
                f"{unlike[name]} in {files_named} and {types.field(name).type} with the others",
            )
        columns.append(f"{column} AS {identifier(name)}")
    return f"SELECT {', '.join(columns)} FROM {relation}"


def _sql_types(connection: "duckdb.DuckDBPyConnection", relation: str) -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def _exact_cast(name: str, before: str, after: str, where: str) -> str:
    """SQL for a column as another type, which refuses a value that is not the same there."""
    column = identifier(name)
    cast = f"TRY_CAST({column} AS {after})"
    back = f"TRY_CAST({cast} AS {before})"
    if before.startswith("DECIMAL"):
        # By its text, from which DuckDB makes the nearest double.
        cast = f"TRY_CAST({column}::VARCHAR AS {after})"
        back = f"TRY_CAST({cast}::VARCHAR AS {before})"
    refused = (
        f"{text(f'the column {name!r} is {where}, which does not hold ')} || {column}::VARCHAR || "
        f"{text(f'; {_WAYS}')}"
    )
    return f"CASE WHEN {back} IS NOT DISTINCT FROM {column} THEN {cast} ELSE error({refused}) END"
