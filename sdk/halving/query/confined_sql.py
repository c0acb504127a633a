"""Whether a query reads the views and nothing else, by DuckDB's own syntax tree of it.

DuckDB's settings keep a query from files outside of the store. This keeps it from everything else: from the
store's own files by name, from the addresses in the text of views and settings, and from other tables.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from halving.errors import InvalidInput

_TABLE_FUNCTIONS = {"range", "generate_series", "unnest"}
_REFUSED_FUNCTIONS = {
    "current_setting",
    "getenv",
    "getvariable",
    "query",
    "query_table",
    "sleep_ms",
    "version",
    "which_secret",
    "write_log",
}
_REFUSED_BEGINNINGS = (
    "duckdb_",
    "from_substrait",
    "get_substrait",
    "json_execute",
    "parquet_",
    "pg_",
    "pragma_",
    "read_",
    "sqlite_",
)
# What WITH defines may be used where it is not in scope, and would then mean a table of this name.
_OWN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")


def check_confined(syntax: str, views: set[str]) -> None:
    """Refuse a query that names other tables than some views, or functions that look outside.

    Args:
        syntax: what DuckDB's ``json_serialize_sql`` gives for the query.
        views: the only tables, beside those that the query itself defines by WITH.

    Raises:
        InvalidInput: with the name of what is not accepted.
    """
    tree = json.loads(syntax)
    if tree.get("error"):
        raise InvalidInput(f"the query is not accepted: {tree.get('error_message', 'give one SELECT')}")
    if len(tree["statements"]) != 1:
        raise InvalidInput("the query is not accepted: give one SELECT")
    nodes = list(_nodes(tree["statements"]))
    own = {entry["key"].lower() for node in nodes for entry in _entries_of_with(node)}
    for name in own:
        if not _OWN_NAME.fullmatch(name) or name.startswith(_REFUSED_BEGINNINGS):
            raise InvalidInput(f"WITH {name!r:.80} is not accepted: give a name of letters, digits and _")
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            _check_table(node, views | own)
        elif kind == "TABLE_FUNCTION":
            name = str((node.get("function") or {}).get("function_name", "")).lower()
            if name not in _TABLE_FUNCTIONS:
                raise InvalidInput(f"the function {name!r} is not accepted here: read {_listed(views)}")
        elif kind == "SHOW_REF":
            raise InvalidInput(f"SHOW and DESCRIBE are not accepted: read {_listed(views)}")
        if node.get("class") == "FUNCTION":
            _check_function(str(node.get("function_name", "")).lower(), views)


def _check_table(node: dict[str, Any], names: set[str]) -> None:
    table = str(node.get("table_name", ""))
    if node.get("schema_name") or node.get("catalog_name") or table.lower() not in names:
        raise InvalidInput(f"the table {table!r:.80} is not accepted: there are {_listed(names)}")


def _check_function(name: str, views: set[str]) -> None:
    if name in _REFUSED_FUNCTIONS or name.startswith(_REFUSED_BEGINNINGS):
        raise InvalidInput(f"the function {name!r} is not accepted: read {_listed(views)}")


def _entries_of_with(node: dict[str, Any]) -> list[dict[str, Any]]:
    defined = node.get("cte_map")
    if isinstance(defined, dict):
        return list(defined.get("map") or [])
    return []


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree. A loop, because a query may nest deeper than Python calls."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
