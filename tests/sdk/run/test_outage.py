"""S3 that becomes unavailable while runs train: points wait, checkpoints are skipped or waited for, and
nothing is lost or slowed down.
"""

import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import halving
from halving import Store, StoreError
from halving.checkpoints.restoring import restore
from halving.checkpoints.saver import Saver
from halving.checkpoints.weights_digest import weights_digest
from halving.errors import StoreUnavailable
from halving.ingest.recovery import recover
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.backoff import backoff
from halving.store.deadline import Deadline
from halving.trial.messages import Interrupted
from halving.trial_process.main import run_trial
from tests.s3 import S3, Gate
from tests.sdk.data.sharded import arrow_file, put_shard, snapshot
from tests.sdk.metric_files import read_points
from tests.sdk.trial_process import attempts

Shut = Callable[[Gate], None]
ANSWER_SECONDS = 5.0
OUTAGES = [pytest.param(Gate.shut, id="refused"), pytest.param(Gate.swallow, id="silent")]


@pytest.fixture
def root(s3: S3, s3_gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store that is reached through the gate; its journals are in the test's own folder."""
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    return s3.root(secrets.token_hex(6), endpoint=s3_gate.endpoint)


@pytest.fixture
def retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint is too expensive, an unavailable store is asked often, and an available one may be slow
    on a busy machine.
    """
    monkeypatch.setattr("halving.checkpoints.interval.SHARE", float("inf"))
    monkeypatch.setattr("halving.store.retry.backoff", partial(backoff, 0.1, 0.2))
    monkeypatch.setattr("halving.store.retry._ANSWER_SECONDS", ANSWER_SECONDS)


def steps(root: str) -> Counter[int]:
    return Counter(step for _, key, step, *_ in read_points(Store(root), "r") if key == "a")


def saved_epochs(root: str) -> list[tuple[int, Any]]:
    """Epoch and content of every checkpoint that counts."""
    store = Store(root)
    checkpoints = RunRecords(store, "p", "r").checkpoints()
    return [
        (each.epoch, restore(store, each.digest, {"seen": None}, with_rng=False)["seen"])
        for each in checkpoints
    ]


def wait_for_the_watch() -> None:
    """Until the thread that asks an unavailable store has noticed that it is back."""
    until = time.monotonic() + 60
    while any(thread.name == "halving-store-watch" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("shut", OUTAGES)
@pytest.mark.usefixtures("retried_soon")
def test_training_goes_on_while_s3_is_unavailable_and_nothing_is_lost_after_it(
    root: str, s3_gate: Gate, shut: Shut
) -> None:
    took = []
    with (
        pytest.warns(UserWarning, match="halving: ") as warned,
        halving.init("p", id="r", root=root, system_metrics=None) as run,
    ):
        for epoch in run.epochs(12):
            began = time.monotonic()
            run.log({"a": 1.0}, step=epoch)
            if epoch == 3:
                shut(s3_gate)
            digest = run.save(seen=epoch)
            took.append(time.monotonic() - began)
            assert (digest is None) == (3 <= epoch <= 8)
            if epoch == 8:
                s3_gate.open()
                wait_for_the_watch()  # this epoch's checkpoint is made up for at its end
    assert max(took[2:8]) < ANSWER_SECONDS + 5
    assert sorted(took[2:8])[-2] < ANSWER_SECONDS / 2  # only the first that finds S3 unavailable waits for it
    assert (
        sum(
            "a checkpoint of r could not be stored; training continues" in str(each.message)
            for each in warned
        )
        == 1
    )
    assert steps(root) == dict.fromkeys(range(1, 13), 1)
    assert [epoch for epoch, _ in saved_epochs(root)] == [1, 2, 8, 9, 10, 11, 12]
    missed = {each.epoch: each.missed for each in RunRecords(Store(root), "p", "r").checkpoints()}
    assert [epoch for epoch, misses in missed.items() if misses] == [8], (
        "the first that the store took again says what was skipped"
    )
    assert missed[8] is not None
    assert missed[8]["count"] == 5, "that of epoch 8 was made up for"
    assert missed[8]["why"] == f"the store {Store(root).root} does not answer"


@pytest.mark.usefixtures("retried_soon")
def test_the_last_epoch_waits_for_s3_to_be_back(root: str, s3_gate: Gate) -> None:
    back = threading.Timer(4, s3_gate.open)
    with (
        pytest.warns(UserWarning, match="halving: ") as warned,
        halving.init("p", id="r", root=root, system_metrics=None) as run,
    ):
        for epoch in run.epochs(3):
            if epoch == 2:
                s3_gate.shut()
            if epoch == 3:
                back.start()
            run.log({"a": 1.0}, step=epoch)
            run.save(seen=epoch)
    assert any("a checkpoint of r waits for the store s3://" in str(each.message) for each in warned)
    assert saved_epochs(root) == [(1, 1), (3, 3)]
    assert steps(root) == {1: 1, 2: 1, 3: 1}


@pytest.mark.usefixtures("retried_soon")
def test_the_last_save_of_a_loop_of_ones_own_is_made_up_for_at_the_end(root: str, s3_gate: Gate) -> None:
    with (
        pytest.warns(UserWarning, match="halving: "),
        halving.init("p", id="r", root=root, system_metrics=None) as run,
    ):
        assert run.save(seen=1)
        s3_gate.shut()
        assert run.save(seen=2) is None
        threading.Timer(3, s3_gate.open).start()
    assert saved_epochs(root) == [(0, 1), (0, 2)]


def test_a_run_waits_for_s3_to_be_opened_and_is_the_first_attempt(root: str, s3_gate: Gate) -> None:
    s3_gate.shut()
    threading.Timer(4, s3_gate.open).start()
    with pytest.warns(UserWarning, match="run r waits for the store"):
        run = halving.init("p", id="r", root=root, system_metrics=None)
    assert run.attempt == 1
    run.finish()
    assert recover(Store(root)) == []


def test_a_bucket_that_is_not_there_is_an_error_at_once(root: str) -> None:
    began = time.monotonic()
    with pytest.raises(StoreError, match="NO_SUCH_BUCKET") as raised:
        halving.init("p", root=root.replace("s3://halving-", "s3://none-"), system_metrics=None)
    assert not isinstance(raised.value, StoreUnavailable)
    assert time.monotonic() - began < 60  # it does not wait for ten minutes


def test_a_call_to_an_s3_that_is_silent_ends_within_half_a_minute(root: str, s3_gate: Gate) -> None:
    store = Store(root)
    store.create("a", b"1")
    s3_gate.swallow()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.read("a")
    assert time.monotonic() - began < 30


TRIAL = """
import dataclasses, sys, warnings
from multiprocessing import Pipe
from halving.trial_process.main import run_trial
from halving import Store
from tests.sdk.trial_process.attempts import context
platform, theirs = Pipe()
given = dataclasses.replace(context(Store()), run="r", grace_seconds=8.0)
run_trial(given, "trained:train", 5, theirs, 1)
"""


def test_a_trial_that_is_stopped_waits_for_s3_no_longer_than_its_grace_period(
    root: str, s3_gate: Gate, tmp_path: Path
) -> None:
    (tmp_path / "trained.py").write_text(
        "import sys, time\n"
        "def train(run):\n"
        "    for epoch in run.epochs():\n"
        "        if epoch == 2: print('unavailable', flush=True); sys.stdin.readline()\n"
        "        run.report(score=0.1)\n"
        "        run.save(seen=epoch)\n"
    )
    environment = {
        **os.environ,
        "HALVING_ROOT": root,
        "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}",
    }
    command = [sys.executable, "-c", TRIAL]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "unavailable\n"
        s3_gate.shut()
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 143
    assert time.monotonic() - began > 5
    s3_gate.open()
    assert [epoch for epoch, _ in saved_epochs(root)] == [1]


@pytest.mark.usefixtures("retried_soon")
def test_a_dataset_is_read_when_s3_is_back(root: str, s3_gate: Gate) -> None:
    store = Store(root)
    table = pa.table({"y": [1, 2]})
    dataset = snapshot(store, {"train": [put_shard(store, arrow_file(table), 2)]})
    s3_gate.shut()
    threading.Timer(4, s3_gate.open).start()
    with pytest.warns(UserWarning, match="dataset points (waits for|goes on: the store)"):
        assert dataset.target == "label"
    s3_gate.shut()
    threading.Timer(4, s3_gate.open).start()
    with pytest.warns(UserWarning, match="dataset points (waits for|goes on: the store)"):
        assert dataset.read("train").equals(table)
    s3_gate.shut()
    dataset.deadline = Deadline.after(0)
    with pytest.raises(StoreUnavailable):
        dataset.read("train")


@pytest.mark.usefixtures("retried_soon")
def test_an_artifact_is_stored_when_s3_is_back(root: str, s3_gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"1")
    with halving.init("p", id="r", root=root, system_metrics=None) as run:
        s3_gate.shut()
        threading.Timer(4, s3_gate.open).start()
        with pytest.warns(UserWarning, match="artifact weights of r waits for the store"):
            digest = run.log_artifact(tmp_path / "weights")
    assert Store(root).get_blob(digest) == b"1"
    assert Store(root).exists("runs/project=p/r/artifacts/weights.json")


@pytest.mark.usefixtures("retried_soon")
def test_a_store_that_fails_within_an_epoch_delays_its_end_only_until_it_is_noticed(
    root: str, s3_gate: Gate
) -> None:
    began = 0.0
    with (
        pytest.warns(UserWarning, match="a checkpoint of r could not be stored; training"),
        halving.init("p", id="r", root=root, system_metrics=None) as run,
    ):
        for epoch in run.epochs(3):
            if epoch == 2:
                assert time.monotonic() - began < ANSWER_SECONDS + 3
                s3_gate.open()
                wait_for_the_watch()
            assert run.save(seen=epoch) is not None
            if epoch == 1:
                s3_gate.swallow()
                began = time.monotonic()
    assert [epoch for epoch, _ in saved_epochs(root)] == [2, 3]


@pytest.mark.usefixtures("retried_soon")
def test_a_needed_checkpoint_waits_for_its_points_and_another_does_not_count(
    root: str,
) -> None:
    records = RunRecords(Store(root), "p", "r")
    flushes = 0

    def flush() -> bool:
        nonlocal flushes
        flushes += 1
        assert records.latest_checkpoint() is None
        return flushes == 3

    saver = Saver(records.store, records, flush, Deadline())
    saver.write({"seen": 1})
    with pytest.warns(UserWarning, match="as soon as that is possible: the points up to the checkpoint"):
        saver.count(1, 1, {}, None, needed=False)
    assert (saver.newest, flushes) == (None, 1)
    with pytest.warns(UserWarning, match="a checkpoint's record of r waits for the store"):
        saver.count(1, 1, {}, None, needed=True)
    assert saver.newest == records.latest_checkpoint() is not None
    assert flushes == 3


@pytest.mark.usefixtures("retried_soon")
def test_a_needed_checkpoint_waits_only_so_long_for_points_that_do_not_come(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halving.checkpoints.saver.POINTS_SECONDS", 0.5)
    records = RunRecords(Store(root), "p", "r")
    saver = Saver(records.store, records, lambda: False, Deadline())
    saver.write({"seen": 1})
    with pytest.warns(UserWarning, match="a checkpoint's record of r waits for the store"):
        saver.count(1, 1, {}, None, needed=True)
    assert records.latest_checkpoint() == SavedCheckpoint(
        1, 1, saver.write({"seen": 1}), {}, None, weights_digest({"seen": 1})
    )


@pytest.mark.usefixtures("retried_soon")
def test_the_record_of_the_last_save_of_a_loop_of_ones_own_is_made_up_for_at_the_end(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.warns(UserWarning, match="a checkpoint of r could not be stored; training"),
        halving.init("p", id="r", root=root, system_metrics=None) as run,
    ):
        with monkeypatch.context() as patch:
            # unavailable between two requests of one save: no gate is that quick

            def unavailable(_: SavedCheckpoint) -> None:
                raise StoreUnavailable("HTTP status 503")

            patch.setattr(run.records, "add_checkpoint", unavailable)
            assert run.save(seen=1) is not None
        assert saved_epochs(root) == []
    assert saved_epochs(root) == [(0, 1)]


def leave_while_unavailable(run: halving.Run) -> None:
    """Return from the middle of the loop; ``where`` says whether in an epoch that is complete."""
    for epoch in run.epochs():
        if epoch == 2:
            return
        GATE[0].shut()
        run.report(score=0.5)
        run.save(seen=epoch)
        if run.params["where"] == "after save":
            return


GATE: list[Gate] = []


@pytest.mark.parametrize("where", ["after save", "in the next epoch"])
@pytest.mark.usefixtures("retried_soon")
def test_a_trial_without_a_checkpoint_while_s3_is_unavailable_is_not_to_blame(
    root: str, s3_gate: Gate, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    GATE[:] = [s3_gate]
    monkeypatch.setattr(
        "halving.checkpoints.saver.retry_while_unavailable", lambda store, what, action, deadline: action()
    )
    monkeypatch.setattr("halving.run.run._TRIAL_END_SECONDS", 1.0)
    trial = attempts.context(Store(root), where=where)
    platform = multiprocessing.Pipe()
    with pytest.warns(UserWarning, match="halving: "):
        run_trial(trial, f"{__name__}:leave_while_unavailable", 9, platform[1], 1)
    said = platform[0].recv()
    assert isinstance(said, Interrupted)
    assert said.reason.startswith("the store was unavailable: ")
    wait_for_the_watch()  # S3 remains unavailable, but the run is over: nobody asks it any more
