"""Dagster's daemon with the sensors, as in production: whole sweeps, launched before the daemon starts."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest
import yaml
from sqlalchemy import select

from halving import curves
from resources.analysis.training_run import training_run
from resources.backend import Backend
from resources.catalog import ModelVersionRow, SweepRow
from resources.datasets.snapshots import take_snapshot
from resources.scheduling import intents
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.training_runs import first_run, spec_of, spec_of_restored
from resources.search.state import Status
from resources.sweep_spec import SweepSpec, parse_spec
from tests.backends import SMALL, Dagster
from tests.ports import free_port
from tests.waiting import wait_while_running

# One daemon for all: starting it, and what it does every few seconds, takes longer than the sweeps.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.xdist_group("daemon")]

ENDED = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


class Daemon(NamedTuple):
    """A daemon, and what was launched before it: a training run, and a sweep with killed trials."""

    dagster: Dagster
    process: Any
    log: Path
    training_run: str
    killed: str

    @property
    def backend(self) -> Backend:
        return self.dagster.backend


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    dagster = Dagster(folder)
    log = folder / "daemon.log"
    backend = dagster.backend
    killed = {
        **SMALL,
        "trainable": "tests.trainables:train_crashing",
        "max_trials": 3,
        "strategy": {"asha": {"sampler": "random", "min_budget": 2, "max_budget": 6}},
    }
    snapshot = take_snapshot(backend.store, backend.catalog, parse_spec(SMALL).dataset)
    objective = {"metric": "score", "direction": "maximize"}
    single = spec_of(
        snapshot,
        project="single",
        params={"x": 0.4},
        epochs=3,
        trainable="tests.trainables:train",
        objective=objective,
    )
    intents = [ask(backend, single), ask(backend, parse_spec(killed))]
    assert training_run(backend.catalog, backend.store, "single", first_run(intents[0])).status == "waiting"
    # The code location has a server of its own: the daemon's would be started, and import everything, anew
    # each minute.
    port = free_port()
    (folder / "workspace.yaml").write_text(
        yaml.safe_dump({"load_from": [{"grpc_server": {"port": port, "location_name": "halving"}}]})
    )
    code = dagster.start(
        "api", "grpc", "-m", "pipelines.definitions", "-p", str(port), log=folder / "code.log"
    )
    try:
        wait_while_running(code, lambda: _is_open(port), folder / "code.log", "the code location is served")
        process = dagster.start(
            "run", "-w", str(folder / "workspace.yaml"), module="dagster._daemon", log=log
        )
        try:
            yield Daemon(dagster, process, log, first_run(intents[0]), intents[1])
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(150)
    finally:
        os.killpg(code.pid, signal.SIGTERM)
        code.wait(150)


def ask(backend: Backend, spec: SweepSpec) -> str:
    """As the API does; gives the sweep that there will be."""
    with backend.catalog.write() as session:
        return intents.add(session, spec, kind="study", driver="sensors", actor="ada").sweep


def test_training_runs_launched_before_dagster_starts_run_then_and_can_be_restored(
    daemon: Daemon,
) -> None:
    backend = daemon.backend

    def has_finished(run: str) -> bool:
        return training_run(backend.catalog, backend.store, "single", run).status == "finished"

    wait_while_running(
        daemon.process, lambda: has_finished(daemon.training_run), daemon.log, "the training run"
    )
    restored = first_run(
        ask(backend, spec_of_restored(backend.catalog, backend.store, "single", daemon.training_run, 3, 5))
    )
    wait_while_running(daemon.process, lambda: has_finished(restored), daemon.log, "the restored run")
    wait_while_running(
        daemon.process,
        lambda: set(statuses(backend, "single")) == {"finished"},
        daemon.log,
        "the end of both sweeps",
    )
    again = training_run(backend.catalog, backend.store, "single", restored)
    assert [checkpoint["epoch"] for checkpoint in again.checkpoints] == [4, 5]
    assert (again.restored_from or {})["run"] == daemon.training_run
    assert Scheduler(backend.catalog, again.sweep).state().trials[0].status is Status.COMPLETED
    assert len(statuses(backend, "single")) == 2


def test_a_whole_sweep_runs_through_the_sensors_with_every_trial_killed_once(daemon: Daemon) -> None:
    backend = daemon.backend
    wait_while_running(
        daemon.process,
        lambda: statuses(backend, SMALL["name"]) == ["finished"],
        daemon.log,
        "the sweep finishes",
    )
    with dg.DagsterInstance.from_config(str(daemon.dagster.home)) as instance:
        # The run that finishes it still writes its last events.
        wait_while_running(
            daemon.process,
            lambda: {run.status for run in instance.get_runs()} <= ENDED,
            daemon.log,
            "all runs end",
        )
        runs = [run for run in instance.get_runs() if daemon.killed in run.tags.get("dagster/partition", "")]
        materialized = {
            asset: [
                record.partition_key
                for record in instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
            ]
            for asset in ("trial", "evaluation_report", "promoted_checkpoint")
        }
    with backend.catalog.read() as session:
        sweep = backend.catalog.sweep(session, daemon.killed)
        (version,) = session.scalars(select(ModelVersionRow))
        trials = backend.catalog.trials(session, sweep.id)
    assert (sweep.driver, sweep.status, version.sweep, version.stage) == (
        "sensors",
        "finished",
        sweep.id,
        "champion",
    )
    assert [trial.failures for trial in trials] == [1, 1, 1]
    assert sorted(trial.status for trial in trials) == ["completed", "paused", "paused"]
    for trial in trials:
        points = curves(
            [f"{sweep.id}.{trial.number:04d}"], "score", project="small", root=backend.store, attempts="raw"
        )
        steps = points["step"].to_pylist()
        assert sorted(steps) == list(range(1, len(steps) + 1)), "an epoch was trained twice or not at all"
    keys = [run.tags["dagster/run_key"] for run in runs if run.job_name == "run_trial"]
    assert len(keys) == len(set(keys)) == sum(trial.attempt for trial in trials)
    failed = [run for run in runs if run.status is dg.DagsterRunStatus.FAILURE]
    assert len(failed) == 3
    of_trials = [key for key in materialized["trial"] if str(key).startswith(sweep.id)]
    assert len(of_trials) == 4  # three trials at the first rung, one of them at the second
    assert [
        materialized[asset].count(sweep.id) for asset in ("evaluation_report", "promoted_checkpoint")
    ] == [1, 1]


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60):
        return True
    return False


def statuses(backend: Backend, project: str) -> list[str]:
    """Of the sweeps of a project."""
    with backend.catalog.read() as session:
        return list(session.scalars(select(SweepRow.status).where(SweepRow.project == project)))
