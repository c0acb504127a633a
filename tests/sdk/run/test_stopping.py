"""SIGTERM in a trial: a checkpoint inside the grace period, and a resume that trains what the uninterrupted
trial would have.
"""

import dataclasses
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from halving import Run, Store
from halving.errors import StoreUnavailable
from halving.ingest.recovery import recover
from halving.records.run_record import RunRecords
from halving.trial.messages import Granted, Message, ReachedRung, Stopped
from halving.trial_process.main import run_trial
from tests.sdk.conftest import IGNORING, Script
from tests.sdk.trial_process.test_main import CHECKOUT, context, execute, status
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("signals")


@pytest.fixture
def signals() -> Iterator[None]:
    """The trial runs in the tests' own process, which wants its handlers back."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def run_stopped(
    store: Store, trainable: str, granted: int, *answers: Granted, attempt: int = 1
) -> list[Message]:
    """Run a trial that is stopped by SIGTERM; what it said before."""
    platform, own = multiprocessing.Pipe()
    for answer in answers:
        platform.send(answer)
    with pytest.raises(SystemExit) as ended:
        run_trial(
            context(store, attempt),
            trainable if ":" in trainable else f"{__name__}:{trainable}",
            granted,
            own,
            threads=2,
        )
    assert ended.value.code == 143
    assert status(store, attempt) == "terminated"
    heard: list[Message] = []
    while platform.poll():
        heard.append(platform.recv())
    return heard


def newest(store: Store) -> tuple[int, Any]:
    """Epoch and what was saved of the newest checkpoint."""
    from halving.checkpoints.restoring import restore

    saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert saved is not None
    return saved.epoch, restore(store, saved.digest, {"seen": None}, with_rng=False)["seen"]


def train(run: Run) -> None:
    """The first attempt is stopped at the beginning of epoch 3."""
    epochs = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        if run.attempt == 1 and epoch == 3:
            sigterm()
        epochs.append(epoch)
        run.report(score=sum(epochs) / 100)
        run.save(seen=epochs)


def train_saving_first(run: Run) -> None:
    epochs = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        if run.attempt == 1 and epoch == 3:
            sigterm()
        epochs.append(epoch)
        run.save(seen=epochs)
        run.report(score=sum(epochs) / 100)


def train_stopped_after_its_save(run: Run) -> None:
    epochs = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        epochs.append(epoch)
        run.report(score=sum(epochs) / 100)
        run.save(seen=epochs)
        if run.attempt == 1 and epoch == 3:
            sigterm()


def train_saving_seldom(run: Run) -> None:
    epochs = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        if run.attempt == 1 and epoch == 3:
            sigterm()
        epochs.append(epoch)
        run.report(score=sum(epochs) / 100)
        if epoch % 2 == 0 or epoch == 5:
            run.save(seen=epochs)


@pytest.mark.parametrize(
    ("trainable", "kept"),
    [
        ("train", 3),
        ("train_saving_first", 3),
        ("train_stopped_after_its_save", 3),
        ("train_saving_seldom", 2),
    ],
)
def test_a_stopped_trial_resumes_and_ends_where_an_uninterrupted_one_does(
    store: Store, trainable: str, kept: int
) -> None:
    assert run_stopped(store, trainable, 5) == []
    assert newest(store) == (kept, list(range(1, kept + 1)))
    heard = execute(store, f"{__name__}:{trainable}", 5, Granted(5, complete=True), attempt=2)
    assert [message.values for message in heard if isinstance(message, ReachedRung)] == [{"score": 0.15}]
    assert newest(store) == (5, [1, 2, 3, 4, 5])


def train_by_batches(run: Run) -> None:
    """Stopped in the third of six batches of epoch 2; has a place of its own in the epoch."""
    state = run.restore(seen=[], batch=0)
    batches = list(state["seen"])
    first = int(state["batch"])
    for epoch in run.epochs():
        for batch in range(first, 6):
            batches.append((epoch, batch))
            if run.attempt == 1 and (epoch, batch) == (2, 2):
                sigterm()
            if run.stopping:
                run.save(seen=batches, batch=batch + 1)
        first = 0
        run.report(score=len(batches) / 100)
        run.save(seen=batches, batch=0)


def test_a_save_in_mid_epoch_ends_a_stopped_trial_there_and_a_resume_goes_on_there(store: Store) -> None:
    assert run_stopped(store, "train_by_batches", 3) == []
    assert newest(store) == (1, [(1, batch) for batch in range(6)] + [(2, batch) for batch in range(3)])
    heard = execute(store, f"{__name__}:train_by_batches", 3, Granted(3, complete=True), attempt=2)
    assert [message.values for message in heard if isinstance(message, ReachedRung)] == [{"score": 0.18}]
    assert newest(store) == (3, [(epoch, batch) for epoch in (1, 2, 3) for batch in range(6)])


def return_when_stopping(run: Run) -> None:
    for epoch in run.epochs():
        if epoch == 2:
            sigterm()
        if run.stopping:
            return
        run.report(score=0.1)
        run.save(seen=[epoch])


def raise_when_stopping(run: Run) -> None:
    for epoch in run.epochs():
        if epoch == 2:
            sigterm()
            raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Terminated")
        run.report(score=0.1)
        run.save(seen=[epoch])


@pytest.mark.parametrize("trainable", ["return_when_stopping", "raise_when_stopping"])
def test_a_stopped_trial_that_returns_or_fails_is_stopped_and_nothing_else(
    store: Store, trainable: str
) -> None:
    assert run_stopped(store, trainable, 5) == []
    assert newest(store) == (1, [1])


def test_a_trial_stopped_at_the_end_of_its_rung_asks_and_trains_nothing_again(
    store: Store,
) -> None:
    assert run_stopped(store, "train", 3) == []
    heard = execute(store, f"{__name__}:train", 3, Granted(3, complete=True), attempt=2)
    saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert saved is not None
    assert heard == [ReachedRung(3, {"score": 0.06}, saved.digest), Stopped()]
    assert (saved.epoch, saved.attempt) == (3, 1)


@pytest.mark.slow
def test_a_trial_in_a_process_of_its_own_ends_with_status_143_and_says_nothing(store: Store) -> None:
    spawn = multiprocessing.get_context("spawn")
    platform, theirs = spawn.Pipe()
    process = spawn.Process(target=run_trial, args=(context(store), f"{__name__}:train", 5, theirs, 1))
    process.start()
    theirs.close()
    process.join(60)
    assert process.exitcode == 143
    with pytest.raises(EOFError):
        platform.recv()
    assert newest(store) == (3, [1, 2, 3])


TRIAL = """
import os, signal, sys
from multiprocessing import Pipe
from halving.trial_process.main import run_trial
from halving import Store
from tests.sdk.trial_process.test_main import context
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


class Clock:
    """What ``time.monotonic`` says, and what a test lets pass beside it."""

    def __init__(self) -> None:
        self._passed = 0.0

    def __call__(self) -> float:
        return _monotonic() + self._passed

    def let_pass(self, seconds: float) -> None:
        self._passed += seconds


_monotonic = time.monotonic
clock = Clock()


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial in this process goes by ``clock``."""
    for name in (
        "time.monotonic",
        "halving.run.epoch_loop.monotonic",
        "halving.run.grace_period.monotonic",
    ):
        monkeypatch.setattr(name, clock)


def train_late(run: Run) -> None:
    for epoch in run.epochs():
        sigterm()
        clock.let_pass(run.params["late"])
        run.report(score=0.1)
        run.save(seen=[epoch])


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("share", [0.9, 1.5, 4.0])
def test_an_epoch_that_ends_late_in_its_grace_period_waits_for_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    put = Store.put_blob
    failed = []

    def fail_once(*arguments: Any) -> str:
        if not failed:
            failed.append(arguments)
            raise StoreUnavailable("503")
        return put(*arguments)

    monkeypatch.setattr(Store, "put_blob", fail_once)
    trial = dataclasses.replace(context(store), params={"late": 30 * share}, grace_seconds=30)
    with pytest.raises(SystemExit):
        run_trial(trial, f"{__name__}:train_late", 2, multiprocessing.Pipe()[1], threads=2)
    assert failed
    assert (status(store), newest(store)) == ("terminated", (1, [1]))


left: list[Run] = []


def train_without_store(run: Run) -> None:
    left[:] = [run]
    for _ in run.epochs():
        if run.params["when"] == "before":
            sigterm()
        run.report(score=0.1)
        run.save(seen=1)


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_trial_gives_up_when_its_last_try_at_a_store_outlasts_the_grace_period(
    store: Store, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    tries: list[float] = []

    def fail(*_: Any) -> str:
        if when == "while" and not tries:
            sigterm()
        tries.append(clock())
        if len(tries) > 1:
            clock.let_pass(31)
        raise StoreUnavailable("503")

    monkeypatch.setattr(Store, "put_blob", fail)
    monkeypatch.setattr("halving.store.retry.backoff", lambda: itertools.repeat(0.01))
    trial = dataclasses.replace(context(store), params={"when": when}, grace_seconds=30)
    with pytest.raises(SystemExit):
        run_trial(trial, f"{__name__}:train_without_store", 1, multiprocessing.Pipe()[1], threads=2)
    assert len(tries) < 4
    assert left[0]._grace.is_over(), "the end of the run waits no longer either"


def train_reporting_last(run: Run) -> None:
    for epoch in run.epochs():
        if epoch == 2:
            sigterm()
        run.save(seen=[epoch])
        if epoch == 2:
            clock.let_pass(25)
        run.report(score=0.1)


@pytest.mark.usefixtures("own_clock")
def test_a_report_that_follows_a_late_save_waits_for_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Store.create
    failed = []

    def fail_once(self: Store, name: str, *arguments: Any, **named: Any) -> None:
        if "/checkpoints/00000002-" in name and not failed:
            failed.append(name)
            raise StoreUnavailable("503")
        create(self, name, *arguments, **named)

    monkeypatch.setattr(Store, "create", fail_once)
    trial = dataclasses.replace(context(store), grace_seconds=30)
    with pytest.raises(SystemExit):
        run_trial(trial, f"{__name__}:train_reporting_last", 3, multiprocessing.Pipe()[1], threads=2)
    assert failed
    assert (status(store), newest(store)) == ("terminated", (2, [2]))


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
