"""A DuckDB SELECT as a source: its rows in its order, in bounded memory, from files that must not change."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from halving.errors import InvalidInput
from resources.datasets.file_sources import Part
from resources.features.engine import engine, fault_of, identifier, parser
from resources.source_files.listing import watch_files
from resources.source_files.places import Places

if TYPE_CHECKING:
    import duckdb

_ROWS = 10_000  # rows of a batch from DuckDB
_MEMORY = "384MiB"
_READER = re.compile("(?:read|parquet|sniff)_.*|.*_scan|glob")  # names of functions that read files
_TEXT = "cast it to a text"
_REMEDIES = {  # keyed by DuckDB's names of types, in lower case
    "bignum": _TEXT,
    "bit": _TEXT,
    "geometry": f"{_TEXT}, or to numbers",
    "interval": "give it as a number, for example by epoch(…)",
    "map": "give its keys as columns, as a struct, or as lists (map_keys, map_values)",
    "time with time zone": "its zone would be lost; cast it to TIME, or to a text",
    "union": "give its members as columns",
    "variant": _TEXT,
}
_WAYS_OF_TIMES = "make it null by nullif, or another time, or leave such rows out"
# DuckDB's values for infinity in dates and times.
_INFINITE = {pa.int32(): (2**31 - 1, 1 - 2**31), pa.int64(): (2**63 - 1, 1 - 2**63)}


def open_query(
    query: str, field: str, places: Places | None = None
) -> tuple[list[Part], dict[str, Any], tuple[str, ...], Callable[[], None]]:
    """Open a query: its one part, the facts for the lineage, and the check of the files that it names.

    Args:
        field: field of the spec, for messages.
        places: places that it may read; None is all that this process may read.

    Raises:
        InvalidInput: it is not one SELECT.
    """
    names = set(_names_in(_parse(query, field)))
    paths = sorted(name for name in names if "://" not in name or name.startswith("s3://"))
    return (
        [Part(None, partial(_read, query, field, places))],
        {"kind": "sql", "query": query},
        (),
        watch_files(f"{field}.sql", paths),
    )


def check_query(query: str, field: str, places: Places) -> None:
    """Refuse a query that names files in other places.

    Names that the query computes are not seen here, and are not read later either.

    Raises:
        InvalidInput: naming the field, the file and the places; or it is not one SELECT.
    """
    for name in _names_in(_parse(query, field), _READER):
        if "://" in name:
            raise places.refusal(
                f"{field}.sql",
                query,
                f"it names {name!r:.200}, and SQL reads files of this machine alone there (give files)",
            )
        try:
            places.check(f"{field}.sql", name)
        except InvalidInput:
            raise places.refusal(f"{field}.sql", query, f"it names {name!r:.200}") from None


def _parse(query: str, field: str) -> Any:
    """Parse a query into DuckDB's JSON form."""
    import duckdb

    with parser() as connection:
        try:
            statements = connection.extract_statements(query)
        except duckdb.Error as error:
            raise _refusal(query, field, str(error)) from None
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise _refusal(query, field, "give one SELECT")
        (text,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0]
    return json.loads(text)


def _names_in(node: Any, function: re.Pattern[str] = re.compile(".*")) -> Iterator[str]:
    """Find the files, and patterns of files, that a part of a query names.

    It names them by a table function's first argument, or in place of a table.

    Args:
        function: pattern of the functions whose arguments count.
    """
    if isinstance(node, list):
        for element in node:
            yield from _names_in(element, function)
    elif isinstance(node, dict):
        if node.get("type") == "BASE_TABLE" and "." in node["table_name"]:
            yield node["table_name"]
        if node.get("type") == "TABLE_FUNCTION" and function.fullmatch(
            node["function"]["function_name"].lower()
        ):
            yield from _texts_in(
                [argument for argument in node["function"]["arguments"] if not argument["name"]][:1]
            )
        for value in node.values():
            yield from _names_in(value, function)


def _texts_in(node: Any) -> Iterator[str]:
    """The texts in an argument, except those that a function changes."""
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

    # One thread, because each thread that reads Parquet holds a row group: with many cores the memory would
    # not suffice.
    with engine(f"the query {field}.sql", _MEMORY, threads=1, places=places) as (connection, spilled):
        try:
            for rows in _cast_exactly(connection.sql(query), query, field).to_arrow_reader(_ROWS):
                for name, column in zip(rows.schema.names, rows.columns, strict=True):
                    if time := _find_lost_time(column):
                        reason = f"its column {name!r} has {time}, which a snapshot cannot hold"
                        raise _refusal(query, field, f"{reason}; {_WAYS_OF_TIMES}")
                yield rows
        except duckdb.OutOfMemoryException:
            ways = (
                "leave out ORDER BY, join and group less at a time, or write the rows to files and give these"
            )
            raise _refusal(query, field, f"DuckDB cannot answer it in {_MEMORY} of memory; {ways}") from None
        except duckdb.PermissionException as error:
            if places is None:
                raise fault_of(error, f"{field}.sql = {query!r:.200}") from error
            raise places.refusal(f"{field}.sql", query, "it reads something else") from None
        except duckdb.Error as error:
            if str(spilled) in str(error):  # The engine reports faults of the temporary disk itself.
                raise
            raise fault_of(error, f"{field}.sql = {query!r:.200}") from error


def _cast_exactly(rows: "duckdb.DuckDBPyRelation", query: str, field: str) -> "duckdb.DuckDBPyRelation":
    """Cast the columns that DuckDB would change for Arrow: UHUGEINT would become doubles.

    Raises:
        InvalidInput: a column has a type that Arrow has not, or that would be bytes there.
    """
    casts = []
    for name, kind in zip(rows.columns, rows.types, strict=True):
        leaves = set(_leaves(kind))
        for leaf in sorted(leaves & set(_REMEDIES)):
            raise _refusal(
                query,
                field,
                f"its column {name!r} is {kind}, and no {leaf.upper()} can be held; {_REMEDIES[leaf]}",
            )
        if "uhugeint" in leaves:
            casts.append(f"{identifier(name)}::{_without_largest(kind)} AS {identifier(name)}")
    if not casts:
        return rows
    return rows.project(f"* REPLACE ({', '.join(casts)})")


def _leaves(kind: Any) -> Iterator[str]:
    """DuckDB's names of the innermost types in a type; maps and unions are not looked into."""
    if kind.id in ("list", "array", "struct"):
        for _, inner in kind.children:
            if not isinstance(inner, int):  # An integer is the number of an array's items.
                yield from _leaves(inner)
    else:
        yield kind.id


def _without_largest(kind: Any) -> str:
    """SQL for a type with HUGEINT, which becomes decimals, in place of UHUGEINT."""
    if kind.id == "list":
        return f"{_without_largest(kind.children[0][1])}[]"
    if kind.id == "array":
        return f"{_without_largest(kind.children[0][1])}[{kind.children[1][1]}]"
    if kind.id == "struct":
        fields = [f"{identifier(name)} {_without_largest(inner)}" for name, inner in kind.children]
        return f"STRUCT({', '.join(fields)})"
    if kind.id == "uhugeint":
        return "HUGEINT"
    return str(kind)


def _find_lost_time(values: pa.Array) -> str | None:
    """A date or time of DuckDB that would become another one: an infinite one, or 24:00."""
    kind = values.type
    if pa.types.is_struct(kind):
        return next(filter(None, map(_find_lost_time, values.flatten())), None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _find_lost_time(values.flatten())
    if pa.types.is_time64(kind):
        day = 86_400 * {"us": 10**6, "ns": 10**9}[kind.unit]
        latest = pc.max(values.view(pa.int64())).as_py()
        if latest is not None and latest >= day:
            return "24:00:00"
        return None
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return None
    number = {32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    bounds = pc.min_max(values.view(number))
    last, first = _INFINITE[number]
    if bounds["max"].as_py() == last or bounds["min"].as_py() == first:
        return "infinity"
    return None


def _refusal(query: str, field: str, reason: str) -> InvalidInput:
    return InvalidInput(f"{field}.sql = {query!r:.200} is not accepted: {reason}")
