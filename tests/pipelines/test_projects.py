"""Projects by command and by job: what is set is shown, and a wrong value is one clear error."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import update

from commands.shared import newest_sweep
from halving.cli import main as cli
from pipelines.definitions import defs
from pipelines.projects import set_project
from pipelines.sensors import start_trials
from resources.backend import Backend
from resources.catalog import AttemptRow, SweepRow, utcnow
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import list_projects, rename_project, show_project
from resources.tenancy.projects import set_project as set_limits
from tests.backends import snapshot_row


def halving(capsys: pytest.CaptureFixture[str], backend: Backend, *arguments: str) -> tuple[int, str, str]:
    status = cli.main([*arguments, "--root", str(backend.root)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_commands_set_show_list_and_rename_a_project(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "every project has the weight 1 and no quota" in halving(capsys, backend, "projects", "list")[1]
    wanted = (
        "--owner",
        "ann",
        "--weight",
        "2",
        "--max-trials",
        "8",
        "--max-gpus",
        "16",
        "--gpu-hours",
        "1000",
    )
    status, said, err = halving(capsys, backend, "projects", "set", "vision", *wanted)
    assert (status, err) == (0, "")
    assert (
        "project vision, weight 2\ntrials: 0 of 8\nGPUs: 0 of 16\nGPU-hours a month: 1000, of which 0 are "
        "used\n"
    ) in said
    assert "owners: ann" in said
    assert "owners" not in halving(capsys, backend, "projects", "set", "vision", "--owner", "none")[1]
    assert show_project(backend.catalog, "vision").owners == []
    assert halving(capsys, backend, "projects", "set", "vision", "--max-gpus", "none")[0] == 0
    assert halving(capsys, backend, "projects", "set", "*", "--max-trials", "64")[0] == 0
    assert (
        "specs that say vision still mean it"
        in halving(capsys, backend, "projects", "rename", "vision", "perception")[1]
    )
    data = json.loads(halving(capsys, backend, "projects", "list", "--json")[1])
    whole, project = data["projects"]
    assert (whole["name"], whole["max_trials"]) == ("*", 64)
    assert (project["name"], project["max_trials"], project["max_gpus"], project["former_names"]) == (
        "perception",
        8,
        None,
        ["vision"],
    )
    assert json.loads(halving(capsys, backend, "projects", "show", "vision", "--json")[1]) == project
    assert (project["gpu_hours_used"], whole["gpu_hours_used"]) == (0.0, None)
    assert "no limit" in halving(capsys, backend, "projects", "list")[1]
    status, said, err = halving(capsys, backend, "projects", "unset", "perception")
    assert (status, said, err) == (
        0,
        "nothing is set for project perception any more. It still has the names vision, too.\n",
        "",
    )
    assert halving(capsys, backend, "projects", "unset", "*")[1] == "nothing is set for project * any more.\n"
    assert [line.max_trials for line in list_projects(backend.catalog)] == [None]


def test_the_list_has_gpus_that_wait_for_a_device_and_the_hours_of_this_month(
    backend: Backend, capsys: pytest.CaptureFixture[str], small_spec: Callable[..., SweepSpec]
) -> None:
    set_limits(backend.catalog, "vision", gpu_hours=10.0)
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    spec = small_spec(project="vision", resources={"gpus": 2})
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, "sha256:s", driver="job", commit=None).id
    )
    trains = scheduler.next_work("a")
    waits = scheduler.next_work("b")
    assert isinstance(trains, Assignment)
    assert isinstance(waits, Assignment)
    scheduler.note_waiting(waits, "0 of the 2 GPUs that it needs are free")
    with backend.catalog.write() as session:
        session.execute(
            update(AttemptRow)
            .where(AttemptRow.trial == trains.trial)
            .values(held_since=utcnow() - timedelta(minutes=1))
        )
    (row,) = (
        line for line in halving(capsys, backend, "projects", "list")[1].splitlines() if "vision" in line
    )
    assert "4 (2 waiting)" in row
    (project,) = json.loads(halving(capsys, backend, "projects", "list", "--json")[1])["projects"]
    assert (project["gpus"], project["gpus_waiting"]) == (4, 2)
    assert 0 < project["gpu_hours_used"] < 1
    assert "GPUs: 4 (2 waiting) of no limit" in halving(capsys, backend, "projects", "show", "vision")[1]
    scheduler.note_waiting(waits, None)
    assert "waiting)" not in halving(capsys, backend, "projects", "list")[1]


def test_the_command_that_runs_a_sweep_shows_that_of_its_project_by_each_name(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    sweeps = {
        project: open_sweep(
            backend.catalog, small_spec(project=project), "sha256:s", driver="job", commit=None
        ).id
        for project in ("vision", "speech")
    }
    rename_project(backend.catalog, "vision", "sight")
    newest = {
        project: newest_sweep(backend, small_spec(project=project, priority=3))
        for project in ("vision", "sight", "speech", "other")
    }
    assert newest == {
        "vision": sweeps["vision"],
        "sight": sweeps["vision"],
        "speech": sweeps["speech"],
        "other": None,
    }
    assert newest_sweep(backend) == sweeps["speech"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("set", "vision", "--weight", "0"),
            "halving projects: weight = 0.0 is not accepted: give a number from 0.001 to 1000",
        ),
        (("set", "vision"), "halving projects: nothing is given for project 'vision'"),
        (("set", "a/b", "--weight", "1"), "halving projects: project 'a/b' is not accepted"),
        (
            ("set", "vision", "--owner", "none", "--owner", "ann"),
            "halving projects: owner = 'none' is not accepted beside others",
        ),
        (("unset", "nobody"), "halving projects: nothing was set for project 'nobody'"),
        (("show", "nobody"), "halving projects: no project 'nobody' in the catalog"),
        (("rename", "nobody", "new"), "halving projects: no project 'nobody' in the catalog"),
    ],
)
def test_a_wrong_input_is_one_error(
    backend: Backend, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    status, out, err = halving(capsys, backend, "projects", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_the_job_sets_and_renames_a_project_and_says_what_is_wrong(backend: Backend) -> None:
    def execute(**config: Any) -> dg.ExecuteInProcessResult:
        run_config = {"ops": {"change_project": {"config": config}}}
        return set_project.execute_in_process(
            run_config=run_config, resources={"backend": backend}, raise_on_error=False
        )

    assert execute(project="vision", owners=["ann"], max_gpus=8, weight=2.0).success
    assert execute(project="vision", max_gpus=-1, max_trials=4, rename_to="perception").success
    line = show_project(backend.catalog, "perception")
    assert (line.owners, line.weight, line.max_trials, line.max_gpus) == (["ann"], 2.0, 4, None)
    assert execute(project="perception", unset=True, max_trials=2).success
    line = show_project(backend.catalog, "perception")
    assert (line.owners, line.weight, line.max_trials, line.former_names) == ([], 1.0, 2, ["vision"])
    assert execute(project="typo", weight=2.0).success
    assert execute(project="typo", unset=True).success
    assert [line.name for line in list_projects(backend.catalog)] == ["perception"]
    failed = [event for event in execute(project="vision", weight=-1.0).all_events if event.is_step_failure]
    assert "weight = -1.0 is not accepted" in str(failed[0].event_specific_data)


def test_a_tick_shares_the_places_out_by_weight_whichever_sweep_it_looks_at_first(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    set_limits(backend.catalog, "*", max_trials=3)
    set_limits(backend.catalog, "heavy", weight=3)
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
    ids = {
        name: open_sweep(
            backend.catalog, small_spec(name=name, concurrency=2), "sha256:s", driver="sensors", commit=None
        ).id
        for name in ("aaa", "heavy")
    }
    with dg.DagsterInstance.ephemeral() as instance:
        trials = [f"{sweep}.{number:04d}" for sweep in ids.values() for number in range(4)]
        instance.add_dynamic_partitions("trials", trials)
        context = dg.build_sensor_context(instance=instance, resources={"backend": backend}, definitions=defs)
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            started = list(start_trials.evaluate_tick(context).run_requests or [])
    assert sorted(request.tags["halving/sweep"] for request in started) == sorted(
        [ids["aaa"], *[ids["heavy"]] * 2]
    )
    with backend.catalog.read() as session:
        waiting = session.get_one(SweepRow, ids["aaa"]).waiting or ""
    assert "project aaa holds 1 places and 0 GPUs, weight 1" in waiting
    assert {line.name: line.trials for line in list_projects(backend.catalog)} == {
        "*": 3,
        "aaa": 1,
        "heavy": 2,
    }
