"""``halving doctor`` in the application: what Dagster's daemon does, and the whole table by the command."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus
from dagster._daemon.types import DaemonHeartbeat

from halving.doctor.checks import ERROR, OK, SKIPPED, WARNING
from pipelines.doctor import check_daemon, run_doctor
from resources.backend import Backend
from resources.catalog import SweepRow
from tests.searches import search

DAEMONS = ("SENSOR", "QUEUED_RUN_COORDINATOR")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    return home


def beat(home: Path, moment: float) -> None:
    with DagsterInstance.from_config(str(home)) as instance:
        for daemon in DAEMONS:
            instance.add_daemon_heartbeat(DaemonHeartbeat(moment, daemon, "one", []))


def test_a_daemon_that_is_silent_is_an_error_where_sweeps_wait_for_it(backend: Backend, small_spec: Any, home: Path) -> None:
    assert [found.level for found in check_daemon(home, backend.catalog)] == [OK], "it has never run, and nobody needs it"
    beat(home, time.time())
    assert [found.level for found in check_daemon(home, backend.catalog)] == [OK]
    later = time.time() + 3600
    (found,) = check_daemon(home, backend.catalog, lambda: later)
    assert (found.level, "last heard of 1.0 h ago" in found.what) == (WARNING, True)
    sweep = search(backend, small_spec(max_trials=1), lambda trial, params, epochs: {"score": 0.0})
    with backend.catalog.write() as session:
        row = session.get_one(SweepRow, sweep)
        row.driver, row.status = "sensors", "searching"
    (found,) = check_daemon(home, backend.catalog, lambda: later)
    assert (found.level, found.means, "dagster-daemon run" in found.mend) == (ERROR, "1 open sweeps stand still", True)


def test_a_sensor_that_is_switched_off_is_named(backend: Backend, home: Path) -> None:
    beat(home, time.time())
    origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "all").get_instigator_origin("start_trials")
    with DagsterInstance.from_config(str(home)) as instance:
        instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.STOPPED))
    _, found = check_daemon(home, backend.catalog)
    assert (found.level, "start_trials" in found.what, "dagster sensor start start_trials" in found.mend) == (WARNING, True, True)


def test_the_command_makes_all_checks_and_says_by_its_status_whether_something_does_not_work(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HALVING_CATALOG", "HALVING_CLUSTER", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    arguments = argparse.Namespace(root=backend.store.root, all=False, repair=False, json=True)
    assert run_doctor(arguments) == 0
    told = json.loads(capsys.readouterr().out)["findings"]
    assert [found["check"] for found in told] == [
        *("store", "clock", "disk", "permissions", "journals", "digests"),
        *("catalog", "database", "db-clock", "files", "published", "index", "dagster", "cluster"),
    ]
    assert {found["level"] for found in told} <= {OK, WARNING}, told
    catalog = Path(backend.store.root, "catalog.db")
    catalog.write_bytes(b"no database" * 1000)
    assert run_doctor(arguments) == 1
    told = {found["check"]: found["level"] for found in json.loads(capsys.readouterr().out)["findings"]}
    assert (told["catalog"], told["index"], told["store"]) == (ERROR, SKIPPED, OK)
