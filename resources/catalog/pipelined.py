"""Statements sent directly to psycopg, several in one round trip, for requests of trials every few seconds.

SQLAlchemy compiles them and pools the connections, but does not execute them, which would double the time.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import ClauseElement, Connection, Dialect, Engine, Select
from sqlalchemy.exc import DBAPIError

Statement = tuple[Any, dict[str, Any]]
"""A statement and its values."""


def at_once(engine: Engine, statement: Any, values: dict[str, Any]) -> list[Any]:
    """Execute a statement as a transaction of its own; return its rows, with columns by name.

    On Postgres that takes one round trip.

    Raises:
        DBAPIError: as SQLAlchemy raises it.
    """
    if not _is_postgres(engine.dialect):
        writes = not isinstance(statement, Select)
        with engine.connect().execution_options(write=writes) as connection, connection.begin():
            return _rows(connection.execute(statement, values))
    bound = (statement, values)
    with _errors_of(engine.dialect, [bound]):
        pooled = engine.raw_connection()
    driver: Any = pooled.driver_connection
    try:
        with _errors_of(engine.dialect, [bound], driver):
            driver.autocommit = True
            rows = _fetch_rows(_execute(driver, bound))
            driver.autocommit = False
            return rows
    except BaseException:
        pooled.invalidate()  # its state is unknown
        raise
    finally:
        pooled.close()


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes; it is committed at the end, and rolled back on any error.

    On Postgres its BEGIN is sent with the first statements that are executed :func:`together`, and its COMMIT
    with the ``last``.
    """
    with engine.connect().execution_options(write=True) as connection:
        driver: Any = None
        if _is_postgres(engine.dialect):
            driver = connection.connection.driver_connection
            driver.autocommit = True  # Otherwise psycopg sends BEGIN by itself, and waits for the answer.
        try:
            with connection.begin():
                yield connection
        finally:
            if driver and not connection.invalidated and not _is_lost(driver):
                driver.autocommit = False


def together(connection: Connection, bound: list[Statement], *, last: bool = False) -> Iterator[list[Any]]:
    """Execute statements in a connection's transaction, one after another; return the rows of each.

    On Postgres they are sent and answered together, in one round trip; ``last`` commits the
    :func:`transaction` in the same round trip. On SQLite, where there are no round trips to save, a statement
    is executed only when its rows are taken from the iterator: a caller that needs no rows has to exhaust it.

    Raises:
        DBAPIError: as SQLAlchemy raises it.
    """
    if not bound:
        return iter(())
    if not _is_postgres(connection.dialect):
        return (_rows(connection.execute(statement, values)) for statement, values in bound)
    driver: Any = connection.connection.driver_connection
    try:
        with _errors_of(connection.dialect, bound, driver), driver.pipeline():
            if driver.autocommit and driver.info.transaction_status.name == "IDLE":
                driver.execute("BEGIN", prepare=False)
            cursors = [_execute(driver, statement) for statement in bound]
            if last:
                driver.execute("COMMIT", prepare=False)  # the server leaves it out if one of them fails
    except BaseException as error:
        # After an error of the server the transaction can be rolled back. After any other error, answers may
        # still be on their way.
        if not isinstance(error, DBAPIError) or error.connection_invalidated:
            connection.invalidate(error)
        raise
    return iter([_fetch_rows(cursor) for cursor in cursors])


def _rows(result: Any) -> list[Any]:
    if not result.returns_rows:
        return []
    return list(result)


def _fetch_rows(cursor: Any) -> list[Any]:
    if not cursor.description:
        return []
    rows: list[Any] = cursor.fetchall()
    return rows


def _is_postgres(dialect: Dialect) -> bool:
    return dialect.name == "postgresql"


def _is_lost(driver: Any) -> bool:
    """Whether the connection is closed, or broke inside a pipeline, which psycopg still calls open."""
    return (
        driver.closed
        or driver.info.pipeline_status.name != "OFF"
        or driver.info.transaction_status.name in ("ACTIVE", "UNKNOWN")
    )


def _execute(driver: Any, bound: Statement) -> Any:
    from psycopg.rows import namedtuple_row  # may be missing where SQLite is the catalog

    statement, values = bound
    compiled = _compile(statement, tuple(values))
    cursor = driver.cursor(row_factory=namedtuple_row)
    cursor.execute(compiled.sql, compiled.convert(values))
    return cursor


@contextmanager
def _errors_of(dialect: Any, bound: list[Statement], driver: Any = None) -> Iterator[None]:
    """Raise the driver's errors as SQLAlchemy's, which also say whether the connection is lost.

    An interruption is raised as such.
    """
    error_of_driver = dialect.loaded_dbapi.Error
    handled = sys.exception()
    try:
        yield
    except error_of_driver as error:
        if interruption := _interruption_before(error, handled):
            raise interruption from None
        lost = driver is not None and _is_lost(driver)
        sql = "; ".join(_compile(statement, tuple(values)).sql for statement, values in bound)
        raise DBAPIError.instance(
            sql,
            None,
            error,
            error_of_driver,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=dialect,
        ) from error


def _interruption_before(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """The interruption that made leaving the pipeline fail with ``error``; None if there was none.

    It is an exception that a signal's handler raised while psycopg waited. ``handled`` is the exception that
    was being handled before, which does not count.
    """
    earlier = error.__context__
    while earlier is not None and earlier is not handled:
        if not isinstance(earlier, Exception):
            return earlier
        earlier = earlier.__context__
    return None


class _Compiled:
    """A statement in the form of psycopg: its SQL, and how its values are converted."""

    def __init__(self, statement: ClauseElement, names: tuple[str, ...]) -> None:
        dialect = _dialect()
        compiled: Any = statement.compile(dialect=dialect, column_keys=list(names))
        missing = {name for bound, name in compiled.bind_names.items() if bound.required} - set(names)
        # These are defaults that SQLAlchemy would fill in when it executes.
        missing |= {column.name for column in compiled.prefetch}
        if missing:
            raise TypeError(f"values are missing for {sorted(missing)}")
        self.sql = str(compiled)
        self._own = compiled.params
        processors = {
            name: bound.type.dialect_impl(dialect).bind_processor(dialect)
            for bound, name in compiled.bind_names.items()
        }
        self._processors = {name: process for name, process in processors.items() if process}

    def convert(self, values: dict[str, Any]) -> dict[str, Any]:
        converted = {**self._own, **values}
        for name, process in self._processors.items():
            converted[name] = process(converted[name])
        return converted


_compile = cache(_Compiled)  # statements are constants, so each is compiled once


@cache
def _dialect() -> Dialect:
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    return PGDialect_psycopg()
