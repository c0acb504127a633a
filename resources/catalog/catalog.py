"""Opening the catalog and its transactions: the edge to SQL."""

import fcntl
import re
import select as select_ready
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
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
# any numbers, the same in every process
_MIGRATION_LOCK = 4_719_025
_EXCLUSIVE_LOCK = 4_719_026
_PUBLISHING_LOCK = 4_719_027
_PUBLISHING_SECONDS = 5.0  # that another process is waited for, which may wait for the store itself
# Every process asks this when it opens a catalog; SQLAlchemy's inspector would put its own question together
# for each engine anew.
_HAS_REVISION = {
    "postgresql": "SELECT to_regclass('alembic_version')::text",
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'",
}
_LOCK_NOT_AVAILABLE = "55P03"  # Postgres' code for a lock that was not had in time
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"  # of Postgres, in seconds since the epoch
# that it counts as away for all threads of an impatient process after one has waited for it in vain
_AWAY_SECONDS = 1.0

# of each SQLite file that this process has open
_WRITERS: WeakValueDictionary[Path, FairLock] = WeakValueDictionary()


class Catalog:
    """Control state and index of everything, transactional.

    A process keeps one connection to Postgres open, and opens up to four more while several of its threads
    ask at once (a worker asks from three threads). So Postgres' ``max_connections`` must be above the number
    of workers, or workers connect through PgBouncer; its transaction mode suffices, for nothing here lasts
    longer than a transaction.

    Args:
        url: an SQLAlchemy URL: ``sqlite:////path/catalog.db`` or ``postgresql+psycopg://user@host/database``.
            Options of the driver in it, for example ``?connect_timeout=30``, replace the defaults here.
        patience: seconds that a new connection is waited for, and half of those that a writer waits for
            another in SQLite; by default as long as a worker can wait. Who answers people should not.
        connections: to Postgres that are kept open.

    Raises:
        InvalidInput: it is not a URL of SQLite or Postgres, or the catalog there has the schema of a later
            version.
        StoreError: the folder of the SQLite file cannot be made.
    """

    def __init__(self, url: str, *, patience: float | None = None, connections: int = 1) -> None:
        safe_url = mask_password(url)
        patience = self._patience = retry.CONNECT_SECONDS if patience is None else patience
        try:
            parsed = make_url(url)
            self._file = (
                Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
            )
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
        """Bring the schema to the newest revision; processes that do so at the same time wait for each other.

        Raises:
            InvalidInput: it is of a later version, which this one does not know.
        """
        head = newest_revision()
        # The first connection to a new SQLite file switches it to WAL. SQLite does not let others wait for
        # that, so the lock must.
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
        """A consistent view; changes made in it are discarded."""
        with Session(self.engine, expire_on_commit=False) as session:
            if not self._file:  # SQLite's transactions are snapshots anyway
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield session

    @contextmanager
    def write(self, *, exclusive: bool = False, within: Session | None = None) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back on any error; or a part of the transaction
        ``within``, which ends it.

        SQLite has one writer at a time anyway. On Postgres ``exclusive`` makes this transaction wait for
        other exclusive ones. That is needed where a row is added that depends on the rows there are (a
        sweep's ordinal, a version's number).
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
        """Execute one statement as a transaction of its own, and give its rows with columns by name.

        On Postgres that takes one round trip.
        """
        with nullcontext() if isinstance(statement, Select) else self._turn_to_write():
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
        while another one may come first. With this queue only processes meet there. A thread waits without a
        connection, because readers need them.
        """
        if self._file is None:
            yield
            return
        with self._writers.held(2 * self._patience) as in_time:
            if not in_time:
                error = sqlite3.OperationalError(
                    f"database is locked: threads of this process have written for {2 * self._patience:g} s"
                )
                raise OperationalError("BEGIN IMMEDIATE", None, error)
            yield

    def now(self) -> float:
        """Seconds since the epoch by the database's clock, so that several machines can compare times."""
        return time.time() if self._file else self._server_clock.now()

    def read_clock(self, within: Session | Connection) -> None:
        """Read the database's clock now; to be called before acting on a time that is too far ahead."""
        if not self._file:
            self._server_clock.set(within.execute(text(f"SELECT {_CLOCK}")).scalar_one())

    def close(self) -> None:
        """Close the idle connections."""
        self.engine.dispose()

    def sweep(self, session: Session, sweep: str, *, lock: bool = False) -> SweepRow:
        """A sweep's row; with ``lock`` no other transaction decides about this sweep until this one ends.

        Raises:
            NotFound: no such sweep; the message names the newest ones.
        """
        query = select(SweepRow).where(SweepRow.id == sweep)
        row = session.scalar(query.with_for_update() if lock else query)
        if row is None:
            newest = list(session.scalars(select(SweepRow.id).order_by(SweepRow.created_at.desc()).limit(10)))
            raise NotFound(f"no sweep {sweep!r} in the catalog; the newest are {newest}")
        return row

    def end_sweep(self, sweep: str, status: str, *, only_from: str | None = None) -> None:
        """Set a sweep's last status, finished, rejected, held or failed; with ``only_from`` only if it has
        that status now.
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
        """While one process writes into the store what the catalog says, others wait, but not for long: the
        store may be away and hold it up.

        The lock ends with its process.

        Raises:
            StoreUnavailable: another process is at it for longer.
        """
        with self._process_lock(_PUBLISHING_LOCK, ".publishing.lock", _PUBLISHING_SECONDS):
            yield

    @contextmanager
    def _migration_lock(self) -> Iterator[None]:
        with self._process_lock(_MIGRATION_LOCK, ".lock"):
            yield

    @contextmanager
    def _process_lock(self, key: int, suffix: str, seconds: float | None = None) -> Iterator[None]:
        """Hold a lock among processes; with ``seconds`` it is not waited for any longer."""
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
                raise _held(seconds) from None
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
            raise _held(seconds)
        time.sleep(0.02)


def _held(seconds: float | None) -> StoreUnavailable:
    return StoreUnavailable(f"another process has written into it for {seconds:g} s and is not done")


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
        # IMMEDIATE: a transaction that reads and then writes would otherwise fail when another wrote in
        # between.
        connection.exec_driver_sql(
            "BEGIN IMMEDIATE" if connection.get_execution_options().get("write") else "BEGIN"
        )


@cache
def newest_revision() -> str:
    """Of the schema: migrations are numbered, and the file of each begins with its revision
    (:mod:`resources.catalog.migrate`).
    """
    return max(path.name for path in (_MIGRATIONS / "versions").glob("[0-9]*.py")).partition("_")[0]


def _connect_when_possible(engine: Engine, clock: ServerClock, patience: float) -> None:
    """Wait while Postgres refuses connections, and never use one that the server closed while it was idle.

    It is waited for at most ``patience`` seconds. The clock is set by the server's with each new connection,
    and before one is used where it was not for a while.
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
            away = (time.monotonic() + _AWAY_SECONDS, error) if impatient else None
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
            raise DisconnectionError(f"it does not say what time it is: {error}") from error
        clock.set(now)
