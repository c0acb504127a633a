"""Dagster's own storage on Postgres, over pooled connections.

Dagster opens a connection for each statement, so that no process holds one that it does not need. That makes
21 connections a second for an idle daemon and its code location, each a process of the database. Here the
instances of a process share one engine. A process without a query for :data:`IDLE_SECONDS`, such as a trial
that trains for hours, holds no connection.
"""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dagster._serdes import ConfigurableClassData
from dagster_postgres.auth import PgTokenProvider
from dagster_postgres.storage import DagsterPostgresStorage
from dagster_postgres.utils import create_pg_engine, get_token_provider_from_config, pg_url_from_config
from sqlalchemy import Engine, event, make_url

from resources.catalog.driver_options import driver_options, recycle_seconds

IDLE_SECONDS = 10.0
# The pool keeps this many connections; more threads open more, which are closed when they are returned.
_POOL_SIZE = 4


class PooledPostgresStorage(DagsterPostgresStorage):
    """Storage with pooled connections, configured as ``storage: postgres`` in a ``dagster.yaml``."""

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,
        inst_data: ConfigurableClassData | None = None,
        token_provider: PgTokenProvider | None = None,
    ) -> None:
        # Only the first instance of this process checks the tables; the others use the same database.
        super().__init__(
            postgres_url, should_autocreate_tables and postgres_url not in _engines, inst_data, token_provider
        )
        engine = _shared_engine(postgres_url, token_provider)
        for storage in (self._run_storage, self._event_log_storage, self._schedule_storage):
            storage._engine = engine

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> "PooledPostgresStorage":
        return cls(
            pg_url_from_config(config_value),
            config_value.get("should_autocreate_tables", True),
            inst_data,
            get_token_provider_from_config(config_value),
        )


_engines: dict[str, Engine] = {}


def _shared_engine(url: str, token_provider: PgTokenProvider | None) -> Engine:
    """This process's engine for a database."""
    if url not in _engines:
        engine = create_pg_engine(
            url,
            token_provider,
            isolation_level="AUTOCOMMIT",
            pool_size=_POOL_SIZE,
            max_overflow=-1,
            pool_use_lifo=True,
            pool_pre_ping=True,
            pool_recycle=recycle_seconds(),
            connect_args=driver_options(make_url(url)),
        )
        _Idleness(engine)
        _engines.setdefault(url, engine)  # Another thread may have been first.
    return _engines[url]


class _Idleness:
    """Closes an engine's idle connections, and gives a forked child connections of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._watched = False
        self._last = 0.0
        event.listen(engine, "checkin", self._note_use)
        os.register_at_fork(after_in_child=self._reset_in_child)

    def _reset_in_child(self) -> None:
        # A thread of the parent may have held the lock during the fork.
        self._lock = threading.Lock()
        self._watched = False
        self._engine.dispose(close=False)

    def _note_use(self, *_: object) -> None:
        with self._lock:
            self._last = time.monotonic()
            if not self._watched:
                with suppress(RuntimeError):  # If no thread can be started, the next use tries again.
                    threading.Thread(target=self._watch, name="dagster-storage-idle", daemon=True).start()
                    self._watched = True

    def _watch(self) -> None:
        while True:
            with self._lock:
                left = self._last + IDLE_SECONDS - time.monotonic()
                if left <= 0:
                    self._watched = False
                    break
            time.sleep(left)
        # engine.dispose() would make a new pool, and connections in use would return to the old one.
        self._engine.pool.dispose()
