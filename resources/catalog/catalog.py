"""Opening the catalog and its transactions: the edge to SQL."""

import fcntl
import re
import select as select_ready
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Engine, Select, Update, create_engine, event, make_url, select, text
from sqlalchemy.exc import ArgumentError, DisconnectionError, OperationalError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound, StoreError, StoreUnavailable
from resources.catalog import retry
from resources.catalog.clock import ServerClock
from resources.catalog.driver_options import driver_options, recycle_seconds
from resources.catalog.fair_lock import FairLock
from resources.catalog.pipelined import at_once, transaction
from resources.catalog.tables import Base, SnapshotRow, SweepRow, TrialRow

if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig

_MIGRATIONS = Path(__file__).with_name("migrations")
# Keys of Postgres' advisory locks: arbitrary numbers, the same in every process.
_MIGRATION_LOCK = 4_719_025
_EXCLUSIVE_LOCK = 4_719_026
_PUBLISHING_LOCK = 4_719_027
_PUBLISHING_SECONDS = 5.0  # How long to wait for another process, which may itself wait for the store.
# Every process executes this when it opens a catalog; SQLAlchemy's inspector would take longer.
_HAS_REVISION = {
    "postgresql": "SELECT to_regclass('alembic_version')::text",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'",
}
_LOCK_NOT_AVAILABLE = "55P03"  # Postgres' code for a lock that was not had in time
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"  # of Postgres, in seconds since the epoch
# After one thread of an impatient process has waited in vain, all its threads take the database as
# unavailable for so long.
_AWAY_SECONDS = 1.0

# The lock of each SQLite file that this process has open.
_WRITERS: WeakValueDictionary[Path, FairLock] = WeakValueDictionary()


class Catalog:
    """The SQL database with control state and index, and its transactions.

    A process keeps one connection to Postgres open, and opens up to four more while several of its threads
    need one (a worker has three such threads). So Postgres' ``max_connections`` must be above the number of
    workers, or workers connect through PgBouncer, whose transaction mode suffices.

    Args:
        url: an SQLAlchemy URL: ``sqlite:////path/catalog.db`` or ``postgresql+psycopg://user@host/database``.
            Options of the driver in it, for example ``?connect_timeout=30``, replace the defaults here.
        patience: how many seconds to wait for a new connection; on SQLite a writer waits twice as long for
            another writer. The default is for workers; processes that answer people should wait less.
        connections: the number of connections to Postgres that are kept open.

    Raises:
        InvalidInput: the URL is not one of SQLite or Postgres, or the catalog there has the schema of a later
            version.
        StoreError: the folder of the SQLite file cannot be made.
    """

    def __init__(self, url: str, *, patience: float | None = None, connections: int = 1) -> None:
        safe_url = mask_password(url)
        if patience is None:
            patience = retry.CONNECT_SECONDS
        self._patience = patience
        try:
            parsed = make_url(url)
            self._file: Path | None = None
            if parsed.get_backend_name() == "sqlite" and parsed.database:
                self._file = Path(parsed.database)
            if self._file is None and parsed.get_backend_name() != "postgresql":
                raise ArgumentError("another database")
            if self._file:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self.engine = create_engine(parsed, connect_args={"timeout": 2 * patience})
            else:
                self.engine = create_engine(
                    parsed,
                    pool_size=connections,
                    max_overflow=4,
                    pool_timeout=patience,
                    pool_recycle=recycle_seconds(),  # each new connection sets the clock by the server's
                    connect_args=driver_options(parsed, patient=patience >= retry.CONNECT_SECONDS),
                )
        except OSError as error:
            raise StoreError(
                f"catalog url {safe_url!r} is not accepted: {error}; give the path of a folder that can be "
                "written"
            ) from None
        except (ArgumentError, ImportError, ValueError):  # their messages may hold a part of a password
            raise InvalidInput(
                f"catalog url {safe_url!r} is not accepted: give sqlite:////path/catalog.db or "
                "postgresql+psycopg://…"
            ) from None
        self.url = url
        self._server_clock = ServerClock()
        if self._file:
            self._writers = _WRITERS.setdefault(self._file.resolve(), FairLock())
            _use_sqlite_safely(self.engine)
        else:
            _connect_when_possible(self.engine, self._server_clock, patience)
        try:
            self.upgrade()
        except InvalidInput:  # nobody will have this catalog to close it
            self.engine.dispose()
            raise

    def __repr__(self) -> str:
        return f"Catalog({mask_password(self.url)!r})"

    def upgrade(self) -> None:
        """Upgrade the schema to the newest revision; processes that do so at the same time take turns.

        Raises:
            InvalidInput: the schema is that of a later version of Halving.
        """
        head = newest_revision()
        # The first connection to a new SQLite file switches it to WAL. SQLite does not make others wait for
        # that, so the lock is needed.
        is_new = self._file is not None and not (self._file.exists() and self._file.stat().st_size)
        if not is_new and self._checked_revision(head) == head:
            return
        with self._migration_lock():
            if self._checked_revision(head) != head:
                from alembic import command  # every process opens a catalog, and hardly any finds an old one

                command.upgrade(self.alembic(), "head")

    def _checked_revision(self, head: str) -> str | None:
        revision = self._revision()
        if revision is not None and revision > head:
            raise InvalidInput(
                f"the catalog {mask_password(self.url)} is not accepted: it has the schema {revision}, and "
                f"this version of Halving knows those up to {head}; install the version that the others use, "
                "or a newer one"
            )
        return revision

    def _revision(self) -> str | None:
        def read() -> str | None:
            with self.engine.connect() as connection:
                if connection.scalar(text(_HAS_REVISION[self.engine.name])) is None:
                    return None
                return connection.scalar(text("SELECT version_num FROM alembic_version"))

        return retry.retry_transient(read, self._patience)

    def alembic(self) -> "AlembicConfig":
        """Alembic's configuration for this catalog, for migrations and their tests."""
        from alembic.config import Config as AlembicConfig

        config = AlembicConfig()
        config.set_main_option("script_location", str(_MIGRATIONS))
        config.attributes["engine"] = self.engine
        config.attributes["metadata"] = Base.metadata
        return config

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a session with a consistent view; changes made in it are discarded."""
        with Session(self.engine, expire_on_commit=False) as session:
            if not self._file:  # SQLite's transactions are snapshots anyway
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self, *, exclusive: bool = False, within: Session | None = None) -> Iterator[Session]:
        """Open a transaction that writes; it is committed at the end, and rolled back on any error.

        Args:
            exclusive: whether to wait for other exclusive transactions. That is needed to add a row that
                depends on other rows, such as one with a sweep's ordinal or a version's number. SQLite has
                only one writer at a time anyway.
            within: a transaction to be a part of, which commits or rolls back later.
        """
        if within is not None:
            self._lock(within, exclusive)
            yield within
            within.flush()
            return
        with self._turn_to_write(), Session(self.engine, expire_on_commit=False) as session, session.begin():
            session.connection(execution_options={"write": True})
            self._lock(session, exclusive)
            yield session

    def _lock(self, session: Session, exclusive: bool) -> None:
        if exclusive and not self._file:
            session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _EXCLUSIVE_LOCK})

    def at_once(self, statement: Update | Select[Any], values: dict[str, Any]) -> list[Any]:
        """Execute one statement as a transaction of its own; return its rows, with columns by name.

        On Postgres that takes one round trip.
        """
        if isinstance(statement, Select):
            return at_once(self.engine, statement, values)
        with self._turn_to_write():
            return at_once(self.engine, statement, values)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Write as :meth:`write` does, with statements of :func:`~resources.catalog.pipelined.together`."""
        with self._turn_to_write(), transaction(self.engine) as connection:
            yield connection

    @contextmanager
    def _turn_to_write(self) -> Iterator[None]:
        """Wait for the turn to write; on SQLite this process's threads write in the order in which they come.

        SQLite has no queue: a writer that has to wait sleeps for up to a tenth of a second and tries again,
        while another one may come first. With this queue only one thread of each process has to compete. A
        thread waits without a connection, because readers need them.
        """
        if self._file is None:
            yield
            return
        with self._writers.hold(2 * self._patience) as in_time:
            if not in_time:
                error = sqlite3.OperationalError(
                    f"database is locked: threads of this process have written for {2 * self._patience:g} s"
                )
                raise OperationalError("BEGIN IMMEDIATE", None, error)
            yield

    def now(self) -> float:
        """Seconds since the epoch by the database's clock, so that several machines can compare times."""
        if self._file:
            return time.time()
        return self._server_clock.now()

    def read_clock(self, within: Session | Connection) -> None:
        """Read the database's clock now; to be called before acting on a time that is too far ahead."""
        if not self._file:
            self._server_clock.set(within.execute(text(f"SELECT {_CLOCK}")).scalar_one())

    def close(self) -> None:
        """Close the idle connections."""
        self.engine.dispose()

    def sweep(self, session: Session, sweep: str, *, lock: bool = False) -> SweepRow:
        """A sweep's row.

        Args:
            lock: whether no other transaction can decide about this sweep until this one ends.

        Raises:
            NotFound: no such sweep; the message names the newest ones.
        """
        query = select(SweepRow).where(SweepRow.id == sweep)
        if lock:
            query = query.with_for_update()
        row = session.scalar(query)
        if row is None:
            newest = list(session.scalars(select(SweepRow.id).order_by(SweepRow.created_at.desc()).limit(10)))
            raise NotFound(f"no sweep {sweep!r} in the catalog; the newest are {newest}")
        return row

    def end_sweep(self, sweep: str, status: str, *, only_from: str | None = None) -> None:
        """Set a sweep's last status: finished, rejected, held or failed.

        Args:
            only_from: the status that the sweep must have now, or nothing is done; None for any.
        """
        with self.write() as session:
            row = self.sweep(session, sweep, lock=True)
            if only_from is None or row.status == only_from:
                row.status = status
                row.finished_at = utcnow()

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
        return list(
            session.scalars(select(TrialRow).where(TrialRow.sweep == sweep).order_by(TrialRow.number))
        )

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Hold the lock for writing the catalog's models into the store; it ends with its process.

        Other processes wait for it, but not for long, because the store may be unavailable.

        Raises:
            StoreUnavailable: another process holds the lock for longer.
        """
        with self._process_lock(_PUBLISHING_LOCK, ".publishing.lock", _PUBLISHING_SECONDS):
            yield

    @contextmanager
    def _migration_lock(self) -> Iterator[None]:
        with self._process_lock(_MIGRATION_LOCK, ".lock"):
            yield

    @contextmanager
    def _process_lock(self, key: int, suffix: str, seconds: float | None = None) -> Iterator[None]:
        """Hold a lock among processes; with ``seconds`` it is waited for no longer than that."""
        if self._file:
            with self._file.with_suffix(suffix).open("w") as lock:
                _lock_file(lock, seconds)
                yield
            return
        with self.engine.connect() as connection:
            if seconds is not None:
                connection.execute(text(f"SET LOCAL lock_timeout = {round(1000 * seconds)}"))
            try:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                    raise
                raise _busy_error(seconds) from None
            yield


def _lock_file(file: IO[str], seconds: float | None) -> None:
    if seconds is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    end = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() >= end:
            raise _busy_error(seconds)
        time.sleep(0.02)


def _busy_error(seconds: float | None) -> StoreUnavailable:
    return StoreUnavailable(f"another process has been writing into it for more than {seconds:g} s")


def utcnow() -> datetime:
    return datetime.now(UTC)


def mask_password(url: str) -> str:
    """A catalog's URL without its password, for messages."""
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", re.sub(r"(?<=//).*:.*(?=@)", "***", url))


def _use_sqlite_safely(engine: Engine) -> None:
    """Use WAL, so that readers never wait, and full sync, so that decisions survive a power failure.

    Writers lock at BEGIN.
    """

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        if connection.get_execution_options().get("write"):
            # Otherwise a transaction that reads and then writes would fail if another one wrote in between.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")


@cache
def newest_revision() -> str:
    """The newest revision of the schema: the number by which the file of the last migration begins."""
    return max(path.name for path in (_MIGRATIONS / "versions").glob("[0-9]*.py")).partition("_")[0]


def _connect_when_possible(engine: Engine, clock: ServerClock, patience: float) -> None:
    """Wait while Postgres refuses connections, and never use one that the server closed while it was idle.

    Each new connection is waited for at most ``patience`` seconds, and sets the clock by the server's. The
    clock is also set before a connection is used, if that was not done for a while.
    """

    impatient = patience < retry.CONNECT_SECONDS
    away: tuple[float, BaseException] | None = None

    @event.listens_for(engine, "do_connect")
    def _on_connect(dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        nonlocal away
        if away is not None and time.monotonic() < away[0]:
            raise type(away[1])(*away[1].args)
        try:
            return retry.connect_with_retry(lambda: dialect.connect(*arguments, **options), patience)
        except Exception as error:
            away = None
            if impatient:
                away = (time.monotonic() + _AWAY_SECONDS, error)
            raise

    @event.listens_for(engine, "connect")
    def _on_connected(connection: Any, _record: Any) -> None:
        # A prepared statement halves the server's work, but belongs to one of PgBouncer's connections, and
        # the next transaction may get another. PgBouncer is recognised by its made-up process number.
        connection.autocommit = True
        try:
            process, now = connection.execute(f"SELECT pg_backend_pid(), {_CLOCK}").fetchone()
        except BaseException:
            connection.close()  # the pool forgets it
            raise
        clock.set(now)
        if process != connection.info.backend_pid:
            connection.prepare_threshold = None
        connection.autocommit = False

    @event.listens_for(engine, "checkin")
    def _on_checkin(_connection: Any, record: Any) -> None:
        record.info["idle"] = True

    @event.listens_for(engine, "checkout")
    def _on_checkout(connection: Any, record: Any, _proxy: Any) -> None:
        # The only thing that an idle connection can receive is its end. Looking at the socket costs no round
        # trip.
        if record.info.pop("idle", False) and (
            connection.closed or select_ready.select([connection], [], [], 0)[0]
        ):
            raise DisconnectionError("it was closed while it was idle")
        if clock.is_due():
            _read_clock(connection)
        if connection.autocommit:  # an interruption came before it was set to False again
            connection.autocommit = False

    def _read_clock(connection: Any) -> None:
        try:
            connection.autocommit = True
            (now,) = connection.execute(f"SELECT {_CLOCK}").fetchone()
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError(f"its clock cannot be read: {error}") from error
        clock.set(now)
