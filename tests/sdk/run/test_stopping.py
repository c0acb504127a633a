"""SIGTERM in a trial: a checkpoint inside the grace period, and a resume that trains what the uninterrupted
trial would have.
"""

import dataclasses
import itertools
import multiprocessing
from typing import Any

import pytest

from halving import Run, Store
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords
from halving.trial.messages import Granted, ReachedRung, Stopped
from halving.trial_process.main import run_trial
from tests.sdk.run import stopped_trials
from tests.sdk.run.clocks import own_time
from tests.sdk.run.stopped_trials import (
    check_resume_in_mid_epoch,
    newest,
    run_stopped,
    run_stopped_while_the_store_is_away,
    sigterm,
)
from tests.sdk.trial_process.attempts import context, execute, status

pytestmark = pytest.mark.usefixtures("signals")


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
    assert run_stopped(store, f"{__name__}:{trainable}", 5) == []
    assert newest(store) == (kept, list(range(1, kept + 1)))
    heard = execute(store, f"{__name__}:{trainable}", 5, Granted(5, complete=True), attempt=2)
    assert [message.values for message in heard if isinstance(message, ReachedRung)] == [{"score": 0.15}]
    assert newest(store) == (5, [1, 2, 3, 4, 5])


def train_by_batches(run: Run) -> None:
    stopped_trials.train_by_batches(run, sigterm)


def test_a_save_in_mid_epoch_ends_a_stopped_trial_there_and_a_resume_goes_on_there(store: Store) -> None:
    check_resume_in_mid_epoch(store, f"{__name__}:train_by_batches")


def return_when_stopping(run: Run) -> None:
    stopped_trials.return_when_stopping(run, sigterm)


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
    assert run_stopped(store, f"{__name__}:{trainable}", 5) == []
    assert newest(store) == (1, [1])


def test_a_trial_stopped_at_the_end_of_its_rung_asks_and_trains_nothing_again(
    store: Store,
) -> None:
    assert run_stopped(store, f"{__name__}:train", 3) == []
    heard = execute(store, f"{__name__}:train", 3, Granted(3, complete=True), attempt=2)
    saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert saved is not None
    assert heard == [ReachedRung(3, {"score": 0.06}, saved.digest), Stopped()]
    assert (saved.epoch, saved.attempt) == (3, 1)


def train_late(run: Run) -> None:
    for epoch in run.epochs():
        sigterm()
        own_time.let_pass(run.params["late"])
        run.report(score=0.1)
        run.save(seen=[epoch])


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize("share", [0.9, 1.5, 4.0])
def test_an_epoch_that_ends_late_in_its_grace_period_waits_for_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    trial = dataclasses.replace(context(store), params={"late": 30 * share}, grace_seconds=30)
    run_stopped_while_the_store_is_away(trial, f"{__name__}:train_late", monkeypatch)


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
        tries.append(own_time())
        if len(tries) > 1:
            own_time.let_pass(31)
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
            own_time.let_pass(25)
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
