"""Pausing, resuming, stopping and extending a sweep: the jobs in Dagster's UI, and the commands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from halving.cli import main as cli
from pipelines.controls import extend_sweep, pause_sweep, resume_sweep, stop_sweep
from resources.backend import Backend
from resources.scheduling import intents
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Finish, Wait
from resources.search.state import Control
from resources.sweep_spec import SweepSpec
from tests.backends import snapshot_row


@pytest.fixture
def scheduler(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Scheduler:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    row = open_sweep(backend.catalog, small_spec(max_trials=3), "sha256:s", driver="job", commit=None)
    return Scheduler(backend.catalog, row.id)


def execute(job: dg.JobDefinition, backend: Backend, **config: Any) -> dg.ExecuteInProcessResult:
    (op,) = job.graph.node_dict
    return job.execute_in_process(run_config={"ops": {op: {"config": config}}}, resources={"backend": backend}, raise_on_error=False)


def halving(capsys: pytest.CaptureFixture[str], backend: Backend, *arguments: str) -> tuple[int, str, str]:
    status = cli.main([*arguments, "--root", str(backend.root)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_jobs_pause_resume_extend_and_stop_a_sweep(backend: Backend, scheduler: Scheduler) -> None:
    given = scheduler.next_work("w")
    assert isinstance(given, Assignment)
    assert execute(pause_sweep, backend, sweep=scheduler.id).success
    assert isinstance(scheduler.next_work("w"), Wait)
    assert scheduler.heartbeat(given) is Control.PAUSE
    assert execute(resume_sweep, backend, sweep=scheduler.id).success
    assert isinstance(scheduler.next_work("w"), Assignment)
    assert execute(extend_sweep, backend, sweep=scheduler.id, max_trials=5).success
    assert scheduler.state().max_trials == 5
    assert execute(stop_sweep, backend, sweep=scheduler.id).success
    assert scheduler.heartbeat(given) is Control.STOP


@pytest.mark.parametrize(
    ("job", "config", "reason"),
    [
        (pause_sweep, {"sweep": "nosuch-1234"}, "no sweep 'nosuch-1234'"),
        (extend_sweep, {"sweep": "SWEEP", "max_trials": 3}, "max_trials = 3 is not accepted: give more than the 3 of now"),
    ],
)
def test_a_job_says_what_is_wrong_with_what_it_was_given(
    backend: Backend, scheduler: Scheduler, job: dg.JobDefinition, config: dict[str, Any], reason: str
) -> None:
    config = {name: scheduler.id if value == "SWEEP" else value for name, value in config.items()}
    result = execute(job, backend, **config)
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert reason in str(failed.event_specific_data)


def test_the_commands_do_the_same_and_say_what_follows(backend: Backend, scheduler: Scheduler, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = halving(capsys, backend, "pause", scheduler.id)
    assert (status, f"halving resume {scheduler.id}" in out) == (0, True)
    assert isinstance(scheduler.next_work("w"), Wait)
    status, out, _ = halving(capsys, backend, "resume", scheduler.id, "--json")
    assert json.loads(out) == {"sweep": scheduler.id, "status": "searching", "control": "run", "max_trials": None}
    status, out, _ = halving(capsys, backend, "extend", scheduler.id, "--max-trials", "4")
    assert (status, "4 trials in all" in out) == (0, True)
    status, out, _ = halving(capsys, backend, "stop", scheduler.id)
    assert status == 0
    assert isinstance(scheduler.next_work("w"), Finish)
    status, _, err = halving(capsys, backend, "pause", scheduler.id)
    assert status != 0
    assert f"sweep {scheduler.id} is failed: its search is over" in err


def test_stop_withdraws_a_sweep_that_waits_for_dagster_and_says_so(
    backend: Backend, small_spec: Callable[..., SweepSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    with backend.catalog.write() as session:
        sweep = intents.add(session, small_spec(), kind="study", driver="sensors", actor="ada").sweep
    status, out, _ = halving(capsys, backend, "stop", sweep)
    assert (status, f"sweep {sweep} was not open yet" in out) == (0, True)
    status, out, _ = halving(capsys, backend, "stop", sweep, "--json")
    assert json.loads(out) == {"sweep": sweep, "status": "canceled", "control": "stop", "max_trials": None}
    assert execute(stop_sweep, backend, sweep=sweep).success
    intent = intents.of_sweep(backend.catalog, sweep)
    assert intent is not None
    assert "halving stop before it began" in str(intent.error)


def test_check_tells_what_may_be_unwise_and_what_is_wrong(
    backend: Backend, tmp_path: Path, small_spec: Callable[..., SweepSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(small_spec(training={"warmup_epochs": 2}).canonical_json())
    status, out, _ = halving(capsys, backend, "check", str(path))
    assert status == 0
    assert "small is in order: asha, up to 9 trials, rungs at 1, 3, 9 epochs" in " ".join(out.split())
    assert "warmup" in out
    path.write_text(path.read_text().replace("tests.trainables:train", "tests.trainables:trian"))
    status, _, err = halving(capsys, backend, "check", str(path))
    assert status != 0
    assert "trian" in err
