"""The catalog as one file, from which SQLite and Postgres can be loaded: rows as JSON, table by table.

It is dumped in one transaction: on SQLite from a copy that its online backup API makes, so that no writer
waits, and on Postgres in a snapshot (REPEATABLE READ). It is loaded in one transaction as well. Rows go into
the schema that they are from, and then Alembic upgrades it. Two things are left out: the index of runs, which
is rebuilt from the store, and how far models are published, because a backup has no published files.
"""

import gzip
import json
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, StoreError
from halving.machine.temporary_folders import scratch_folder
from resources.catalog import Base, Catalog, PublishedModelRow, SweepRow, TrialRow
from resources.catalog.catalog import newest_revision
from resources.catalog.index_tables import RunAttemptRow, RunIndexRow, RunNameRow, RunRow, RunValueRow
from resources.catalog.trial_key import trial_key

_REBUILT = {
    row.__tablename__
    for row in (RunAttemptRow, RunIndexRow, RunRow, RunNameRow, RunValueRow, PublishedModelRow)
}
_ROWS_OF_MIGRATIONS = {"experiments": 1}  # rows that a table's migration adds
_RENAMED = {"audit": "write_log"}  # tables whose earlier names stand in backups of earlier versions
_ROWS_AT_ONCE = 1_000


def dump_catalog(
    catalog: Catalog, file: Path, look: Callable[[Session], None] | None = None
) -> dict[str, int]:
    """Write all rows of the catalog into a compressed file; returns how many, by table.

    Args:
        look: called with a session that sees the same rows.
    """
    counts: dict[str, int] = {}
    with _snapshot(catalog) as connection, gzip.open(file, "wt", encoding="utf-8", compresslevel=5) as lines:
        for table in Base.metadata.sorted_tables:
            if table.name in _REBUILT:
                continue
            header = {"table": table.name, "columns": [column.name for column in table.columns]}
            lines.write(json.dumps(header) + "\n")
            counts[table.name] = 0
            rows = connection.execution_options(stream_results=True, yield_per=_ROWS_AT_ONCE).execute(
                select(table)
            )
            for row in rows:
                lines.write(json.dumps(list(row), default=_to_json, separators=(",", ":")) + "\n")
                counts[table.name] += 1
        if look:
            with Session(connection) as session:
                look(session)
    return counts


def attempts_in(file: Path) -> tuple[set[str], dict[str, int]]:
    """The sweeps in a dump, and the number of attempts of each trial, by the trial's run."""
    sweeps: set[str] = set()
    attempts: dict[str, int] = {}
    for header, parts in _tables(file):
        place = {name: number for number, name in enumerate(header["columns"])}
        for row in (row for part in parts for row in part):
            if header["table"] == SweepRow.__tablename__:
                sweeps.add(row[place["id"]])
            elif header["table"] == TrialRow.__tablename__:
                attempts[trial_key(row[place["sweep"]], row[place["number"]])] = row[place["attempt"]]
    return sweeps, attempts


def check_empty(catalog: Catalog) -> None:
    """Refuse a catalog that has rows.

    Raises:
        InvalidInput: it has; the message names the table.
    """
    for table, count in _count_rows(catalog).items():
        if count > _ROWS_OF_MIGRATIONS.get(table, 0):
            raise InvalidInput(
                f"{catalog!r} is not accepted: it has {count} {table}; give a catalog with nothing in it"
            )


def is_loaded(catalog: Catalog, rows: Mapping[str, int]) -> bool:
    """Whether a catalog has rows, and in each table at least as many as a backup has.

    Args:
        rows: the number of the backup's rows by table; a table may have the name of an earlier version.
    """
    counts = _count_rows(catalog)
    is_used = any(count > _ROWS_OF_MIGRATIONS.get(table, 0) for table, count in counts.items())
    return is_used and all(
        counts.get(_RENAMED.get(table, table), 0) >= count for table, count in rows.items()
    )


def _count_rows(catalog: Catalog) -> dict[str, int]:
    """The number of rows of each table that a dump has."""
    tables = [table for table in Base.metadata.sorted_tables if table.name not in _REBUILT]
    with catalog.read() as session:
        return {table.name: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def check_revision(revision: str) -> None:
    """Refuse a schema that this version does not know.

    Raises:
        InvalidInput: a later version made it.
    """
    if revision > newest_revision():
        raise InvalidInput(
            f"the backup's schema {revision} is not accepted: this version knows {newest_revision()} and "
            "earlier; restore it with the version that made it, or a later one"
        )


def load_catalog(catalog: Catalog, file: Path, revision: str) -> dict[str, int]:
    """Load all rows of a dump, or none, into an empty catalog, and upgrade its schema.

    Args:
        revision: the schema's revision that the rows are from.

    Returns:
        The number of rows, by table.

    Raises:
        InvalidInput: something is in the catalog, or a later version wrote the rows.
        StoreError: the file is damaged.
    """
    from alembic import command

    check_revision(revision)
    check_empty(catalog)
    if revision != newest_revision():
        command.downgrade(catalog.alembic(), revision)  # The catalog is empty, so nothing is lost.
    try:
        with catalog.engine.connect().execution_options(write=True) as connection, connection.begin():
            counts = _load(connection, file)
    except (OSError, EOFError, ValueError) as error:
        raise StoreError(f"the backup's catalog is damaged: {error}") from error
    except IntegrityError:
        raise InvalidInput(
            f"{catalog!r} is not accepted: another restore, or something else, has written into it while "
            "this backup was loaded; nothing of it was loaded. Look at what is in it, or give a catalog with "
            "nothing in it"
        ) from None
    finally:
        catalog.upgrade()
    return counts


def _load(connection: Connection, file: Path) -> dict[str, int]:
    metadata = MetaData()
    counts: dict[str, int] = {}
    for header, rows in _tables(file):
        table = Table(header["table"], metadata, autoload_with=connection)
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type = JSON(none_as_null=True)
        if header["table"] in _ROWS_OF_MIGRATIONS:
            connection.execute(table.delete())
        counts[table.name] = 0
        for part in rows:
            values = [dict(zip(header["columns"], row, strict=True)) for row in part]
            connection.execute(insert(table), values)
            counts[table.name] += len(part)
        _continue_numbers(connection, table)
    return counts


def _tables(file: Path) -> Iterator[tuple[Mapping[str, Any], Iterator[list[list[Any]]]]]:
    """Each table's header, and its rows in parts, which must be read before the next table."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        following: list[Any] = [next(lines, "")]

        def parts() -> Iterator[list[list[Any]]]:
            part: list[list[Any]] = []
            for line in lines:
                row_or_header = json.loads(line, object_hook=_from_json)
                if isinstance(row_or_header, dict):
                    following[0] = line
                    break
                part.append(row_or_header)
                if len(part) == _ROWS_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part

        while line := following[0]:
            following[0] = ""
            yield json.loads(line), parts()


def _continue_numbers(connection: Connection, table: Table) -> None:
    """On Postgres, number new rows after those that were loaded with their numbers."""
    if connection.dialect.name != "postgresql":
        return
    for column in table.primary_key.columns:
        if len(table.primary_key.columns) == 1 and isinstance(column.type, Integer | BigInteger):
            names = {"table": table.name, "column": column.name}
            sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:table, :column)"), names)
            last = connection.scalar(select(func.max(column)))
            if sequence and last:
                connection.execute(
                    text("SELECT setval(:sequence, :last)"), {"sequence": sequence, "last": last}
                )


@contextmanager
def _snapshot(catalog: Catalog) -> Iterator[Connection]:
    """A connection that sees the catalog as it is now, whatever is written meanwhile."""
    if catalog.engine.dialect.name == "postgresql":
        with catalog.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            yield connection
        return
    with scratch_folder("backup") as folder:
        copy = f"{folder}/catalog.db"
        source = sqlite3.connect(str(catalog.engine.url.database))
        target = sqlite3.connect(copy)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()
        engine: Engine = create_engine(f"sqlite:///{copy}")
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


def revision_of(catalog: Catalog) -> str:
    """The revision of a catalog's schema."""
    with catalog.engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            raise InvalidInput(f"{catalog!r} has no schema")
        return str(connection.scalar(text("SELECT version_num FROM alembic_version")))


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    raise TypeError(f"a {type(value).__name__} in the catalog cannot be written")


def _from_json(fields: dict[str, Any]) -> Any:
    if len(fields) == 1:
        if "$time" in fields:
            return datetime.fromisoformat(fields["$time"])
        if "$date" in fields:
            return date.fromisoformat(fields["$date"])
        if "$bytes" in fields:
            return b64decode(fields["$bytes"])
    return fields
