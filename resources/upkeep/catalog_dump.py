"""The catalog as one file that either database is loaded from: rows as JSON, table by table.

It is read in one transaction: on SQLite from a copy that its online backup API makes, so that no writer
waits, on Postgres in a snapshot (REPEATABLE READ). It is loaded in one transaction as well. Rows go into the
schema that they are from; then Alembic upgrades it. The index of runs is not in it, which is made again from
the store, nor up to where models are published, because a backup has none of their files.
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
_MADE_WITH_THE_SCHEMA = {"experiments": 1}  # table to how many rows its migration makes
_AT_ONCE = 1_000  # rows


def dump_catalog(
    catalog: Catalog, file: Path, look: Callable[[Session], None] | None = None
) -> dict[str, int]:
    """Write all rows of this moment into a file, compressed; how many by table.

    Args:
        look: called with a session that sees the same moment.
    """
    counts: dict[str, int] = {}
    with _snapshot(catalog) as connection, gzip.open(file, "wt", encoding="utf-8", compresslevel=5) as lines:
        for table in Base.metadata.sorted_tables:
            if table.name in _REBUILT:
                continue
            lines.write(
                json.dumps({"table": table.name, "columns": [column.name for column in table.columns]}) + "\n"
            )
            counts[table.name] = 0
            rows = connection.execution_options(stream_results=True, yield_per=_AT_ONCE).execute(
                select(table)
            )
            for row in rows:
                lines.write(json.dumps(list(row), default=_plain, separators=(",", ":")) + "\n")
                counts[table.name] += 1
        if look:
            with Session(connection) as session:
                look(session)
    return counts


def attempts_in(file: Path) -> tuple[set[str], dict[str, int]]:
    """The sweeps that a dump has, and how many attempts it counts of each trial, by the trial's run."""
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
    """Refuse a catalog that something is in.

    Raises:
        InvalidInput: it is; the message names the table.
    """
    for table, count in _count_rows(catalog).items():
        if count > _MADE_WITH_THE_SCHEMA.get(table, 0):
            raise InvalidInput(
                f"{catalog!r} is not accepted: it has {count} {table}; give a catalog with nothing in it"
            )


def is_loaded(catalog: Catalog, rows: Mapping[str, int]) -> bool:
    """Whether a catalog has rows, and of each table at least as many as a backup has."""
    counts = _count_rows(catalog)
    is_used = any(count > _MADE_WITH_THE_SCHEMA.get(table, 0) for table, count in counts.items())
    return is_used and all(counts.get(table, 0) >= count for table, count in rows.items())


def _count_rows(catalog: Catalog) -> dict[str, int]:
    """How many by table, of those that a dump has."""
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
            "earlier; restore it with the "
            "version that made it, or a later one"
        )


def load_catalog(catalog: Catalog, file: Path, revision: str) -> dict[str, int]:
    """Load rows into an empty catalog, and bring its schema to the newest revision; how many by table.

    All of them, or none.

    Args:
        revision: of the schema that the rows are from.

    Raises:
        InvalidInput: something is in the catalog, or a later version wrote the rows.
        StoreError: the file is damaged.
    """
    from alembic import command

    check_revision(revision)
    check_empty(catalog)
    if revision != newest_revision():
        command.downgrade(catalog.alembic(), revision)  # nothing is in it
    try:
        with catalog.engine.connect().execution_options(write=True) as connection, connection.begin():
            counts = _load(connection, file)
    except (OSError, EOFError, ValueError) as error:
        raise StoreError(f"the backup's catalog is damaged: {error}") from error
    except IntegrityError:
        raise InvalidInput(
            f"{catalog!r} is not accepted: another restore, or something else, has written into it while "
            "this backup was loaded; "
            "nothing of it was loaded. Look at what is in it, or give a catalog with nothing in it"
        ) from None
    finally:
        catalog.upgrade()
    return counts


def _load(connection: Connection, file: Path) -> dict[str, int]:
    known = MetaData()
    counts: dict[str, int] = {}
    for header, rows in _tables(file):
        table = Table(header["table"], known, autoload_with=connection)
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type = JSON(none_as_null=True)
        if header["table"] in _MADE_WITH_THE_SCHEMA:
            connection.execute(table.delete())
        counts[table.name] = 0
        for part in rows:
            values = [dict(zip(header["columns"], row, strict=True)) for row in part]
            connection.execute(insert(table), values)
            counts[table.name] += len(part)
        _continue_numbers(connection, table)
    return counts


def _tables(file: Path) -> Iterator[tuple[Mapping[str, Any], Iterator[list[list[Any]]]]]:
    """Each table's header, and its rows in parts, which are to be gone through before the next table."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        following: list[Any] = [next(lines, "")]

        def parts() -> Iterator[list[list[Any]]]:
            part: list[list[Any]] = []
            for line in lines:
                found = json.loads(line, object_hook=_rich)
                if isinstance(found, dict):
                    following[0] = line
                    break
                part.append(found)
                if len(part) == _AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part

        while line := following[0]:
            following[0] = ""
            yield json.loads(line), parts()


def _continue_numbers(connection: Connection, table: Table) -> None:
    """On Postgres, let new rows be numbered after those that were loaded with their numbers."""
    if connection.dialect.name != "postgresql":
        return
    for column in table.primary_key.columns:
        if len(table.primary_key.columns) == 1 and isinstance(column.type, Integer | BigInteger):
            asked = {"table": table.name, "column": column.name}
            sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:table, :column)"), asked)
            last = connection.scalar(select(func.max(column)))
            if sequence and last:
                connection.execute(
                    text("SELECT setval(:sequence, :last)"), {"sequence": sequence, "last": last}
                )


@contextmanager
def _snapshot(catalog: Catalog) -> Iterator[Connection]:
    """A connection that sees the catalog as it is in this moment."""
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


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    raise TypeError(f"a {type(value).__name__} in the catalog cannot be written")


def _rich(found: dict[str, Any]) -> Any:
    if len(found) == 1:
        if "$time" in found:
            return datetime.fromisoformat(found["$time"])
        if "$date" in found:
            return date.fromisoformat(found["$date"])
        if "$bytes" in found:
            return b64decode(found["$bytes"])
    return found
