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
from resources.registry.by_hand import user
from resources.scheduling import intents
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Finish, Wait
from resources.search.state import Control
from resources.sweep_spec import SweepSpec
from resources.tenancy.gpu_hours import gpu_hours_of
from resources.tenancy.projects import set_project
from tests.backends import snapshot_row
from tests.searches import search


@pytest.fixture
def scheduler(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Scheduler:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    row = open_sweep(backend.catalog, small_spec(max_trials=3), "sha256:s", driver="job", commit=None)
    return Scheduler(backend.catalog, row.id)


def execute(job: dg.JobDefinition, backend: Backend, **config: Any) -> dg.ExecuteInProcessResult:
    (op,) = job.graph.node_dict
    return job.execute_in_process(
        run_config={"ops": {op: {"config": config}}}, resources={"backend": backend}, raise_on_error=False
    )


def halving(capsys: pytest.CaptureFixture[str], backend: Backend, *arguments: str) -> tuple[int, str, str]:
    status = cli.main([*arguments, "--root", str(backend.root)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_jobs_pause_resume_extend_and_stop_a_sweep(backend: Backend, scheduler: Scheduler) -> None:
    assignment = scheduler.next_work("w")
    assert isinstance(assignment, Assignment)
    assert execute(pause_sweep, backend, sweep=scheduler.id).success
    assert isinstance(scheduler.next_work("w"), Wait)
    assert scheduler.heartbeat(assignment) is Control.PAUSE
    assert execute(resume_sweep, backend, sweep=scheduler.id).success
    assert isinstance(scheduler.next_work("w"), Assignment)
    assert execute(extend_sweep, backend, sweep=scheduler.id, max_trials=5).success
    assert scheduler.state().max_trials == 5
    assert execute(stop_sweep, backend, sweep=scheduler.id).success
    assert scheduler.heartbeat(assignment) is Control.STOP


@pytest.mark.parametrize(
    ("job", "config", "reason"),
    [
        (pause_sweep, {"sweep": "nosuch-1234"}, "no sweep 'nosuch-1234'"),
        (
            extend_sweep,
            {"sweep": "SWEEP", "max_trials": 3},
            "max_trials = 3 is not accepted: give more than the 3 of now",
        ),
    ],
)
def test_a_job_says_what_is_wrong_with_what_it_was_given(
    backend: Backend, scheduler: Scheduler, job: dg.JobDefinition, config: dict[str, Any], reason: str
) -> None:
    config = {name: scheduler.id if value == "SWEEP" else value for name, value in config.items()}
    result = execute(job, backend, **config)
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert reason in str(failed.event_specific_data)


def test_the_commands_do_the_same_and_say_what_follows(
    backend: Backend, scheduler: Scheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = halving(capsys, backend, "pause", scheduler.id)
    assert (status, f"halving resume {scheduler.id}" in out) == (0, True)
    assert isinstance(scheduler.next_work("w"), Wait)
    status, out, _ = halving(capsys, backend, "resume", scheduler.id, "--json")
    assert json.loads(out) == {
        "sweep": scheduler.id,
        "status": "searching",
        "control": "run",
        "max_trials": None,
    }
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
    assert f"canceled by {user()} before it began" in str(intent.error)


def test_check_tells_what_may_be_unwise_and_what_is_wrong(
    backend: Backend, tmp_path: Path, small_spec: Callable[..., SweepSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(small_spec(training={"warmup_epochs": 2}).canonical_json())
    status, out, _ = halving(capsys, backend, "check", str(path))
    assert status == 0
    assert "small is in order: asha, up to 9 trials, rungs at 1, 3, 9 epochs" in " ".join(out.split())
    assert "at its largest: 2 processes, 2 cores for 2 trials at a time" in out
    assert "project small: no GPU-hours (it asks for no GPU)" in out
    assert "warmup" in out
    path.write_text(path.read_text().replace("tests.trainables:train", "tests.trainables:trian"))
    status, _, err = halving(capsys, backend, "check", str(path))
    assert status != 0
    assert "trian" in err


def test_check_says_the_gpu_hours_of_a_launch_and_refuses_what_the_launch_refuses(
    backend: Backend, tmp_path: Path, small_spec: Callable[..., SweepSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    def check_spec(*options: str, root: Backend = backend, **changes: Any) -> tuple[int, str, str]:
        fields = {
            "project": "vision",
            "resources": {"gpus": 1},
            "strategy": {"random": {"budget": 2}},
            **changes,
        }
        path = tmp_path / "spec.json"
        path.write_text(small_spec(**fields).canonical_json())
        status, out, err = halving(capsys, root, "check", str(path), *options)
        return status, " ".join(out.split()), " ".join(err.split())

    nowhere = Backend(root=str(tmp_path / "nowhere"))
    status, out, _ = check_spec(root=nowhere, max_trials=2)
    assert (status, "project vision: unknown GPU-hours (no sweep 'small' has a result yet" in out) == (
        0,
        True,
    )
    assert not Path(str(nowhere.root)).exists(), "nothing is made to look"
    spec = small_spec(
        project="vision", resources={"gpus": 1}, strategy={"random": {"budget": 2}}, max_trials=1
    )
    sweep = search(backend, spec, lambda trial, params, epochs: {"score": 1.0}, seconds=3600.0)
    status, out, _ = check_spec(max_trials=2)
    said = (
        "project vision: about 4 GPU-hours (4 epochs times GPUs, as early stopping leaves them, at "
        f"3.6e+03 s an epoch as in {sweep})"
    )
    assert (status, out.endswith(said)) == (0, True), out
    set_project(backend.catalog, "vision", gpu_hours=10.0)
    with backend.catalog.read() as session:
        left = gpu_hours_of(session, "vision", backend.catalog.now())
    assert left is not None
    status, out, _ = check_spec(max_trials=2)
    assert (status, f"{said}; it has {left.left:.4g} of its 10 GPU-hours left this month" in out) == (0, True)
    status, out, _ = check_spec("--json", max_trials=2)
    hours = json.loads(out)["gpu_hours"]
    assert hours == {
        "project": "vision",
        "expected": 4.0,
        "how": hours["how"],
        "quota": 10.0,
        "left": left.left,
        "others": 0.0,
    }
    refused = check_spec(max_trials=6)
    assert refused[:2] == (1, "")
    assert "max_trials = 6 is not accepted: the sweep would take about 12 GPU-hours" in refused[2]
    assert (
        f"project vision has {left.left:.4g} of its 10 GPU-hours left this month: give fewer trials"
        in refused[2]
    )
    assert check_spec("--json", max_trials=6)[:2] == (1, "")
    larger = small_spec(
        project="vision", resources={"gpus": 1}, strategy={"random": {"budget": 2}}, max_trials=6
    )
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    for driver, status in (("sensors", 1), ("job", 0)):
        open_sweep(backend.catalog, larger, "sha256:s", driver=driver, commit=None)
        assert check_spec(max_trials=6)[0] == status, (
            "what goes on with the sweep of an earlier `halving sweep` is not refused"
        )
