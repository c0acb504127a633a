"""A rerun of a trial: the job and the command leave its verdict with the trial in Dagster."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from halving.cli.main import main
from pipelines.definitions import defs
from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from tests.backends import CHECKOUT
from tests.resources.execution.worked_sweeps import WorkedSweep


@pytest.mark.slow
def test_the_job_and_the_command_leave_the_verdict_as_an_observation_of_the_trial(
    backend: Backend,
    small_spec: Callable[..., SweepSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran = WorkedSweep(backend, small_spec(max_trials=1)).work()
    key = f"{ran.sweep}.0000"
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copy(CHECKOUT / "dagster.yaml", home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    command = ["rerun", key, "--repository", str(CHECKOUT), "--root", backend.store.root, "--json"]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["verdict"], printed["trial"]) == ("identical", True)
    config = {"ops": {"train_again": {"config": {"run": key, "repository": str(CHECKOUT)}}}}
    job = defs.resolve_job_def("rerun")
    with dg.DagsterInstance.from_config(str(home)) as of_command, dg.DagsterInstance.ephemeral() as of_job:
        assert job.execute_in_process(
            run_config=config, resources={"backend": backend}, instance=of_job
        ).success
        for instance in (of_command, of_job):
            (record,) = instance.fetch_observations(dg.AssetKey("trial"), limit=5).records
            observed = record.event_log_entry.asset_observation or pytest.fail("no observation")
            assert (observed.partition, observed.metadata["rerun"].value) == (key, "identical")


def test_the_job_fails_with_the_name_of_what_is_gone(backend: Backend, tmp_path: Path) -> None:
    job = defs.resolve_job_def("rerun")
    config = {"ops": {"train_again": {"config": {"run": "nothing.0000"}}}}
    done = job.execute_in_process(run_config=config, resources={"backend": backend}, raise_on_error=False)
    assert not done.success
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    assert "no run 'nothing.0000'" in str(failure.step_failure_data.user_failure_data.description)
