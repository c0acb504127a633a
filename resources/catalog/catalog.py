"""Opening the catalog and its transactions: the edge to SQL."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, make_url, select, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound, StoreError
from resources.catalog.tables import Base, SnapshotRow, SweepRow, TrialRow

_MIGRATIONS = Path(__file__).with_name("migrations")
_MIGRATION_LOCK, _EXCLUSIVE_LOCK = 4_719_025, 4_719_026  # any two numbers, the same in every process
_SQLITE_WAIT = 60  # seconds that a writer waits for another


class Catalog:
    """Control state and index of everything, transactional.

    Args:
        url: an SQLAlchemy URL: ``sqlite:////path/catalog.db`` or ``postgresql+psycopg://user@host/database``.

    Raises:
        InvalidInput: the URL is not one.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise InvalidInput(f"catalog url {url!r} is not accepted: give sqlite:////path/catalog.db or postgresql+psycopg://…") from None
        self.url = url
        self._file = Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
        if self._file:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"catalog url {url!r} is not accepted: {error}; give the path of a folder that can be written") from None
        self.engine = create_engine(url, pool_pre_ping=self._file is None, connect_args={"timeout": _SQLITE_WAIT} if self._file else {})
        if self._file:
            _use_sqlite_safely(self.engine)
        self.upgrade()

    def upgrade(self) -> None:
        """Bring the schema to the newest revision; processes that do it at once wait for each other."""
        head = ScriptDirectory(str(_MIGRATIONS)).get_current_head()
        with self.engine.connect() as connection:
            if MigrationContext.configure(connection).get_current_revision() == head:
                return
        with self._migration_lock():
            command.upgrade(self.alembic(), "head")

    def alembic(self) -> AlembicConfig:
        """Alembic's configuration for this catalog, for migrations and their tests."""
        config = AlembicConfig()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.attributes["engine"] = self.engine
        config.attributes["metadata"] = Base.metadata
        return config

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent view; what is changed in it is thrown away."""
        with Session(self.engine, expire_on_commit=False) as session:
            if not self._file:  # SQLite's transactions are snapshots anyway
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self, *, exclusive: bool = False) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back on any error.

        SQLite has one writer at a time anyway. On Postgres ``exclusive`` makes this transaction wait for others of its
        kind, which is needed where a row is added after a look at what is there (a sweep's ordinal, a version's number).
        """
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            session.connection(execution_options={"write": True})
            if exclusive and not self._file:
                session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EXCLUSIVE_LOCK})
            yield session

    def close(self) -> None:
        """Close the connections that wait for their next use."""
        self.engine.dispose()

    def sweep(self, session: Session, sweep: str, *, lock: bool = False) -> SweepRow:
        """A sweep's row; with ``lock`` no other transaction decides about this sweep until this one ends.

        Raises:
            NotFound: naming the sweeps there are.
        """
        query = select(SweepRow).where(SweepRow.id == sweep)
        row = session.scalar(query.with_for_update() if lock else query)
        if row is None:
            known = list(session.scalars(select(SweepRow.id).order_by(SweepRow.created_at.desc()).limit(10)))
            raise NotFound(f"no sweep {sweep!r} in the catalog; the newest are {known}")
        return row

    def end_sweep(self, sweep: str, status: str, *, only_from: str | None = None) -> None:
        """Close a sweep: ``finished`` or ``rejected`` (by a gate); with ``only_from`` unless it has moved on already."""
        with self.write() as session:
            row = self.sweep(session, sweep, lock=True)
            if only_from is None or row.status == only_from:
                row.status, row.finished_at = status, utcnow()

    def snapshot(self, session: Session, digest: str) -> SnapshotRow:
        """A snapshot's row.

        Raises:
            NotFound: no such snapshot.
        """
        row = session.get(SnapshotRow, digest)
        if row is None:
            raise NotFound(f"no dataset snapshot {digest!r} in the catalog")
        return row

    def trials(self, session: Session, sweep: str) -> list[TrialRow]:
        """A sweep's trials by number."""
        return list(session.scalars(select(TrialRow).where(TrialRow.sweep == sweep).order_by(TrialRow.number)))

    @contextmanager
    def _migration_lock(self) -> Iterator[None]:
        if self._file:
            with self._file.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            return
        with self.engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})


def utcnow() -> datetime:
    return datetime.now(UTC)


def _use_sqlite_safely(engine: Engine) -> None:
    """WAL, so that readers never wait; full sync, so that a decision survives the machine; writers lock at BEGIN."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        # IMMEDIATE: a transaction that reads and then writes would otherwise fail when another wrote in between.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN")
