"""The ``halving`` command as a person meets it: what it prints, when it is stopped, and when it is called wrongly."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from resources.catalog import SweepRow
from tests.conftest import CHECKOUT, Dagster

Small = Callable[..., dict[str, Any]]


class Shell:
    """A terminal in the checkout, on a store of its own."""

    def __init__(self, folder: Path, dagster: Dagster) -> None:
        self.folder, self.environment = folder, dagster.environment
        self.lab = dagster.lab

    def spec(self, data: Any) -> str:
        path = self.folder / "sweep.yaml"
        path.write_text(yaml.safe_dump(data))
        return str(path)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "halving.cli", *arguments],
            cwd=CHECKOUT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate()
        return process.returncode, out, err


@pytest.fixture
def shell(tmp_path: Path, dagster_cli: Dagster) -> Shell:
    return Shell(tmp_path, dagster_cli)


def test_a_sweep_ends_with_a_leaderboard_what_was_saved_the_report_and_what_to_type_next(shell: Shell, small: Small) -> None:
    status, out, err = shell.run("sweep", shell.spec(small()))
    assert status == 0, out + err
    with shell.lab.catalog.read() as session:
        sweep = session.query(SweepRow.id).scalar()
    for said in (
        "small: maximize score, rungs at [1, 3, 9] epochs",
        f"{sweep}: finished",
        " epochs trained, ",
        "Test split: accuracy 1.0000",
        "Promoted: model small 1.0.0 is champion",
        f"Report: {shell.lab.store.root}/reports/{sweep}.html",
        "Next: make dev",
    ):
        assert said in out
    assert "taking the dataset's snapshot" in out

    status, shown, _ = shell.run("leaderboard")
    assert (status, sweep in shown) == (0, True)
    assert "1.0.0" in shell.run("models")[1]
    assert shell.run("promote", "small", "1.0.0")[:2] == (0, "model small 1.0.0 is champion\n")
    status, _, err = shell.run("promote", "small", "7.0.0")
    assert (status, err) == (1, "halving promote: no version '7.0.0' of model 'small'; there are ['small 1.0.0 (champion)']\n")
    status, _, err = shell.run("leaderboard", "small-none")
    assert (status, err) == (1, f"halving leaderboard: no sweep 'small-none' in the catalog; the newest are ['{sweep}']\n")


def test_a_wrong_spec_is_one_short_message_and_nothing_runs(shell: Shell, small: Small) -> None:
    status, out, err = shell.run("sweep", shell.spec(small(space={"x": {"float": {"low": 2, "high": 1}}})))
    assert (status, out) == (1, "")
    said = "halving sweep: the sweep spec is not accepted:\n  - space.x.float is not accepted: low = 2.0 must be below high = 1.0\n"
    assert err == said
    status, _, err = shell.run("sweep", "nowhere.yaml")
    assert (status, err) == (
        1,
        "halving sweep: sweep file 'nowhere.yaml' is not accepted: No such file or directory; give the path of a YAML file\n",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trainable": "tests.trainables:trian"}, "failed: trainable = 'tests.trainables:trian' is not accepted"),
        ({"resources": {"cpus": 4096}}, "resources.cpus = 4096 is not accepted here"),
        (
            {"trainable": "tests.trainables:train_raising_always", "max_trials": 2, "max_retries": 0},
            "2 trials failed: {0}.0000, {0}.0001: RuntimeError: no trial of this sweep can work (trainables.py:",
        ),
        (
            {"dataset": {"name": "p", "source": "tests.trainables:data_raising", "target": "y"}},
            "dataset.source = 'tests.trainables:data_raising' is not accepted: it raised KeyError at trainables.py:",
        ),
        ({"predictor": "tests.trainables:predict_too_few"}, "The search is done and kept. Mend this"),
    ],
)
def test_a_job_that_fails_says_why_and_where_its_log_is(shell: Shell, small: Small, change: dict[str, Any], said: str) -> None:
    status, out, err = shell.run("sweep", shell.spec(small(**change)))
    assert status == 1
    assert said.format(_sweep(shell)) in (out + err).replace("\n", " ")
    assert "Traceback" not in out + err


def _sweep(shell: Shell) -> str:
    with shell.lab.catalog.read() as session:
        return str(session.query(SweepRow.id).scalar())


def test_numbers_that_yaml_takes_for_text_work_as_they_are_meant(shell: Shell, small: Small) -> None:
    path = Path(shell.spec(small(max_trials=1)))
    path.write_text(path.read_text().replace("low: 0.0", "low: 1e-4"))
    assert "1e-4" in path.read_text()
    status, out, err = shell.run("sweep", str(path))
    assert status == 0, out + err


def test_a_command_that_is_killed_takes_its_job_with_it(shell: Shell, small: Small) -> None:
    spec = shell.spec(small(trainable="tests.trainables:train_slowly", max_trials=2, strategy={"random": {"budget": 200}}))
    process = shell.start("sweep", spec)
    epochs = Path(shell.lab.store.root, "epochs")
    while not epochs.exists() or len(epochs.read_text().splitlines()) < 4:
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.communicate()
    until, before = time.monotonic() + 60, ""
    while (now := epochs.read_text()) != before:
        assert time.monotonic() < until, "the job trains on"
        before = now
        time.sleep(2)


def test_a_store_that_cannot_be_written_is_named(shell: Shell, small: Small) -> None:
    blocked = shell.folder / "blocked"
    blocked.write_text("a file where the store should be")
    shell.environment["HALVING_ROOT"] = str(blocked)
    for command in (["sweep", shell.spec(small())], ["models"]):
        status, out, err = shell.run(*command)
        assert status == 1
        assert str(blocked) in err
        assert "Traceback" not in out + err


def test_ctrl_c_stops_the_sweep_and_the_same_command_resumes_it(shell: Shell, small: Small) -> None:
    spec = shell.spec(small(trainable="tests.trainables:train_slowly", max_trials=2, strategy={"random": {"budget": 20}}))
    process = shell.start("sweep", spec)
    epochs = Path(shell.lab.store.root, "epochs")
    while not epochs.exists() or len(epochs.read_text().splitlines()) < 6:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, out + err
    assert f"the same command resumes the sweep: halving sweep {spec}" in out.replace("\n", " ").replace("  ", " ")
    with shell.lab.catalog.read() as session:
        (sweep,) = session.query(SweepRow)
        assert [(trial.status, trial.failures) for trial in shell.lab.catalog.trials(session, sweep.id)] == [("queued", 0)] * 2
    status, out, _ = shell.run("sweep", spec)
    assert status == 0
    assert f"{sweep.id}: finished" in out


def test_commands_on_an_empty_store_say_what_to_do_first(shell: Shell) -> None:
    status, out, _ = shell.run("leaderboard")
    assert status == 1
    assert "there are no sweeps in" in out
    assert "halving sweep sweeps/digits.yaml" in out
    assert "there are no model versions yet" in shell.run("models")[1]


def test_no_command_shows_the_commands(shell: Shell) -> None:
    status, out, _ = shell.run()
    assert status == 2
    for command in ("sweep", "leaderboard", "models", "promote"):
        assert command in out
