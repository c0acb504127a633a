"""``halving doctor`` in the application: what Dagster's daemon does, and the whole table by the command."""

import argparse
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from alembic import command
from dagster import DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, ScheduleInstigatorData
from dagster._daemon.types import DaemonHeartbeat
from sqlalchemy import text

from commands.doctor import SENSORS, check_daemon, run_doctor
from halving.doctor.checks import ERROR, OK, SKIPPED, WARNING
from pipelines import sensors
from resources.backend import Backend
from resources.catalog import Catalog, SweepRow
from resources.catalog.catalog import newest_revision
from resources.tenancy.projects import list_projects, set_project
from tests.commands.shell import Shell
from tests.searches import search

DAEMONS = ("SENSOR", "QUEUED_RUN_COORDINATOR")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    return home


def beat(home: Path, seconds: float) -> None:
    with DagsterInstance.from_config(str(home)) as instance:
        for daemon in DAEMONS:
            instance.add_daemon_heartbeat(DaemonHeartbeat(seconds, daemon, "one", []))


def test_a_daemon_that_is_silent_is_an_error_where_sweeps_wait_for_it(
    backend: Backend, small_spec: Any, home: Path
) -> None:
    assert [finding.level for finding in check_daemon(home, backend.catalog)] == [OK], (
        "it has never run, and nobody needs it"
    )
    beat(home, time.time())
    assert [finding.level for finding in check_daemon(home, backend.catalog)] == [OK]
    later = time.time() + 3600
    (finding,) = check_daemon(home, backend.catalog, lambda: later)
    assert (finding.level, "last heard of 1.0 h ago" in finding.what) == (WARNING, True)
    sweep = search(backend, small_spec(max_trials=1), lambda trial, params, epochs: {"score": 0.0})
    with backend.catalog.write() as session:
        row = session.get_one(SweepRow, sweep)
        row.driver = "sensors"
        row.status = "searching"
    (finding,) = check_daemon(home, backend.catalog, lambda: later)
    assert (finding.level, finding.means, "dagster-daemon run" in finding.mend) == (
        ERROR,
        "1 open sweeps stand still",
        True,
    )


def test_a_sensor_that_is_switched_off_is_named(backend: Backend, home: Path) -> None:
    beat(home, time.time())
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "all").get_instigator_origin(
        "start_trials"
    )
    optional = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "all").get_instigator_origin(
        "nightly_backup"
    )
    data = ScheduleInstigatorData("40 2 * * *")
    with DagsterInstance.from_config(str(home)) as instance:
        instance.add_instigator_state(
            InstigatorState(optional, InstigatorType.SCHEDULE, InstigatorStatus.STOPPED, data)
        )
        assert [finding.level for finding in check_daemon(home, backend.catalog)] == [OK], (
            "a schedule that nobody needs"
        )
        instance.add_instigator_state(
            InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.STOPPED)
        )
    _, finding = check_daemon(home, backend.catalog)
    assert (
        finding.level,
        "start_trials" in finding.what,
        "dagster sensor start start_trials" in finding.mend,
    ) == (
        WARNING,
        True,
        True,
    )


def test_the_sensors_that_sweeps_need_are_those_of_the_application() -> None:
    assert [getattr(sensors, name).name for name in SENSORS] == list(SENSORS)


def test_the_command_makes_all_checks_and_its_status_says_whether_there_is_an_error(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HALVING_CATALOG", "HALVING_CLUSTER", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    arguments = argparse.Namespace(root=backend.store.root, all=False, repair=False, json=True)
    assert run_doctor(arguments) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [finding["check"] for finding in findings] == [
        *("store", "clock", "disk", "permissions", "journals", "cold", "digests"),
        *(
            "catalog",
            "database",
            "db-clock",
            "files",
            "snapshots",
            "published",
            "index",
            "dagster",
            "cluster",
        ),
    ]
    assert {finding["level"] for finding in findings} <= {OK, WARNING}, findings
    catalog = Path(backend.store.root, "catalog.db")
    catalog.write_bytes(b"no database" * 1000)
    assert run_doctor(arguments) == 1
    findings = {
        finding["check"]: finding["level"] for finding in json.loads(capsys.readouterr().out)["findings"]
    }
    assert (findings["catalog"], findings["index"], findings["store"]) == (ERROR, SKIPPED, OK)


class Looked(NamedTuple):
    """What ``halving doctor --json`` says of the catalog."""

    status: int
    level: str
    what: str
    database: str


def look(shell: Shell, *options: str) -> Looked:
    status, out, _ = shell.run("doctor", "--json", *options)
    findings = {finding["check"]: finding for finding in json.loads(out)["findings"]}
    return Looked(
        status, findings["catalog"]["level"], findings["catalog"]["what"], findings["database"]["level"]
    )


@pytest.mark.slow
def test_an_older_schema_is_a_warning_and_repair_upgrades_it_with_its_rows(
    tmp_path: Path, any_catalog: str
) -> None:
    shell = Shell(tmp_path)
    head = newest_revision()
    shell.environment["HALVING_CATALOG"] = any_catalog
    with closing(Catalog(any_catalog)) as catalog:
        set_project(catalog, "vision", max_trials=3)
        command.downgrade(catalog.alembic(), "0019")
    for _ in range(2):  # looking upgrades nothing
        looked = look(shell)
        assert (looked.status, looked.level, looked.database) == (0, WARNING, SKIPPED)
        assert f"has the schema 0019, and this version of Halving has {head}" in looked.what
    repaired = look(shell, "--repair")
    assert (repaired.status, repaired.level, repaired.database) == (0, OK, OK)
    assert look(shell) == Looked(0, OK, repaired.what, OK)
    assert f"has the schema of this version ({head})" in repaired.what
    with closing(Catalog(any_catalog)) as catalog:
        assert [(line.name, line.max_trials) for line in list_projects(catalog)] == [("vision", 3)]


@pytest.mark.slow
def test_a_later_schema_is_an_error_that_repair_leaves_alone_and_stops_commands(
    tmp_path: Path, any_catalog: str
) -> None:
    shell = Shell(tmp_path)
    head = newest_revision()
    shell.environment["HALVING_CATALOG"] = any_catalog
    with closing(Catalog(any_catalog)) as catalog:
        with catalog.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        for options in ([], ["--repair"]):
            looked = look(shell, *options)
            assert (looked.status, looked.level, looked.database) == (1, ERROR, SKIPPED)
            assert f"has the schema 9999, and this version of Halving knows those up to {head}" in looked.what
        status, out, err = shell.run("leaderboard")
        assert (status, out) == (1, "")
        assert (
            f"it has the schema 9999, and this version of Halving knows those up to {head}; install the "
            "version"
        ) in err
        assert "Traceback" not in err
        with catalog.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": head})
