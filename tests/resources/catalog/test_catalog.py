"""The catalog's schema and transactions."""

import json
import secrets
import sqlite3
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import TypeAdapter
from sqlalchemy import JSON, MetaData, bindparam, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from halving import InvalidInput, NotFound
from halving.errors import AlreadyExists
from resources.catalog import Base, Catalog, WriteLogRow, mask_password, retry, utcnow
from resources.catalog.catalog import newest_revision
from resources.catalog.models import models_of, versions_of
from resources.catalog.retry import is_transient
from resources.registry.events import events_of
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.gates import Gates, default_gates
from tests.backends import snapshot_row
from tests.postgres import Postgres

REVISIONS = [
    script.revision
    for script in ScriptDirectory(str(Path("resources/catalog/migrations").absolute())).walk_revisions()
]


def test_every_earlier_revision_upgrades_to_what_the_code_expects(any_catalog: str, catalog: Catalog) -> None:
    """Each step upwards leads to the tables that the steps downwards have left, so it does not matter where a
    catalog begins.
    """
    tables: dict[str, MetaData] = {}
    for revision in REVISIONS:
        command.downgrade(catalog.alembic(), revision)
        tables[revision] = MetaData()
        tables[revision].reflect(catalog.engine)
    command.downgrade(catalog.alembic(), "base")
    for revision in reversed(REVISIONS):
        command.upgrade(catalog.alembic(), revision)
        with catalog.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, tables[revision]) == [], revision
    command.downgrade(catalog.alembic(), "base")
    with closing(Catalog(any_catalog)) as again:
        with again.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, Base.metadata) == []
        assert set(Base.metadata.tables) <= set(inspect(again.engine).get_table_names())


def test_a_catalog_of_a_later_version_is_refused_and_not_touched(any_catalog: str, catalog: Catalog) -> None:
    with catalog.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    knows = (
        f"it has the schema 9999, and this version of Halving knows those up to {newest_revision()}; "
        "install the version"
    )
    with pytest.raises(InvalidInput, match=knows):
        Catalog(any_catalog)
    with catalog.write() as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
        session.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": newest_revision()})


def test_an_upgrade_keeps_what_is_in_the_write_log_and_counts_on(any_catalog: str, catalog: Catalog) -> None:
    entry = {"at": utcnow(), "actor": "ada", "method": "POST", "route": "-", "target": "/", "status": 403}
    with catalog.write() as session:
        session.execute(insert(WriteLogRow), [entry, entry])
    command.downgrade(catalog.alembic(), "0026")
    with catalog.write() as session:
        session.execute(text("UPDATE audit SET status = 404 WHERE id = 2"))
    with closing(Catalog(any_catalog)) as upgraded, upgraded.write() as session:
        session.execute(insert(WriteLogRow), [entry])
        rows = session.scalars(select(WriteLogRow).order_by(WriteLogRow.id)).all()
        assert [(row.id, row.actor, row.status) for row in rows] == [
            (1, "ada", 403),
            (2, "ada", 404),
            (3, "ada", 403),
        ]


def test_the_newest_revision_is_alembics_head() -> None:
    assert newest_revision() == REVISIONS[0]


def test_an_upgrade_makes_a_list_of_what_was_the_one_gate(any_catalog: str, catalog: Catalog) -> None:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    command.downgrade(catalog.alembic(), "0013")
    olds = [{"metric": "accuracy", "margin": 0.01}, {"margin": 0.0}, {}]
    with catalog.engine.begin() as connection:
        for place, old in enumerate(olds):
            spec = json.dumps({"name": "digits", "gates": old}).replace(":", r"\:")
            columns = "id, name, spec, spec_digest, snapshot, driver, ordinal, status, revision, created_at"
            values = (
                f"'s{place}', 'digits', '{spec}', 'd', 'sha256\\:a', 'job', {place}, 'finished', 0, "
                "'2026-01-01'"
            )
            connection.execute(text(f"INSERT INTO sweeps ({columns}) VALUES ({values})"))
    with closing(Catalog(any_catalog)) as again:
        with again.read() as session:
            gates = [again.sweep(session, f"s{place}").spec["gates"] for place in range(len(olds))]
        assert gates[0] == [
            {"finite_metrics": {}},
            {"lineage": {}},
            {"non_inferior": {"metric": "accuracy", "margin": 0.01}},
        ]
        assert (
            gates[1]
            == gates[2]
            == [gate.model_dump(mode="json", exclude_none=True) for gate in default_gates()]
        )
        assert all(TypeAdapter(Gates).validate_python(each) for each in gates)


def test_a_sweep_that_an_upgrade_finds_unfinished_is_resumed_by_the_same_spec(
    any_catalog: str, catalog: Catalog, small_spec: Callable[..., SweepSpec]
) -> None:
    """Its digest is of a version whose spec had fewer fields and other gates."""
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    spec = small_spec(
        serving={}, gates=[gate.model_dump(mode="json", exclude_none=True) for gate in default_gates()]
    )
    opened = open_sweep(catalog, spec, "sha256:a", driver="job", commit=None).id
    command.downgrade(catalog.alembic(), "0014")
    fields = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    old = {**{name: value for name, value in fields.items() if name != "serving"}, "gates": {}}
    with catalog.engine.begin() as connection:
        update = text("UPDATE sweeps SET spec_digest = 'sha256:old', spec = :spec")
        connection.execute(update.bindparams(bindparam("spec", old, type_=JSON)))
    with closing(Catalog(any_catalog)) as again:
        with pytest.raises(AlreadyExists, match="exists with another spec"):
            open_sweep(again, small_spec(seed=5), "sha256:a", driver="job", commit=None, sweep=opened)
        assert open_sweep(again, spec, "sha256:a", driver="job", commit=None, sweep=opened).id == opened
        assert open_sweep(again, small_spec(seed=5), "sha256:a", driver="job", commit=None).id != opened
        resumed = open_sweep(again, spec, "sha256:a", driver="job", commit=None)
        assert (resumed.id, resumed.spec_digest) == (opened, spec.digest)


def test_an_upgrade_makes_a_sweeps_name_its_project_and_what_runs_holds_its_gpus(
    any_catalog: str, catalog: Catalog
) -> None:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    command.downgrade(catalog.alembic(), "0016")
    columns = "id, name, spec, spec_digest, snapshot, driver, ordinal, status, revision, created_at"
    with catalog.engine.begin() as connection:
        spec = json.dumps({"resources": {"nodes": 2, "gpus": {"1": 1, "9": 4}}}).replace(":", r"\:")
        values = f"'s', 'digits', '{spec}', 'd', 'sha256\\:a', 'job', 0, 'searching', 0, '2026-01-01'"
        connection.execute(text(f"INSERT INTO sweeps ({columns}) VALUES ({values})"))
        for number, status in enumerate(("paused", "running")):
            values = f"'s', {number}, '{{}}', '{status}', 0, 1, 1"
            connection.execute(
                text(
                    "INSERT INTO trials (sweep, number, params, status, failures, attempt, seconds) "
                    f"VALUES ({values})"
                )
            )
    with closing(Catalog(any_catalog)) as again, again.read() as session:
        row = again.sweep(session, "s")
        assert (row.project, row.priority, row.waiting) == ("digits", 0, None)
        assert [trial.gpus for trial in again.trials(session, "s")] == [0, 8]


def test_an_upgrade_numbers_the_versions_that_there_are(any_catalog: str, catalog: Catalog) -> None:
    with catalog.write() as session:
        session.add(snapshot_row("sha256:a"))
    command.downgrade(catalog.alembic(), "0007")
    sweep = "'{}', 'digits', '{{}}', 'd', 'sha256:a', 'job', {}, 'finished', 0, '2026-01-01'"
    version = (
        "'digits', '{}', '{}', 'c', '{}', 0, 'r', 'sha256:a', 'torch', '{{}}', '{{}}', '{{}}', 'r', "
        "'2026-01-0{} 00:00:00'"
    )
    with catalog.engine.begin() as connection:
        for place, (name, stage) in enumerate(
            [("1.9.0", "archived"), ("1.10.0", "champion"), ("1.2.0", "staging")], 1
        ):
            columns = "id, name, spec, spec_digest, snapshot, driver, ordinal, status, revision, created_at"
            connection.execute(
                text(f"INSERT INTO sweeps ({columns}) VALUES ({sweep.format(f's{place}', place)})")
            )
            columns = (
                "model, version, stage, checkpoint, sweep, trial, run, snapshot, framework, input_schema, "
                "output_schema, metrics, report"
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
        assert [(row.version, row.kind, row.after) for row in events_of(session, "digits")] == [
            ("1.10.0", "promoted", "champion")
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


def test_writers_that_read_first_wait_for_each_other_instead_of_failing(
    any_catalog: str, catalog: Catalog
) -> None:
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
def test_a_password_is_in_no_error_and_no_log(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "CONNECT_SECONDS", 0.2)
    with pytest.raises((InvalidInput, DBAPIError)) as raised:
        Catalog(url)
    texts = "".join(traceback.format_exception(raised.value)) + caplog.text + mask_password(url)
    assert _SECRET not in texts
    assert "db" in texts or "127.0.0.1" in texts


def test_a_sweep_that_does_not_exist_is_answered_with_those_that_do(
    any_catalog: str, catalog: Catalog
) -> None:
    with (
        catalog.read() as session,
        pytest.raises(NotFound, match=r"no sweep 'digits-0000'.*the newest are \[\]"),
    ):
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
def test_a_fault_of_sqlite_is_waited_for_only_if_it_passes(
    tmp_path: Path, statement: str, file: str, passing: bool
) -> None:
    other = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    other.execute("CREATE TABLE t (x)")
    if passing:
        other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError) as raised:
        sqlite3.connect(f"file:{tmp_path}/{file}", uri=True, timeout=0).execute(statement)
    assert is_transient(OperationalError(statement, {}, raised.value)) is passing
    other.close()
