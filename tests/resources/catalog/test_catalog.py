"""The catalog's schema and transactions."""

import secrets
import sqlite3
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError, OperationalError

from halving import InvalidInput, NotFound
from resources.catalog import Base, Catalog, masked, retry, utcnow
from resources.catalog.models import models_of, versions_of
from resources.catalog.retry import is_transient
from tests.backends import snapshot_row
from tests.postgres import Postgres

REVISIONS = [script.revision for script in ScriptDirectory(str(Path("resources/catalog/migrations").absolute())).walk_revisions()]


@pytest.mark.parametrize("revision", ["base", *REVISIONS])
def test_every_earlier_revision_upgrades_to_what_the_code_expects(any_catalog: str, catalog: Catalog, revision: str) -> None:
    command.downgrade(catalog.alembic(), revision)
    with closing(Catalog(any_catalog)) as again:
        with again.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, Base.metadata) == []
        assert set(Base.metadata.tables) <= set(inspect(again.engine).get_table_names())


def test_an_upgrade_numbers_the_versions_that_there_are(any_catalog: str, catalog: Catalog) -> None:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    command.downgrade(catalog.alembic(), "0007")
    sweep = "'{}', 'digits', '{{}}', 'd', 'sha256:a', 'job', {}, 'finished', 0, '2026-01-01'"
    version = "'digits', '{}', '{}', 'c', '{}', 0, 'r', 'sha256:a', 'torch', '{{}}', '{{}}', '{{}}', 'r', '2026-01-0{} 00:00:00'"
    with catalog.engine.begin() as connection:
        for place, (name, stage) in enumerate([("1.9.0", "archived"), ("1.10.0", "champion"), ("1.2.0", "staging")], 1):
            columns = "id, name, spec, spec_digest, snapshot, driver, ordinal, status, revision, created_at"
            connection.execute(text(f"INSERT INTO sweeps ({columns}) VALUES ({sweep.format(f's{place}', place)})"))
            columns = (
                "model, version, stage, checkpoint, sweep, trial, run, snapshot, framework, input_schema, output_schema, metrics, report"
            )
            values = version.format(name, stage, f"s{place}", place)
            connection.execute(text(f"INSERT INTO model_versions ({columns}, created_at) VALUES ({values})"))
    with closing(Catalog(any_catalog)) as again, again.read() as session:
        rows = versions_of(session, "digits")
        assert [(row.version, row.number, row.mlflow_stage, row.project) for row in rows] == [
            ("1.9.0", 1, "Archived", "digits"),
            ("1.10.0", 2, "Production", "digits"),
            ("1.2.0", 3, "Staging", "digits"),
        ]
        (model,) = models_of(session)
        assert (model.name, model.newest, model.versions, model.aliases) == ("digits", "1.10.0", 3, {})


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database with nothing in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database(f"t{secrets.token_hex(6)}")


def test_processes_that_open_a_new_catalog_at_once_migrate_it_once(new_database: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        for catalog in pool.map(lambda _: Catalog(new_database), range(6)):
            catalog.close()


def test_a_transaction_that_fails_leaves_nothing(any_catalog: str, catalog: Catalog) -> None:

    def write_and_fail() -> None:
        with catalog.write() as session:
            session.add(snapshot_row("sha256:a"))
            session.flush()
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_and_fail()
    with catalog.read() as session, pytest.raises(NotFound, match="sha256:a"):
        catalog.snapshot(session, "sha256:a")


def test_writers_that_read_first_wait_for_each_other_instead_of_failing(any_catalog: str, catalog: Catalog) -> None:
    with catalog.write() as session:
        session.execute(text("CREATE TABLE counter (n INTEGER)"))
        session.execute(text("INSERT INTO counter VALUES (0)"))

    def count_up() -> None:
        with closing(Catalog(any_catalog)) as own:
            for _ in range(25):
                with own.write(exclusive=True) as session:
                    n = session.execute(text("SELECT n FROM counter")).scalar_one()
                    session.execute(text("UPDATE counter SET n = :n"), {"n": n + 1})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: count_up(), range(4)))
    with catalog.read() as session:
        assert session.execute(text("SELECT n FROM counter")).scalar_one() == 100


def test_times_come_back_in_utc_and_large_sizes_whole(any_catalog: str, catalog: Catalog) -> None:
    before = utcnow()
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    with closing(Catalog(any_catalog)) as again, again.read() as session:
        row = catalog.snapshot(session, "sha256:a")
        assert before <= row.created_at <= utcnow()
        assert row.bytes == 5_000_000_000


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"catalog url 'catalog\.db' is not accepted: give sqlite"):
        Catalog("catalog.db")


_SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://lab:{_SECRET}@db/halving",
        f"postgresql+psycopg://lab:{_SECRET}@db:port/halving",
        f"postgresql+psycopg://lab:a/{_SECRET}@db/halving",
        f"postgresql+nodriver://lab:x@{_SECRET}@db/halving",
        f"postgresql+psycopg://lab:{_SECRET}@127.0.0.1:1/halving?connect_timeout=never",
        f"postgresql+psycopg://lab@127.0.0.1:1/halving?sslmode=never&password={_SECRET}",
        f"postgresql+psycopg://lab:{_SECRET}@127.0.0.1:1/halving",
    ],
)
def test_a_password_is_in_no_error_and_no_log(url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(retry, "CONNECT_SECONDS", 0.2)
    with pytest.raises((InvalidInput, DBAPIError)) as raised:
        Catalog(url)
    shown = "".join(traceback.format_exception(raised.value)) + caplog.text + masked(url)
    assert _SECRET not in shown
    assert "db" in shown or "127.0.0.1" in shown


def test_a_sweep_that_does_not_exist_is_answered_with_those_that_do(any_catalog: str, catalog: Catalog) -> None:
    with catalog.read() as session, pytest.raises(NotFound, match=r"no sweep 'digits-0000'.*the newest are \[\]"):
        catalog.sweep(session, "digits-0000")


@pytest.mark.parametrize(
    ("statement", "file", "passing"),
    [
        ("SELECT missing FROM t", "catalog.db", False),
        ("SELECT 1 FROM missing", "catalog.db", False),
        ("INSERT INTO t VALUES (1)", "catalog.db?mode=ro", False),
        ("SELECT 1", "nowhere/catalog.db", False),
        ("BEGIN IMMEDIATE", "catalog.db", True),
    ],
)
def test_a_fault_of_sqlite_is_waited_for_only_if_it_passes(tmp_path: Path, statement: str, file: str, passing: bool) -> None:
    other = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    other.execute("CREATE TABLE t (x)")
    if passing:
        other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError) as raised:
        sqlite3.connect(f"file:{tmp_path}/{file}", uri=True, timeout=0).execute(statement)
    assert is_transient(OperationalError(statement, {}, raised.value)) is passing
    other.close()
