"""The ``halving`` command for a person: its output, when it is stopped, and when it is called wrongly."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from commands.launch import _COMMAND, _first_failure
from resources.catalog import SweepRow
from tests.commands.shell import Shell, Swept, on_swept
from tests.waiting import is_worked_in, wait_for

Small = Callable[..., dict[str, Any]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@on_swept
def test_a_sweep_ends_with_leaderboard_savings_report_and_next_commands(
    swept_lab: Swept, tmp_path: Path
) -> None:
    assert swept_lab.status == 0, swept_lab.out + swept_lab.err
    sweep = _sweep(swept_lab.shell)
    for said in (
        "small: maximize score, rungs at 1, 3, 9 epochs",
        f"{sweep}: finished",
        " epochs trained, ",
        "Test split: accuracy 1.0000",
        "Gates passed: finite_metrics, lineage, leakage, non_inferior",
        "Promoted: model small 1.0.0 is champion",
        f"Report: {swept_lab.shell.backend.store.root}/reports/{sweep}.html",
        "Next: make serve",
    ):
        assert said in swept_lab.out
    assert "taking the dataset's snapshot" in swept_lab.out

    shell = swept_lab.shell.copy(tmp_path)
    status, out, _ = shell.run("leaderboard")
    assert (status, sweep in out) == (0, True)
    assert "1.0.0" in shell.call("models", "list")[1]
    assert shell.call("promote", "small", "1.0.0")[:2] == (0, "model small 1.0.0 is champion\n")
    status, _, err = shell.call("promote", "small", "7.0.0")
    assert (status, err) == (
        1,
        "halving promote: no version '7.0.0' of model 'small'; there are small 1.0.0 (champion)\n",
    )
    status, _, err = shell.call("leaderboard", "small-none")
    assert (status, err) == (
        1,
        f"halving leaderboard: no sweep 'small-none' in the catalog; the newest are ['{sweep}']\n",
    )

    board = shell.data("leaderboard")
    assert (board["sweep"], board["status"], board["test_metrics"]) == (
        sweep,
        "finished",
        {"accuracy": 1.0, "f1_macro": 1.0},
    )
    assert board["promoted"] == {"model": "small", "version": "1.0.0", "stage": "champion"}
    models = shell.data("models", "list")["models"]
    assert [row["key"] for row in board["standings"]][:1] == [models[0]["run"]]
    assert Path(board["report"]).exists()
    assert shell.data("archive", "small", "1.0.0")["stage"] == "archived"
    assert shell.data("promote", "small", "1.0.0") == shell.data("models", "list")["models"][0]

    runs = shell.data("runs", f"sweep = {sweep}")
    assert (runs["total"], {run["project"] for run in runs["runs"]}) == (9, {"small"})
    assert {run["run"] for run in shell.data("compact", "--project", "small")["runs"]} == {
        run["run"] for run in runs["runs"]
    }


@on_swept
def test_numbers_that_yaml_takes_for_text_work_as_they_are_meant(swept_lab: Swept) -> None:
    assert "low: 1e-06" in swept_lab.spec.read_text()
    assert swept_lab.status == 0, swept_lab.out + swept_lab.err
    with swept_lab.shell.backend.catalog.read() as session:
        assert session.query(SweepRow.spec).scalar()["space"]["x"]["float"]["low"] == 0.000001


@on_swept
def test_retention_does_what_the_policy_says_and_a_dry_run_only_says_it(
    swept_lab: Swept, tmp_path: Path
) -> None:
    shell = swept_lab.shell.copy(tmp_path)
    champion = shell.data("models", "list")["models"][0]["run"]
    others = {run["run"] for run in shell.data("runs")["runs"]} - {champion}
    assert len(others) == 8
    shell.data("compact", "--all")
    status, out, _ = shell.call("retention", "--dry-run")
    assert (status, "by the shipped default" in out, "nothing is old enough to go" in out) == (0, True, True)
    Path(shell.backend.store.root, "retention.yaml").write_text("points: {full: {days: 0}}")

    planned = shell.data("retention", "--dry-run")
    assert [(row["kind"], row["count"]) for row in planned["gone"]] == [("points", 8)]
    assert (planned["dry_run"], planned["protected"], planned["shipped"]) == (
        True,
        {"a champion version": 1},
        False,
    )
    status, out, _ = shell.call("retention", "--dry-run", "--project", "small")
    assert (status, "would go; without --dry-run it goes" in out, "a champion version" in out) == (
        0,
        True,
        True,
    )
    assert (
        f"{champion} stays: it is champion 1.0.0 of the model small"
        in shell.call("retention", "--explain", champion)[1]
    )

    applied = shell.data("retention")
    assert {**applied, "dry_run": True} == planned
    assert {run: shell.data("show", run)["files"]["full"] is None for run in others} == dict.fromkeys(
        others, True
    )
    assert shell.data("show", champion)["files"]["full"]
    assert shell.data("retention")["gone"] == []


@pytest.mark.slow
def test_a_wrong_spec_is_one_short_message_and_nothing_runs(shell: Shell, small: Small) -> None:
    status, out, err = shell.call("sweep", shell.spec(small(space={"x": {"float": {"low": 2, "high": 1}}})))
    assert (status, out) == (1, "")
    reason = "low = 2.0 must be below high = 1.0; for a single value give constant"
    said = f"halving sweep: the sweep spec is not accepted:\n  - space.x.float is not accepted: {reason}\n"
    assert err == said
    status, _, err = shell.call("sweep", "nowhere.yaml")
    assert (status, err) == (
        1,
        (
            "halving sweep: sweep file 'nowhere.yaml' is not accepted: No such file or directory; give the "
            "path of a YAML file\n"
        ),
    )
    status, _, err = shell.call("sweep", shell.spec(small(snapshot="sha256:" + "0" * 64)), "--refresh")
    assert (status, "--refresh is not accepted: the spec names the snapshot 'sha256:00" in err) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resources": {"cpus": 4096}}, "resources.cpus = 4096 is not accepted here"),
        (
            {"predictor": "tests.trainables:predict_too_few", "max_trials": 1},
            "The search is done and its results are kept. Correct this",
        ),
    ],
)
def test_a_job_that_fails_says_why_and_where_its_log_is(
    shell: Shell, small: Small, change: dict[str, Any], said: str
) -> None:
    status, out, err = shell.call("sweep", shell.spec(small(**change)))
    assert status == 1
    assert said in (out + err).replace("\n", " ")
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_the_reason_is_that_of_dagsters_events_whatever_the_job_printed(shell: Shell, small: Small) -> None:
    (shell.folder / "talkative.py").write_text(
        """
print("dagster._core.errors.DagsterError: not the reason", flush=True)
def data():
    raise KeyError("the file is gone")
"""
    )
    shell.environment["PYTHONPATH"] = str(shell.folder)
    status, out, err = shell.run(
        "sweep", shell.spec(small(dataset={"name": "p", "source": "talkative:data", "target": "y"}))
    )
    assert (status, err) == (1, "")
    assert (
        "failed: dataset.source = 'talkative:data' is not accepted: it raised KeyError at talkative.py:"
        in out
    )
    assert "not the reason" not in out
    assert "Traceback" not in out


@dg.job
def nothing() -> None:
    pass


def test_a_run_that_was_marked_as_failed_from_outside_has_the_events_own_message(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").touch()
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        run = instance.create_run_for_job(nothing, tags={_COMMAND: "this"})
        instance.report_run_failed(run, "it ran for too long")
    assert _first_failure(tmp_path, "this") == "it ran for too long"
    assert _first_failure(tmp_path, "another") == "the job ended before its run began"


def test_a_wrong_dagster_yaml_is_the_reason_that_is_shown(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("storage: {nonsense: 1}")
    reason = _first_failure(tmp_path, "this")
    assert reason.startswith("Dagster's event log cannot be read: ")
    assert 'unexpected config entry "nonsense"' in reason


def _sweep(shell: Shell) -> str:
    with shell.backend.catalog.read() as session:
        return str(session.query(SweepRow.id).scalar())


def _is_running(process: "subprocess.Popen[str]") -> bool:
    assert process.poll() is None, process.communicate()
    return True


def _trials_in(epochs: Path) -> set[str]:
    return {line.split()[0] for line in epochs.read_text().splitlines()} if epochs.exists() else set()


@pytest.mark.slow
def test_a_command_that_is_killed_takes_its_job_with_it(shell: Shell, small: Small) -> None:
    spec = shell.spec(
        small(trainable="tests.trainables:train_slowly", max_trials=2, strategy={"random": {"budget": 200}})
    )
    process = shell.start("sweep", spec)
    epochs = Path(shell.backend.store.root, "epochs")
    wait_for(
        lambda: _is_running(process) and epochs.exists() and len(epochs.read_text().splitlines()) >= 4,
        120,
        "4 epochs",
    )
    assert is_worked_in(shell.backend.store.root)
    process.kill()
    process.communicate()
    wait_for(lambda: not is_worked_in(shell.backend.store.root), 60, "the end of the job and its trials")


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_named(shell: Shell, small: Small) -> None:
    blocked = shell.folder / "blocked"
    blocked.write_text("a file where the store should be")
    shell.environment["HALVING_ROOT"] = str(blocked)
    for command in (["sweep", shell.spec(small())], ["models", "list"]):
        status, out, err = shell.call(*command)
        assert status == 1
        assert str(blocked) in err
        assert "Traceback" not in out + err


@pytest.mark.slow
def test_a_signal_stops_the_sweep_and_the_same_command_resumes_it(shell: Shell, small: Small) -> None:
    spec = shell.spec(
        small(trainable="tests.trainables:train_slowly", max_trials=2, strategy={"random": {"budget": 30}})
    )
    epochs = Path(shell.backend.store.root, "epochs")
    # Ctrl-C, and what ends a job in the background, whose shell has it ignore Ctrl-C.
    for number, before in (
        (signal.SIGINT, ()),
        (signal.SIGTERM, ("sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh")),
    ):
        process = shell.start("sweep", spec, before=before)
        wait_for(
            lambda process=process: _is_running(process) and len(_trials_in(epochs)) == 2, 120, "both trials"
        )  # type: ignore[misc]
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, out + err
        assert f"the same command resumes the sweep: halving sweep {spec}" in out.replace("\n", " ").replace(
            "  ", " "
        )
        with shell.backend.catalog.read() as session:
            (sweep,) = session.query(SweepRow)
            assert [
                (trial.status, trial.failures) for trial in shell.backend.catalog.trials(session, sweep.id)
            ] == [("queued", 0)] * 2
        epochs.unlink()
    status, out, _ = shell.call("sweep", spec)
    assert status == 0
    assert f"{sweep.id}: finished" in out


@pytest.mark.slow
def test_commands_on_an_empty_store_say_what_to_do_first(shell: Shell) -> None:
    status, out, _ = shell.call("leaderboard")
    assert status == 1
    assert "there are no sweeps in" in out
    assert "halving sweep sweeps/digits.yaml" in out
    assert "there are no model versions yet" in shell.call("models", "list")[1]


@pytest.mark.slow
def test_a_sweep_with_json_prints_its_leaderboard_and_progress_to_stderr(shell: Shell, small: Small) -> None:
    other = str(shell.folder / "other")
    status, out, err = shell.call("sweep", shell.spec(small(max_trials=3)), "--json", "--root", other)
    assert status == 0, err
    data = json.loads(out)
    assert (data["status"], data["error"], len(data["standings"])) == ("finished", None, 3)
    for said in ("small: maximize score", "Dagster's log: ", "Next: make serve"):
        assert said in err
    assert data == {**shell.data("leaderboard", "--root", other), "error": None}
    assert shell.data("runs", "--root", other)["total"] == 3
    assert shell.data("models", "list", "--root", other)["models"][0]["version"] == "1.0.0"
    assert shell.data("runs")["total"] == 0


@pytest.mark.slow
def test_a_sweep_that_fails_says_why_and_says_so_in_its_data(shell: Shell, small: Small) -> None:
    change = {"trainable": "tests.trainables:train_raising_always", "max_trials": 2, "max_retries": 0}
    status, out, err = shell.call("sweep", shell.spec(small(**change)), "--json")
    assert status == 1
    data = json.loads(out)
    assert (data["status"], data["test_metrics"], [failed["trial"] for failed in data["failed"]]) == (
        "failed",
        None,
        [0, 1],
    )
    assert data["error"] in err
    sweep = _sweep(shell)
    said = (
        f"2 trials failed: {sweep}.0000, {sweep}.0001: RuntimeError: no trial of this sweep can work "
        "(trainables.py:"
    )
    assert said in err.replace("\n", " ")
    status, leaderboard, more = shell.call("leaderboard")
    assert (status, sweep in leaderboard) == (0, True)
    assert "Traceback" not in err + leaderboard + more


@pytest.mark.slow
def test_retention_that_is_called_wrongly_deletes_nothing(shell: Shell) -> None:
    Path(shell.backend.store.root).mkdir(exist_ok=True)
    assert "no project 'smal' in" in shell.fails("retention", "--project", "smal")
    Path(shell.backend.store.root, "retention.yaml").write_text("checkpoint: {days: 3}")
    assert (
        "checkpoint = {'days': 3} is not accepted: there is no such field, did you mean 'checkpoints'?"
        in shell.fails("retention")
    )


@pytest.mark.slow
def test_without_a_sweep_there_is_no_data_but_a_message(shell: Shell) -> None:
    status, out, err = shell.call("leaderboard", "--json")
    assert (status, out) == (1, "")
    assert "there are no sweeps in" in err
    assert shell.data("models", "list") == {"models": []}


@pytest.mark.slow
def test_no_command_shows_the_commands(shell: Shell) -> None:
    status, out, _ = shell.run()
    assert status == 2
    changes = ("promote", "approve", "reject", "rollback", "archive")
    for command in (
        "sweep",
        "leaderboard",
        "models",
        *changes,
        "retention",
        "runs",
        "show",
        "compare",
        "export",
    ):
        assert command in out
