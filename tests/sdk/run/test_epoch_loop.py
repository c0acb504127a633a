"""Epochs, checkpoints and objectives of a trial together: what is written when, and what counts after an
interruption.
"""

import gc
import json
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from halving import Diverged, InvalidInput, ObjectiveMissing, Run, Store
from halving.checkpoints.restoring import restore
from halving.trial.context import ObjectiveRule
from tests.sdk.checkpoints.clocks import Clock
from tests.sdk.run.clocks import Slow
from tests.sdk.run.runs import Grants, end_of, saved_epochs, start, trial

BEST = (ObjectiveRule("score", "best"),)


def epoch_in(store: Store, digest: str | None) -> int:
    """The epoch that was saved as plain data in a checkpoint."""
    assert digest is not None
    return int(restore(store, digest, {"epoch": None}, with_rng=False)["epoch"])


# When a checkpoint is written


def test_a_trial_saves_its_first_epoch_every_rung_and_what_is_worth_its_cost(
    store: Store, clock: Slow
) -> None:
    grants = Grants(2, 17)
    with trial(store, grants) as run:
        for epoch in run.epochs():
            clock.epoch()
            run.report(score=0.5)
            digest = run.save(epoch=epoch)
            assert (digest is not None) == (epoch in (1, 2, 7, 12, 17))
    assert saved_epochs(run) == [1, 2, 7, 12, 17]
    assert [epoch_in(store, digest) for digest in grants.digests] == [2, 17]
    assert end_of(run)["checkpoints"] == {"saves": 5, "skipped": 12, "seconds": 5.0, "missed": None}


@pytest.mark.parametrize("leave", ["at the end", "by break"])
def test_a_script_writes_as_seldom_and_leaves_the_last_epoch(store: Store, clock: Slow, leave: str) -> None:
    with start(store) as run:
        for epoch in run.epochs(10 if leave == "at the end" else 20):
            clock.epoch()
            run.report(loss=1.0)
            run.save(epoch=epoch)
            if epoch == 10:
                break
    assert saved_epochs(run) == [1, 6, 10]
    assert run.checkpoint is not None
    assert epoch_in(store, run.checkpoint.digest) == 10


def test_a_skipped_save_reads_no_state_and_frees_the_objects_after_its_epoch(
    store: Store, clock: Slow
) -> None:
    class Model:
        calls = 0

        def state_dict(self) -> dict[str, Any]:
            Model.calls += 1
            return {}

        def load_state_dict(self, state: Any) -> None: ...

    kept: list[weakref.ref[Model]] = []
    with trial(store, Grants(5)) as run:
        for epoch in run.epochs():
            if epoch == 4:
                gc.collect()
                assert [reference() for reference in kept] == [None, None]
            model = Model()
            run.report(score=0.5)
            run.save(model=model)
            if epoch in (2, 3):
                kept.append(weakref.ref(model))
            del model
    assert (Model.calls, saved_epochs(run)) == (2, [1, 5])


def test_a_save_in_mid_epoch_never_stands_for_the_end_of_its_epoch(store: Store, clock: Slow) -> None:
    with trial(store, Grants(40)) as run:
        for epoch in run.epochs():
            for batch in range(4):
                clock.now += 1
                run.save(epoch=epoch, batch=batch)
            run.report(score=0.5)
    checkpoints = run.records.checkpoints()
    assert len(checkpoints) > 5
    for saved in checkpoints:
        assert restore(store, saved.digest, {"epoch": 0, "batch": 0}, with_rng=False) == {
            "epoch": saved.epoch,
            "batch": 3,
        }


# Objectives


@pytest.mark.parametrize("save_first", [True, False])
def test_the_best_epoch_has_a_checkpoint_of_its_own_beside_the_rungs(
    store: Store, clock: Slow, save_first: bool
) -> None:
    scores = [0.1, 0.2, 0.9, 0.9, 0.3, 0.4]
    grants = Grants(2, 6)
    with trial(store, grants, objectives=BEST) as run:
        for epoch in run.epochs():
            if save_first:
                run.save(epoch=epoch)
            run.report(score=scores[epoch - 1])
            if not save_first:
                run.save(epoch=epoch)
    assert grants.questions == [(2, {"score": 0.2}), (6, {"score": 0.9})]
    assert [epoch_in(store, digest) for digest in grants.digests] == [2, 6]
    assert [epoch_in(store, digest) for digest in grants.best] == [2, 3]
    assert saved_epochs(run) == [1, 2, 3, 6]


def test_only_the_first_objective_has_a_best_checkpoint_and_only_if_its_best_counts(store: Store) -> None:
    grants = Grants(2)
    with trial(store, grants, objectives=(ObjectiveRule("loss", "end", maximize=False), *BEST)) as run:
        for epoch in run.epochs():
            run.report(loss=1 / epoch, score=1 / epoch)
            run.save(epoch=epoch)
    assert (grants.questions, grants.best) == ([(2, {"loss": 0.5, "score": 1.0})], [None])


@pytest.mark.usefixtures("every_save")
def test_epochs_that_a_resumed_trial_trains_again_count_once(store: Store) -> None:
    rules = (ObjectiveRule("score", "best"), ObjectiveRule("mean", "average", window=3))

    def train(run: Run, values: dict[int, float], crash_in: int | None = None) -> None:
        with run:
            run.restore(epoch=None)
            for epoch in run.epochs():
                run.report(score=values[epoch], mean=values[epoch])
                if epoch == crash_in:
                    raise RuntimeError("killed")
                if epoch != 4:
                    run.save(epoch=epoch)

    with pytest.raises(RuntimeError, match="killed"):
        train(trial(store, Grants(6), objectives=rules), {1: 0.1, 2: 0.5, 3: 0.2, 4: 9.0, 5: 9.5}, crash_in=5)
    grants = Grants(6)
    train(trial(store, grants, attempt=2, objectives=rules), {4: 0.3, 5: 0.3, 6: 0.6})
    assert grants.questions == [(6, {"score": 0.6, "mean": pytest.approx(0.4)})]
    assert [epoch_in(store, digest) for digest in grants.best] == [6]
    grants = Grants(7)
    train(trial(store, grants, attempt=3, objectives=rules), {7: 0.0})
    assert grants.questions == [(7, {"score": 0.6, "mean": pytest.approx(0.3)})]
    assert [epoch_in(store, digest) for digest in grants.best] == [6]


def test_a_bounded_metric_is_reported_with_the_objective_and_missed_by_name(store: Store) -> None:
    grants = Grants(2)
    with trial(store, grants, bounded=("latency",)) as run:
        for epoch in run.epochs():
            run.report(score=0.5, **({"latency": 12.0} if epoch == 1 else {}))
            run.save(epoch=epoch)
    assert grants.questions == [(2, {"score": 0.5, "latency": 12.0})]
    run = trial(store, Grants(1), attempt=2, bounded=("latency",))
    epochs = run.epochs()
    next(epochs)
    run.report(score=0.5)
    run.save(epoch=1)
    with pytest.raises(ObjectiveMissing, match="metric 'latency', which the sweep bounds"):
        next(epochs)
    run.finish()


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        ({"latency": math.nan}, "metric 'latency' became nan at epoch 2"),
        ({"loss": 11.0}, r"metric 'loss' became 11\.0 at epoch 2, above its bound of 10\.0"),
        ({"loss": -math.inf}, "metric 'loss' became -inf at epoch 2"),
        ({"score": -2.0}, r"objective 'score' became -2\.0 at epoch 2, below its bound of 0\.0"),
    ],
)
def test_a_report_out_of_bounds_ends_the_trial_at_once(
    store: Store, reported: dict[str, float], message: str
) -> None:
    grants = Grants(3)
    run = trial(store, grants, bounded=("latency",), divergence={"loss": (None, 10.0), "score": (0.0, None)})

    def train() -> None:
        with run:
            for epoch in run.epochs():
                run.save(epoch=epoch)
                run.report(**{"score": 0.5, "latency": 1.0, "loss": 1.0, **(reported if epoch == 2 else {})})

    with pytest.raises(Diverged, match=message):
        train()
    assert (saved_epochs(run), grants.questions) == ([1], [])


def test_a_trainable_that_catches_its_divergence_does_not_go_on(store: Store) -> None:
    run = trial(store, Grants(3))
    epochs = run.epochs()
    next(epochs)
    with pytest.raises(Diverged):
        run.report(score=math.nan)
    run.save(epoch=1)
    with pytest.raises(Diverged, match="objective 'score' became nan at epoch 1"):
        next(epochs)
    assert saved_epochs(run) == []
    run.finish("failed")


# How far it goes


def test_max_epochs_is_the_last_rungs_in_a_trial_and_the_loops_in_a_script(store: Store) -> None:
    with trial(store, Grants(1), max_epochs=27) as run:
        assert run.max_epochs == 27
    with start(store) as run:
        with pytest.raises(InvalidInput, match=r"run\.max_epochs is not known before run\.epochs\(n\)"):
            _ = run.max_epochs
        epochs = run.epochs(12)
        assert run.max_epochs == 12
        assert len(list(epochs)) == 12


def test_one_warning_of_an_epoch_beyond_the_grace_period_unless_stopping_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("halving.run.epoch_loop.monotonic", clock)

    def train(run: Run, look: bool) -> None:
        with run:
            for epoch in run.epochs():
                clock.now += 95
                assert not (look and run.stopping)
                run.report(score=0.5)
                run.save(epoch=epoch)

    train(trial(store, Grants(2)), look=True)
    with pytest.warns(
        UserWarning, match="an epoch takes 95 s, and a trial that is stopped has 30 s to save"
    ) as warned:
        train(trial(store, Grants(4), attempt=2), look=False)
    assert len(warned) == 1
    assert warned[0].filename == __file__


@pytest.mark.parametrize("finish", [lambda run: None, lambda run: run.finish()])
def test_a_loop_that_an_exception_has_left_writes_nothing_after_the_end(
    store: Store, finish: Callable[[Run], None]
) -> None:
    run = trial(store, Grants(5))

    def train() -> None:
        for epoch in run.epochs():
            run.report(score=0.5)
            if epoch == 2:
                finish(run)
                raise KeyError("boom")
            run.save(epoch=epoch)

    with pytest.raises(KeyError):
        train()
    gc.collect()
    run.finish("failed")
    assert saved_epochs(run) == [1]
    assert json.loads(store.read(f"{run.records.folder}/end-0001.json"))["epoch"] == 1
