"""A trial whose place is wanted, without hurry: it ends with its epoch, loses nothing, and comes to its rung
where that is its end.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halving import Run, Store
from halving.checkpoints.saver import Saver
from halving.distributed.ranks import Ranks
from halving.records.run_record import RunRecords
from halving.run import epoch_loop
from halving.trial.messages import Granted, ReachedRung, Stopped
from tests.gangs import run_gang
from tests.sdk.run import stopped_trials
from tests.sdk.run.clocks import Slow, own_time
from tests.sdk.run.runs import Grants, end_of, saved_epochs, trial
from tests.sdk.run.stopped_trials import (
    check_resume_in_mid_epoch,
    newest,
    run_stopped,
    run_stopped_while_the_store_is_away,
)
from tests.sdk.trial_process.attempts import context, execute, status

pytestmark = pytest.mark.usefixtures("signals")


def train(run: Run, meanwhile: Callable[[int], object]) -> list[int]:
    """Train as far as it is granted, one save at the end of each epoch; the epochs that were begun."""
    begun = []
    for epoch in run.epochs():
        begun.append(epoch)
        meanwhile(epoch)
        run.report(score=0.5)
        run.save(epoch=epoch)
    return begun


def train_until_asked_back_in(run: Run, last: int) -> None:
    with pytest.raises(SystemExit) as end:
        train(run, lambda epoch: run.ask_back() if epoch == last else None)
    assert end.value.code == 143
    assert end_of(run)["status"] == "terminated"


def test_the_epoch_is_trained_to_its_end_and_saved_though_no_checkpoint_is_due(
    store: Store,
    clock: Slow,
) -> None:
    run = trial(store, Grants(9))
    train_until_asked_back_in(run, last=3)
    assert saved_epochs(run) == [1, 3]


def test_a_trial_that_has_not_begun_an_epoch_trains_none(store: Store) -> None:
    run = trial(store, Grants(9))
    begun = list[int]()
    run.ask_back()
    with pytest.raises(SystemExit):
        train(run, begun.append)
    assert begun == []
    train_until_asked_back_in(trial(store, Grants(9), 2), last=2)
    resumed = trial(store, Grants(9), 3)
    resumed.restore(epoch=0)
    resumed.ask_back()
    with pytest.raises(SystemExit):
        train(resumed, begun.append)
    assert begun == []


def test_at_a_rung_the_platform_is_asked_and_its_answer_ends_the_trial(store: Store) -> None:
    grants = Grants(2)
    with trial(store, grants) as run:
        assert train(run, lambda epoch: run.ask_back() if epoch == 2 else None) == [1, 2]
    assert [epoch for epoch, _ in grants.questions] == [2]
    assert end_of(run)["status"] == "finished"


def test_a_trial_that_is_granted_more_at_the_same_time_stops_and_loses_nothing(
    store: Store,
) -> None:
    class Late(Grants):
        def report_rung(self, *arguments: Any) -> int:
            run.ask_back()
            return super().report_rung(*arguments)

    run = trial(store, Late(2, 5))
    begun = list[int]()
    with pytest.raises(SystemExit):
        train(run, begun.append)
    assert begun == [1, 2]
    assert saved_epochs(run) == [1, 2]


def test_an_epoch_that_has_just_ended_without_a_checkpoint_is_followed_by_one_with(
    store: Store,
    clock: Slow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = trial(store, Grants(9))
    settle = Saver.settle
    epochs = list[int]()

    def settle_and_ask(saver: Saver, **options: Any) -> str | None:
        digest = settle(saver, **options)
        if epochs[-1] == 3:
            run.ask_back()
        return digest

    monkeypatch.setattr(Saver, "settle", settle_and_ask)
    with pytest.raises(SystemExit):
        train(run, epochs.append)
    assert epochs == [1, 2, 3, 4]
    assert saved_epochs(run) == [1, 4]


def train_by_batches(run: Run) -> None:
    stopped_trials.train_by_batches(run, run.ask_back)


def test_a_trainable_that_looks_ends_at_its_save_in_mid_epoch_and_goes_on_there(store: Store) -> None:
    check_resume_in_mid_epoch(store, f"{__name__}:train_by_batches")


def return_when_stopping(run: Run) -> None:
    stopped_trials.return_when_stopping(run, run.ask_back)


def test_a_trainable_that_returns_because_it_was_asked_back_has_not_returned_early(store: Store) -> None:
    assert run_stopped(store, f"{__name__}:return_when_stopping", 5) == []
    assert newest(store) == (1, [1])


def look_in_the_last_epoch(run: Run) -> None:
    for epoch in run.epochs():
        run.report(score=0.1)
        run.save(seen=[epoch])
        if epoch == 2:
            run.ask_back()
            assert run.stopping


def test_a_trial_that_has_come_to_its_last_rung_is_finished_whoever_wants_its_place(store: Store) -> None:
    heard = execute(store, f"{__name__}:look_in_the_last_epoch", 2, Granted(2, complete=True))
    assert [type(message) for message in heard] == [ReachedRung, Stopped]
    assert status(store) == "finished"


@pytest.mark.usefixtures("own_clock")
def test_a_sigterm_long_after_it_was_asked_back_begins_a_grace_period(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trial(store, Grants(9), grace_seconds=30)

    def ask_and_terminate(epoch: int) -> None:
        run.ask_back()
        own_time.let_pass(100)
        assert run.terminate(), "it has its grace period from now on"
        own_time.let_pass(29)
        assert run.terminate()
        own_time.let_pass(2)
        assert not run.terminate(), "and no more"

    monkeypatch.setattr(epoch_loop, "warn", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        train(run, ask_and_terminate)
    assert saved_epochs(run) == [1]


def train_long(run: Run) -> None:
    for epoch in run.epochs():
        run.ask_back()
        own_time.let_pass(100)
        run.report(score=0.1)
        run.save(seen=[epoch])


@pytest.mark.usefixtures("own_clock")
def test_an_unavailable_store_is_waited_for_as_at_a_rung(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = dataclasses.replace(context(store), grace_seconds=30)
    run_stopped_while_the_store_is_away(trial, f"{__name__}:train_long", monkeypatch)


def asked_back_in_the_second_epoch(
    ranks: Ranks, root: Path, *, looks: bool
) -> tuple[int, float, int | str | None]:
    """How many epochs a rank has trained, until when it would have waited for a store in the last, and how it
    ended.
    """
    run = trial(Store(root), Grants(9), ranks=ranks, grace_seconds=600)
    waited = list[float]()

    def ask_back(epoch: int) -> None:
        if epoch == 2 and run.rank == 0:
            run.ask_back()
        while looks and epoch == 2 and not run.stopping:
            pass
        run.report(score=0.5)
        waited.append(run._grace.time)

    with pytest.raises(SystemExit) as end:
        train(run, ask_back)
    return len(waited), waited[-1], end.value.code


@pytest.mark.slow
@pytest.mark.parametrize("looks", [False, True])
def test_asking_rank_0_back_ends_all_ranks_with_one_epoch_and_no_grace_period(
    tmp_path: Path, looks: bool
) -> None:
    forever = math.inf
    assert (
        run_gang(2, partial(asked_back_in_the_second_epoch, looks=looks), tmp_path) == [(2, forever, 143)] * 2
    )
    assert [saved.epoch for saved in RunRecords(Store(tmp_path), "p", "s.0001").checkpoints()] == [1, 2]
