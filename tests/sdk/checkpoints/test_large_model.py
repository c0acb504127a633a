"""One process that saves what is large: a save is a copy, which is written while training goes on."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from halving import Store
from halving.checkpoints import large_model
from halving.errors import StoreError, StoreUnavailable
from halving.run.run import Run
from halving.trial.context import ObjectiveRule
from tests.checkpoints import Gate
from tests.sdk.checkpoints.large_models import MIN_BYTES, WIDTH, Distributed, saved_values, value_in
from tests.sdk.conftest import Script
from tests.sdk.run.runs import Grants, start, trial

pytestmark = pytest.mark.usefixtures("every_save", "small_models_are_large")


def test_training_goes_on_and_changes_the_weights_while_they_are_written(store: Store, gate: Gate) -> None:
    with start(store) as run:
        distributed = Distributed(run)
        for epoch in run.epochs(3):
            distributed.fill(float(epoch))
            digest = run.save(**distributed.state)
            if epoch == 1:
                assert digest is None
                assert run.checkpoint is None  # it does not count before it is written
            if epoch == 2:
                distributed.fill(-1.0)  # a part of the next step
                gate.open.set()
        assert digest is not None
        assert run.checkpoint is not None
        assert run.checkpoint.digest == digest
    assert saved_values(store, run) == [(1, 1.0), (3, 3.0)]  # one was in flight in epoch 2
    assert all(saved.sharded for saved in run.records.checkpoints())


def returned_early(store: Store) -> Run:
    """A trial that leaves its loop in the second epoch, after the first one's checkpoint was begun."""
    run = trial(store, Grants(9))
    for epoch in run.epochs():
        if epoch == 2:
            break
        run.report(score=0.5)
        run.save(model=nn.Linear(16, WIDTH, bias=False))
    return run


def test_a_trial_that_returns_early_waits_for_the_checkpoint_that_it_has_saved(
    store: Store, gate: Gate, wait_begun: threading.Event
) -> None:
    run = returned_early(store)
    assert run.checkpoint is None
    threading.Thread(target=lambda: wait_begun.wait(60) and gate.open.set(), daemon=True).start()
    run.end()
    assert run.checkpoint is not None
    assert (run.checkpoint.epoch, run.unsaved) == (1, None)
    run.finish()


def test_a_trial_that_returns_without_a_checkpoint_names_the_unavailable_store(
    store: Store, gate: Gate
) -> None:
    gate.fault = StoreUnavailable("curlCode: 28, Timeout was reached")
    gate.open.set()
    run = returned_early(store)
    with pytest.warns(UserWarning, match="a checkpoint of s.0001 could not be stored"):
        run.end()
    assert "curlCode: 28" in str(run.unsaved)
    run.finish()


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore:halving. a checkpoint:UserWarning")
def test_a_save_behind_a_trials_loop_does_not_wait_for_the_best_epochs_for_ever(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halving.checkpoints.sharded.saver.RETRY_SECONDS", 0.5)
    gate.fault = StoreUnavailable("curlCode: 28, Timeout was reached")
    gate.open.set()
    run = trial(store, Grants(9), objectives=(ObjectiveRule("score", maximize=True, summary="best"),))
    model = nn.Linear(16, WIDTH)
    for epoch in run.epochs():
        if epoch == 2:
            break
        run.report(score=0.5)
        run.save(model=model)
    with pytest.raises(StoreUnavailable):
        run.save(model=model)
    gate.fault = None
    assert run.save(model=model) is not None
    run.finish()


def test_a_trial_waits_for_the_checkpoint_of_a_rung(store: Store, gate: Gate) -> None:
    gate.open.set()
    grants = Grants(2, 4)
    with trial(store, grants) as run:
        distributed = Distributed(run)
        for epoch in run.epochs():
            distributed.fill(float(epoch))
            run.report(score=0.5)
            run.save(**distributed.state)
    assert [value_in(store, digest) for digest in grants.digests] == [2.0, 4.0]


@pytest.mark.parametrize("is_fused", [False, True], ids=["plain", "fused"])
def test_a_resumed_training_is_the_one_that_was_not_interrupted(store: Store, is_fused: bool) -> None:
    """Also one whose weights are not in C order: fused optimizers go through memory as it lies."""

    def train(run: Run, until: int) -> torch.Tensor:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16 * 36, WIDTH)
        )
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(model.parameters(), fused=is_fused)
        training = run.distribute(model, optimizer)
        run.restore(model=model, optimizer=optimizer, training=training)
        for epoch in run.epochs(4):
            images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(epoch))
            training.step(lambda module, rows: module(rows).square().mean(), images)
            run.save(model=model, optimizer=optimizer, training=training)
            if epoch == until:
                break
        return nn.utils.parameters_to_vector(
            parameter.detach().contiguous() for parameter in model.parameters()
        )

    with start(store, run_id="straight", seed=1) as run:
        expected = train(run, 4)
    with start(store, run_id="interrupted", seed=1) as run:
        train(run, 2)
    with start(store, run_id="interrupted", seed=2) as run:  # the checkpoint has the random states
        assert torch.equal(train(run, 4), expected)
    assert all(saved.sharded for saved in run.records.checkpoints())


def test_in_a_loop_of_ones_own_no_save_is_skipped_or_written_later_than_it_was_made(
    store: Store, gate: Gate
) -> None:
    gate.open.set()
    with start(store) as run:
        distributed = Distributed(run)
        for value in (1.0, 2.0, 3.0):
            distributed.fill(value)
            run.save(**distributed.state)
        distributed.fill(-1.0)  # trained on, and not better
    assert [value for _, value in saved_values(store, run)] == [1.0, 2.0, 3.0]


def test_in_a_loop_that_raises_the_last_save_is_there(store: Store, gate: Gate) -> None:
    def train() -> None:
        with start(store) as run:
            distributed = Distributed(run)
            for value in (1.0, 2.0):
                distributed.fill(value)
                run.save(**distributed.state)
            raise KeyboardInterrupt

    gate.open.set()
    with pytest.raises(KeyboardInterrupt):
        train()
    with start(store) as again:
        assert [value for _, value in saved_values(store, again)] == [1.0, 2.0]


ENDING = """
import torch, halving
from torch import nn
from halving.checkpoints import large_model
large_model.MIN_BYTES = 0
run = halving.init("p", id="r", system_metrics=None)
model = nn.Linear(4, 4, bias=False)
training = run.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
for value in (1.0, 2.0):
    with torch.no_grad():
        model.weight.fill_(value)
    run.save(model=model, training=training)
"""


@pytest.mark.slow
def test_of_a_script_that_does_not_finish_its_run_the_last_save_is_there(
    script: Script, store: Store
) -> None:
    ended = script(ENDING)
    assert (ended.returncode, ended.stderr) == (0, "")
    resumed = script(
        "import torch, halving\n"
        "from torch import nn\n"
        "run = halving.init('p', id='r', system_metrics=None)\n"
        "model = nn.Linear(4, 4, bias=False)\n"
        "run.restore(model=model)\n"
        "print(model.weight.unique().item())\n"
        "run.finish()\n"
    )
    assert resumed.stdout == "2.0\n", resumed.stderr


def test_what_could_not_be_written_beside_training_is_told_and_the_next_is_written(
    store: Store, gate: Gate
) -> None:
    gate.fault = StoreUnavailable("curlCode: 28, Timeout was reached")
    gate.open.set()
    with start(store) as run:
        distributed = Distributed(run)
        for epoch in run.epochs(2):
            distributed.fill(float(epoch))
            if epoch == 1:
                run.save(**distributed.state)
                run._saver.drain(60)
                gate.fault = None
            else:
                with pytest.warns(
                    UserWarning, match="training continues, and the next checkpoint is stored.*curlCode: 28"
                ):
                    run.save(**distributed.state)
    assert saved_values(store, run) == [(2, 2.0)]


def test_an_epoch_that_is_not_complete_has_no_checkpoint(store: Store, gate: Gate) -> None:
    def train() -> None:
        with start(store) as run:
            distributed = Distributed(run)
            for epoch in run.epochs(9):
                distributed.fill(float(epoch))
                run.save(**distributed.state)
                if epoch == 3:
                    raise KeyboardInterrupt
                run._saver.drain(60)

    gate.open.set()
    with pytest.raises(KeyboardInterrupt):
        train()
    with start(store) as again:
        assert saved_values(store, again) == [(1, 1.0), (2, 2.0)]


def save_and_raise(run: Run) -> None:
    with run:
        run.save(model=nn.Linear(16, WIDTH, bias=False))
        raise KeyboardInterrupt


def test_a_script_that_ends_by_an_error_says_that_its_checkpoint_was_refused(
    store: Store, gate: Gate
) -> None:
    gate.fault = StoreError("the disk is full")
    gate.open.set()
    with (
        pytest.warns(UserWarning, match="the last checkpoint of r could not be stored: .*disk is full"),
        pytest.raises(KeyboardInterrupt),
    ):
        save_and_raise(start(store))


def test_a_script_that_fails_says_that_its_checkpoint_was_not_written_in_time(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halving.run.run._END_SECONDS", 0.1)
    monkeypatch.setattr("halving.run.run._MIN_END_SECONDS", 0.1)
    with (
        pytest.warns(UserWarning, match="the last checkpoint of r .*: it was still being written"),
        pytest.raises(KeyboardInterrupt),
    ):
        save_and_raise(start(store))


def test_a_flush_waits_for_the_checkpoint_that_is_being_written(
    store: Store, gate: Gate, wait_begun: threading.Event
) -> None:
    with start(store) as run:
        assert run.save(model=nn.Linear(16, WIDTH, bias=False)) is None
        assert not run.flush(0.1)
        wait_begun.clear()
        threading.Thread(target=lambda: wait_begun.wait(60) and gate.open.set(), daemon=True).start()
        assert run.flush(60)
        assert run.checkpoint == run.records.latest_checkpoint() is not None


@pytest.mark.parametrize("odd", [torch.eye(3).to_sparse(), None], ids=["not dense", "no room"])
def test_a_state_that_cannot_be_copied_any_more_is_saved_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, odd: torch.Tensor | None
) -> None:
    model = nn.Linear(16, WIDTH, bias=False)
    nn.init.ones_(model.weight)
    with start(store) as run:
        run.save(model=model)
        monkeypatch.setattr(large_model, "available_memory", lambda: 10 * MIN_BYTES)
        more = {"odd": odd} if odd is not None else {"replay": np.ones(10 * MIN_BYTES)}
        run.save(model=model, **more)
    assert [saved.sharded for saved in run.records.checkpoints()] == [True, False]
    assert [value for _, value in saved_values(store, run)] == [1.0, 1.0]
