"""SIGTERM in processes of their own: trials and scripts that end, or were started to ignore it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.ingest.recovery import recover
from tests.sdk.conftest import IGNORING, Script
from tests.sdk.run.stopped_trials import newest
from tests.sdk.trial_process.attempts import CHECKOUT, status
from tests.waiting import wait_for

TRIAL = """
import os, signal, sys
from multiprocessing import Pipe
from halving.trial_process.main import run_trial
from halving import Store
from tests.sdk.trial_process.attempts import context
platform, theirs = Pipe()
run_trial(context(Store()), "stopped:train", 2, theirs, 1)
"""


@pytest.fixture
def trial(script: Script, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Run a trial with this trainable in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT}/sdk:{CHECKOUT}")

    def run(trainable: str, program: str = TRIAL, **started: Any) -> "subprocess.CompletedProcess[str]":
        Path("stopped.py").write_text(trainable)
        return script(program, **started)

    return run


@pytest.mark.slow
def test_another_sigterm_ends_a_trial_only_after_the_grace_period(trial: Script, store: Store) -> None:
    program = TRIAL.replace("context(Store())", "dataclasses.replace(context(Store()), grace_seconds=0.5)")
    done = trial(
        "import os, signal, time\n"
        "from halving.run import grace_period\n"
        "def train(run):\n"
        "    now = time.monotonic()\n"
        "    grace_period.monotonic = lambda: now\n"
        "    for epoch in run.epochs():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        run.log({'a': 1.0}, step=1)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print('within', flush=True)\n"
        "        now += 0.6\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print('not reached')\n",
        program.replace("import os", "import dataclasses, os"),
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "within\n"), done.stderr
    assert status(store) == "terminated"


@pytest.mark.slow
def test_a_trial_started_to_ignore_signals_saves_under_sigterm_and_ignores_ctrl_c(
    trial: Script, store: Store
) -> None:
    done = trial(
        "import os, signal\n"
        "def train(run):\n"
        "    for epoch in run.epochs():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        run.report(score=0.5)\n"
        "        run.save(seen=[epoch])\n",
        before=IGNORING,
    )
    assert done.returncode == 143, done.stderr
    assert (status(store), newest(store)) == ("terminated", (1, [1]))


@pytest.mark.slow
def test_a_script_that_was_started_to_ignore_sigterm_goes_on(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal\n"
        "run = halving.init('p', id='s.0001', system_metrics=None)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "run.log({'a': 1.0}, step=1)\n",
        before=IGNORING,
    )
    assert done.returncode == 0, done.stderr
    assert status(store) == "finished"


@pytest.mark.slow
def test_a_second_sigterm_while_a_stopped_trial_finishes_changes_nothing(trial: Script, store: Store) -> None:
    done = trial(
        "import os, signal\n"
        "from halving.ingest.metric_writer import MetricWriter\n"
        "close = MetricWriter.close\n"
        "def terminated_again(writer, *given):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return close(writer, *given)\n"
        "MetricWriter.close = terminated_again\n"
        "def train(run):\n"
        "    for epoch in run.epochs():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        run.report(score=0.5)\n"
        "        run.save(seen=[epoch])\n"
    )
    assert done.returncode == 143, done.stderr
    assert status(store) == "terminated"
    assert newest(store) == (1, [1])


@pytest.mark.slow
def test_a_trial_that_waits_for_its_decision_ends_at_once_and_is_at_its_rung(
    trial: Script, store: Store
) -> None:
    trainable = (
        "def train(run):\n    for epoch in run.epochs():\n        run.report(score=0.5)\n        "
        "run.save(seen=[epoch])\n"
    )
    terminating = (
        "threading.Thread(target=lambda: (platform.recv(), os.kill(os.getpid(), signal.SIGTERM)), "
        "daemon=True).start()\nrun_trial("
    )
    done = trial(
        trainable, TRIAL.replace("import os", "import threading, os").replace("run_trial(", terminating)
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert status(store) == "terminated"
    assert newest(store) == (2, [2])


@pytest.mark.slow
def test_a_main_thread_that_hangs_in_c_keeps_no_point_from_the_store(store: Store, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        "import ctypes, halving\n"
        "run = halving.init('p', id='s.0001', system_metrics=None)\n"
        "for step in range(1_000): run.log({'a': 1.0}, step=step)\n"
        "ctypes.CDLL(None).system(b'echo hangs; exec sleep 600')\n"
    )
    command = [sys.executable, str(tmp_path / "hanging.py")]
    environment = {**os.environ, "HALVING_ROOT": store.root}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.terminate()
        wait_for(lambda: logged_steps(store) == list(range(1_000)), 60, "the points of a process that hangs")
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
    assert [attempt.state for attempt in recover(store)] == ["recovered"]
    assert status(store) == "crashed"


def logged_steps(store: Store) -> list[int]:
    folder = "metrics/project=p/run=s.0001/live"
    tables = [pq.ParquetFile(store.path(f"{folder}/{name}")).read() for name in store.names(folder)]
    return sorted(row["step"] for table in tables for row in table.to_pylist())


@pytest.mark.slow
def test_a_script_ends_by_sigterm_as_ever_in_the_middle_of_its_epochs(script: Script, store: Store) -> None:
    done = script(
        "import halving, os, signal\n"
        "run = halving.init('p', id='s.0001', system_metrics=None)\n"
        "for epoch in run.epochs(5):\n"
        "    if epoch == 2: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run.report(loss=1.0); run.save(seen=[epoch])\n"
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert status(store) == "terminated"
    assert newest(store) == (1, [1])
