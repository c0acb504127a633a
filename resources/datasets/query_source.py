"""A SELECT of DuckDB's as a source: its rows in its order, in bounded memory, of files that do not change while they are read."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from halving.errors import InvalidInput
from resources.datasets.file_sources import Part
from resources.features.engine import engine, fault_of, parser, quoted
from resources.source_files.listing import watch_files
from resources.source_files.places import Places

if TYPE_CHECKING:
    import duckdb

_ROWS = 10_000  # that DuckDB gives at a time
_MEMORY = "384MiB"
_READER = re.compile("(?:read|parquet|sniff)_.*|.*_scan|glob")  # names of functions that read files
_LARGEST = re.compile(r"\bUHUGEINT\b")


def open_query(
    query: str, field: str, places: Places | None = None
) -> tuple[list[Part], dict[str, Any], tuple[str, ...], Callable[[], None]]:
    """The part of a query, what lineage says of it, and the check that none of the files that it names has changed.

    Args:
        field: of the spec, for messages.
        places: that it may read; None: all that this process may.

    Raises:
        InvalidInput: it is not one SELECT.
    """
    names = set(_names_in(_parsed(query, field)))
    paths = sorted(name for name in names if "://" not in name or name.startswith("s3://"))
    return [Part(None, partial(_read, query, field, places))], {"kind": "sql", "query": query}, (), watch_files(f"{field}.sql", paths)


def check_query(query: str, field: str, places: Places) -> None:
    """Refuse a query that names files in other places. What it makes a name of is not seen here, and not read later.

    Raises:
        InvalidInput: naming the field, the file and the places; or it is not one SELECT.
    """
    for name in _names_in(_parsed(query, field), _READER):
        if "://" in name:
            raise places.refusal(
                f"{field}.sql", query, f"it names {name!r:.200}, and SQL reads files of this machine alone there (give files)"
            )
        try:
            places.check(f"{field}.sql", name)
        except InvalidInput:
            raise places.refusal(f"{field}.sql", query, f"it names {name!r:.200}") from None


def _parsed(query: str, field: str) -> Any:
    """A query as DuckDB writes it in JSON."""
    import duckdb

    with parser() as connection:
        try:
            statements = connection.extract_statements(query)
        except duckdb.Error as error:
            raise _refused(query, field, str(error)) from None
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise _refused(query, field, "give one SELECT")
        (text,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0]
    return json.loads(text)


def _names_in(node: Any, function: re.Pattern[str] = re.compile(".*")) -> Iterator[str]:
    """The files, and patterns of them, that a part of a query names: by a table function's first argument, or in place of a table.

    Args:
        function: whose arguments count.
    """
    if isinstance(node, list):
        for element in node:
            yield from _names_in(element, function)
    elif isinstance(node, dict):
        if node.get("type") == "BASE_TABLE" and "." in node["table_name"]:
            yield node["table_name"]
        if node.get("type") == "TABLE_FUNCTION" and function.fullmatch(node["function"]["function_name"].lower()):
            yield from _texts_in([argument for argument in node["function"]["arguments"] if not argument["name"]][:1])
        for value in node.values():
            yield from _names_in(value, function)


def _texts_in(node: Any) -> Iterator[str]:
    """The texts in an argument, but not those of which a function makes another."""
    if isinstance(node, list):
        for element in node:
            yield from _texts_in(element)
    elif isinstance(node, dict) and node.get("function_name", "list_value") == "list_value":
        if node.get("kind") == "STRING":
            yield node["text"]
        for value in node.values():
            yield from _texts_in(value)


def _read(query: str, field: str, places: Places | None) -> Iterator[pa.RecordBatch]:
    import duckdb

    # One thread: each that reads Parquet holds a row group, so that on a machine of many cores the memory would not do.
    with engine(f"the query {field}.sql", _MEMORY, threads=1, places=places) as (connection, spilled):
        try:
            yield from _kept_exact(connection.sql(query), query, field).to_arrow_reader(_ROWS)
        except duckdb.OutOfMemoryException:
            ways = "leave out ORDER BY, join and group less at a time, or write the rows to files and give these"
            raise _refused(query, field, f"DuckDB cannot answer it in {_MEMORY} of memory; {ways}") from None
        except duckdb.PermissionException as error:
            if places is None:
                raise fault_of(error, f"{field}.sql = {query!r:.200}") from error
            raise places.refusal(f"{field}.sql", query, "it reads something else") from None
        except duckdb.Error as error:
            if str(spilled) in str(error):  # of the temporary disk, as the engine says
                raise
            raise fault_of(error, f"{field}.sql = {query!r:.200}") from error


def _kept_exact(rows: "duckdb.DuckDBPyRelation", query: str, field: str) -> "duckdb.DuckDBPyRelation":
    """The rows without the types of which DuckDB makes something else for Arrow: of UHUGEINT doubles, of a time with a zone one without."""
    casts = []
    for name, duckdb_type in zip(rows.columns, rows.types, strict=True):
        kind = str(duckdb_type)
        if re.search(r"\bTIME WITH TIME ZONE\b", kind):
            raise _refused(query, field, f"its column {name!r} is {kind}, whose zone would be lost; cast it to TIME, or to a text")
        if _LARGEST.search(kind):
            casts.append(f"{quoted(name)}::{_LARGEST.sub('HUGEINT', kind)} AS {quoted(name)}")
    return rows.project(f"* REPLACE ({', '.join(casts)})") if casts else rows


def _refused(query: str, field: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{field}.sql = {query!r:.200} is not accepted: {reason}")
