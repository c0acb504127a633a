"""The store as SQL views: one SELECT at a time, run by DuckDB, which can read the store and nothing else.

- ``metrics``: ``project, run, key, step, wall_time, value``, stitched: at each step the value that the
  highest attempt logged last.
- ``points``: ``project, run, attempt, key, step, wall_time, value``, all that was logged.
- ``runs``: ``project, run, status, started, ended, seconds, attempts, epoch, seed, sweep, trial, git_commit,
  git_dirty, lifecycle, tags, parent, summary``. It has active, archived and deleted runs; the last three
  columns are JSON.
- ``params``: ``project, run, name, value, number``. Nested names are ``optimizer/lr``; ``value`` is the exact
  text, ``number`` the nearest double or null.
- ``media``: ``project, run, key, step, wall_time, attempt, kind, digest, bytes, media_type``.

Only the views that the query names are made, and making them opens no file of points. How many points are
read depends on ``key``, ``run`` and ``step`` in the query's WHERE, so give a key there. Points that retention
has dropped are in no view.
"""

import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from halving.errors import InvalidInput, StoreError
from halving.query.confined_sql import check_confined
from halving.query.duckdb_paths import PROTOCOL
from halving.query.sql_views import VIEWS, TookTooLong, make_views, quoted
from halving.store.store import Store

_LISTINGS = 10  # tries while compactions delete the files that were listed


@dataclass(frozen=True)
class Confinement:
    """What a query of somebody who is not trusted with the store may read and take.

    Attributes:
        projects: whose runs and points the views have; None is all.
        rows: of the result, at most.
        seconds: for making the views and running the query.
        memory_mb: of DuckDB.
    """

    projects: Collection[str] | None = None
    rows: int = 1_000
    seconds: float = 10.0
    memory_mb: int = 512


def ask_confined(store: Store, query: str, confinement: Confinement) -> tuple[list[str], list[Any], bool]:
    """Run a query that may read the five views and nothing else, for a bounded time.

    Beyond what :func:`ask` refuses, it refuses every table but the views, every function that looks at
    files, settings or DuckDB's own tables, and everything but SELECT.

    Returns:
        The names of the columns, the rows as tuples, and whether there are more rows.

    Raises:
        InvalidInput: the query is not accepted, or takes longer or more memory than it may.
        StoreError: the store cannot be read.
    """
    deadline = time.monotonic() + confinement.seconds
    with duckdb.connect(config={"memory_limit": f"{confinement.memory_mb}MB", "threads": 2}) as connection:
        connection.execute("SET temp_directory = ''")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET python_enable_replacements = false")
        _check(connection, query, explains=False)
        [(syntax,)] = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [query]).fetchall()
        check_confined(syntax, set(VIEWS))
        with _ends_at(connection, deadline, confinement.seconds):
            try:
                names = {word.lower() for word in re.findall(r"\w+", query)}
                paths = make_views(connection, store, names, confinement.projects, deadline)
                _lock_to_files(connection, paths)
                result = connection.execute(query)
                rows = result.fetchmany(confinement.rows + 1)
            except (FileNotFoundError, duckdb.IOException) as error:
                raise StoreError(
                    "files of runs were compacted meanwhile, or cannot be read: ask again"
                ) from error
            except duckdb.OutOfMemoryException:
                raise InvalidInput(
                    f"the query takes more than {confinement.memory_mb} MB: ask for fewer rows, or give run "
                    "and key"
                ) from None
        columns = [column[0] for column in result.description or []]
    return columns, rows[: confinement.rows], len(rows) > confinement.rows


@contextmanager
def _ends_at(connection: duckdb.DuckDBPyConnection, deadline: float, seconds: float) -> Iterator[None]:
    """Interrupt what runs at the deadline.

    Raises:
        InvalidInput: it was interrupted, or DuckDB does not accept the query.
    """
    timer = threading.Timer(max(deadline - time.monotonic(), 0), connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (duckdb.InterruptException, TookTooLong):
        raise InvalidInput(
            f"the query takes longer than {seconds:g} s: ask for less, and give project, run and key in its "
            "WHERE"
        ) from None
    except duckdb.IOException:
        raise
    except duckdb.Error as error:
        raise InvalidInput(f"the query is not accepted: {error}") from None
    finally:
        timer.cancel()


def ask(store: Store, query: str) -> pa.Table:
    """Run a query and return its result.

    Raises:
        InvalidInput: it is not one SELECT, or DuckDB does not accept it; the message is DuckDB's.
        StoreError: the store cannot be read.
    """
    for tries_left in reversed(range(_LISTINGS)):
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            # A progress bar on the standard output would be amid the rows.
            connection.execute("SET enable_progress_bar_print = false")
            # A name in the query must never mean one of our variables.
            connection.execute("SET python_enable_replacements = false")
            _check(connection, query)
            try:
                make_views(connection, store, {word.lower() for word in re.findall(r"\w+", query)})
                _lock(connection, store)
                return connection.sql(query).to_arrow_table()
            except (FileNotFoundError, duckdb.IOException) as error:
                if tries_left and _is_gone(error):
                    continue  # Files were compacted since they were listed.
                raise StoreError(f"cannot read {store.root}: {error}") from error
            except duckdb.Error as error:
                raise InvalidInput(f"the query is not accepted: {error}") from None
    raise AssertionError("unreachable")


def _check(connection: duckdb.DuckDBPyConnection, query: str, *, explains: bool = True) -> None:
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        raise InvalidInput(f"the query is not accepted: {error}") from None
    kinds = [statement.type for statement in statements]
    explained = explains and kinds == [duckdb.StatementType.EXPLAIN]
    if kinds != [duckdb.StatementType.SELECT] and not explained:
        raise InvalidInput(
            f"the query {query!r:.80} is not accepted: give one SELECT; the store is only read"
        )


def _lock(connection: duckdb.DuckDBPyConnection, store: Store) -> None:
    """Restrict the connection to reading the store, so that the query cannot change that."""
    folder = store.path("")
    if store.folder is None:
        folder = f"{PROTOCOL}://{folder}"
    connection.execute(f"SET allowed_directories = [{quoted(folder.rstrip('/') + '/')}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _lock_to_files(connection: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
    """Restrict the connection to reading the files of its views."""
    connection.execute("SET allowed_directories = []")
    connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, paths))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _is_gone(error: Exception) -> bool:
    return (
        isinstance(error, FileNotFoundError) or "No such file" in str(error) or "No files found" in str(error)
    )
