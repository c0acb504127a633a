"""Trials that end before their last epoch: by a SIGTERM, or because the platform wants their place."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from halving import Run, Store
from halving.checkpoints.restoring import restore
from halving.errors import StoreUnavailable
from halving.records.run_record import RunRecords
from halving.trial.context import TrialContext
from halving.trial.messages import Granted, Message, ReachedRung
from halving.trial_process.main import run_trial
from tests.sdk.trial_process.attempts import context, execute, status


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def run_stopped(store: Store, trainable: str, granted: int) -> list[Message]:
    """Run a trial that ends with status 143; return the messages that it sent before."""
    platform, own = multiprocessing.Pipe()
    with pytest.raises(SystemExit) as ended:
        run_trial(context(store), trainable, granted, own, threads=2)
    assert ended.value.code == 143
    assert status(store) == "terminated"
    messages: list[Message] = []
    while platform.poll():
        messages.append(platform.recv())
    return messages


def newest(store: Store) -> tuple[int, Any]:
    """The epoch of the newest checkpoint, and the state that was saved in it."""
    saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert saved is not None
    return saved.epoch, restore(store, saved.digest, {"seen": None}, with_rng=False)["seen"]


def train_by_batches(run: Run, stop: Callable[[], None]) -> None:
    """Train six batches an epoch; the first attempt is stopped in the third batch of epoch 2.

    Its position in the epoch is among the saved values.
    """
    state = run.restore(seen=[], batch=0)
    batches = list(state["seen"])
    first = int(state["batch"])
    for epoch in run.epochs():
        for batch in range(first, 6):
            batches.append((epoch, batch))
            if run.attempt == 1 and (epoch, batch) == (2, 2):
                stop()
            if run.stopping:
                run.save(seen=batches, batch=batch + 1)
        first = 0
        run.report(score=len(batches) / 100)
        run.save(seen=batches, batch=0)


def check_resume_in_mid_epoch(store: Store, trainable: str) -> None:
    """Check that a trainable of :func:`train_by_batches` ends and resumes in the middle of epoch 2."""
    assert run_stopped(store, trainable, 3) == []
    assert newest(store) == (1, [(1, batch) for batch in range(6)] + [(2, batch) for batch in range(3)])
    messages = execute(store, trainable, 3, Granted(3, complete=True), attempt=2)
    assert [message.values for message in messages if isinstance(message, ReachedRung)] == [{"score": 0.18}]
    assert newest(store) == (3, [(epoch, batch) for epoch in (1, 2, 3) for batch in range(6)])


def return_when_stopping(run: Run, stop: Callable[[], None]) -> None:
    """Train until epoch 2, in which the trial is stopped, and return."""
    for epoch in run.epochs():
        if epoch == 2:
            stop()
        if run.stopping:
            return
        run.report(score=0.1)
        run.save(seen=[epoch])


def run_stopped_while_the_store_is_away(
    trial: TrialContext, trainable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a trial that is stopped in its first epoch; the store refuses its first checkpoint once."""
    put = Store.put_blob
    failed: list[tuple[Any, ...]] = []

    def fail_once(*arguments: Any) -> str:
        if not failed:
            failed.append(arguments)
            raise StoreUnavailable("503")
        return put(*arguments)

    monkeypatch.setattr(Store, "put_blob", fail_once)
    with pytest.raises(SystemExit):
        run_trial(trial, trainable, 2, multiprocessing.Pipe()[1], threads=2)
    assert failed
    store = Store(trial.root)
    assert (status(store), newest(store)) == ("terminated", (1, [1]))
