"""Dagster's storage over pooled connections: how many there are, when they close, and what is not shared."""

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import dagster as dg
import psycopg
import pytest
import yaml
from dagster_postgres.auth import PgTokenProvider
from sqlalchemy import text

from pipelines import postgres_storage
from pipelines.postgres_storage import PooledPostgresStorage
from tests.postgres import Postgres
from tests.waiting import wait_for


class Watched:
    """A database of Dagster's, and the connections to it."""

    def __init__(self, postgres: Postgres) -> None:
        name = f"dagster_{uuid4().hex}"
        self.url = postgres.database(name).replace("+psycopg:", "+psycopg2:")
        self._name = name
        self._watcher = psycopg.connect(postgres.address_of("postgres"), autocommit=True)

    def processes(self) -> set[int]:
        """The server's processes of the connections that are open."""
        # not of its own upkeep
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        rows = self._watcher.execute(query, [self._name])
        return {pid for (pid,) in rows}

    def break_off(self) -> None:
        self._watcher.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self._name]
        )

    def close(self) -> None:
        self._watcher.close()


@pytest.fixture
def database(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A new one; connections to it are never idle for long enough to be closed, unless a test says so."""
    monkeypatch.setattr(postgres_storage, "IDLE_SECONDS", 600.0)
    with closing(Watched(postgres)) as watched:
        yield watched
        if engine := postgres_storage._engines.get(watched.url):
            engine.dispose()


def instance(database: Watched, folder: Path, *, pooled: bool = True) -> dg.DagsterInstance:
    """An instance as one of Dagster's processes opens it."""
    config = {"postgres_url": database.url}
    custom = {
        "module": PooledPostgresStorage.__module__,
        "class": PooledPostgresStorage.__name__,
        "config": config,
    }
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text(
        yaml.safe_dump({"storage": {"custom": custom} if pooled else {"postgres": config}})
    )
    return dg.DagsterInstance.from_config(str(folder))


@dg.job
def succeeds() -> None:
    @dg.op
    def nothing() -> None: ...

    nothing()


def test_runs_are_kept_over_one_connection_for_all_instances_of_a_process(
    database: Watched, tmp_path: Path
) -> None:
    processes = set()
    for _ in range(3):
        with instance(database, tmp_path) as opened:
            assert succeeds.execute_in_process(instance=opened).success
            wait_for(lambda: len(database.processes()) == 1, 60, "those that made the tables are closed")
            processes |= database.processes()
    assert len(processes) == 1
    with instance(database, tmp_path / "dagsters", pooled=False) as own:
        # what Dagster's own storage finds there
        assert [run.status for run in own.get_runs()] == [dg.DagsterRunStatus.SUCCESS] * 3
        for run in own.get_runs():
            kinds = {entry.dagster_event_type for entry in own.all_logs(run.run_id)}
            assert kinds >= {dg.DagsterEventType.RUN_START, dg.DagsterEventType.STEP_SUCCESS}


def test_as_many_threads_as_ask_at_once_are_served_and_few_connections_stay(
    database: Watched, tmp_path: Path
) -> None:
    together = threading.Barrier(20, timeout=60)

    def ask(_: int) -> None:
        with postgres_storage._engines[database.url].connect() as connection:
            connection.execute(text("SELECT 1"))
            together.wait()

    with instance(database, tmp_path), ThreadPoolExecutor(20) as threads:
        list(threads.map(ask, range(20)))
        wait_for(
            lambda: len(database.processes()) == postgres_storage._POOL_SIZE,
            60,
            "the connections beyond the few are closed",
        )


def test_a_connection_that_nobody_uses_is_closed_and_the_next_statement_opens_one(
    database: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_storage, "IDLE_SECONDS", 0.1)
    with instance(database, tmp_path) as opened:
        for _ in range(3):
            assert opened.get_runs() == []
            wait_for(lambda: not database.processes(), 60, "nothing is open")


def test_a_statement_longer_than_the_idle_time_leaves_no_connection_behind(
    database: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with instance(database, tmp_path) as opened:
        engine = postgres_storage._engines[database.url]
        with engine.connect() as held:
            held.execute(text("SELECT 1"))
            monkeypatch.setattr(postgres_storage, "IDLE_SECONDS", 0.1)
            assert opened.get_runs() == []  # over another connection
            wait_for(lambda: len(database.processes()) == 1, 60, "the other one is closed")
            held.execute(text("SELECT 1"))
        gc.disable()  # it must not be what closes it
        try:
            wait_for(lambda: not database.processes(), 60, "nothing is open")
        finally:
            gc.enable()


def test_a_machine_of_the_databases_that_is_gone_is_not_waited_for_without_end(
    database: Watched, tmp_path: Path
) -> None:
    with instance(database, tmp_path), postgres_storage._engines[database.url].connect() as connection:
        options = connection.connection.driver_connection.get_dsn_parameters()  # type: ignore[union-attr]
        assert (
            options.items()
            >= {"connect_timeout": "5", "tcp_user_timeout": "10000", "keepalives_idle": "10"}.items()
        )


def test_a_database_that_breaks_connections_off_is_asked_over_new_ones(
    database: Watched, tmp_path: Path
) -> None:
    with instance(database, tmp_path) as opened:
        for _ in range(3):
            assert opened.get_runs() == []
            before = database.processes()
            database.break_off()
            wait_for(lambda gone=before: not gone & database.processes(), 60, "they are gone")


def test_a_forked_child_has_connections_of_its_own(database: Watched, tmp_path: Path) -> None:
    def process() -> int:
        with postgres_storage._engines[database.url].connect() as connection:
            return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    with instance(database, tmp_path) as opened:
        own = process()
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.write(write, f"{process()} {opened.get_runs()}".encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            number, _, runs = answer.read().partition(" ")
        os.waitpid(child, 0)
        assert runs == "[]"
        assert int(number) != own
        assert process() == own  # which the child has not closed


def test_a_token_is_asked_for_when_a_connection_is_opened(database: Watched) -> None:
    class Tokens(PgTokenProvider):
        count = 0

        def _fetch_token(self) -> tuple[str, float]:
            self.count += 1
            return "secret", 0.0  # it has expired already, so that each connection takes another

    tokens = Tokens()
    storage = PooledPostgresStorage(database.url, token_provider=tokens)
    assert storage.run_storage.get_runs() == []
    before = tokens.count
    assert storage.run_storage.get_runs() == []
    assert (before > 0, tokens.count) == (True, before)
