"""A run as a trial: its epochs are granted, its rungs are reported, and it continues where it stopped."""

import math
import random

import pytest

from halving import CheckpointMissing, Diverged, ObjectiveMissing, Store
from tests.sdk.run.runs import Grants, end_of, points, train_with, trial


def test_the_controller_is_asked_exactly_at_the_granted_budgets(store: Store) -> None:
    grants = Grants(1, 3, 9)
    trained = []
    with trial(store, grants) as run:
        for epoch in run.epochs():
            trained.append(epoch)
            run.report(score=epoch / 10, loss=1.0)
            run.save(epoch=epoch)
    assert trained == list(range(1, 10))
    assert grants.questions == [(1, {"score": 0.1}), (3, {"score": 0.3}), (9, {"score": 0.9})]
    assert grants.digests == [saved.digest for saved in run.records.checkpoints() if saved.epoch in (1, 3, 9)]


def test_a_pause_ends_the_loop_and_a_later_attempt_continues_from_it(store: Store) -> None:
    trained = []
    for attempt, budget in ((1, 2), (2, 6)):
        grants = Grants(budget)
        with trial(store, grants, attempt) as run:
            run.restore(epoch=None)
            for epoch in run.epochs():
                trained.append((attempt, epoch))
                run.report(score=float(epoch))
                run.save(epoch=epoch)
        assert grants.questions == [(budget, {"score": float(budget)})]
    assert trained == [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5), (2, 6)]


def test_a_trial_killed_before_its_decision_asks_again_and_trains_nothing_again(store: Store) -> None:
    class Killed(Grants):
        def report_rung(
            self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
        ) -> int:
            raise ConnectionResetError("the worker is gone")

    run = trial(store, Killed(2))
    with pytest.raises(ConnectionResetError):
        train_with(run, score=0.5)
    digest = run.records.checkpoints()[-1].digest

    paused = Grants(2)
    with trial(store, paused, attempt=2) as run:
        run.restore(epoch=None)
        assert list(run.epochs()) == []
    assert (paused.questions, paused.digests) == ([(2, {"score": 0.5})], [digest])

    continued = Grants(2, 3)
    with trial(store, continued, attempt=3) as run:
        run.restore(epoch=None)
        epochs = run.epochs()
        assert next(epochs) == 3
        run.report(score=0.75)
        run.save(epoch=3)
        assert list(epochs) == []
    assert continued.questions == [(2, {"score": 0.5}), (3, {"score": 0.75})]


def test_a_trial_that_was_not_restored_trains_from_the_start(store: Store) -> None:
    for attempt in (1, 2):
        grants = Grants(2)
        with trial(store, grants, attempt) as run:
            for epoch in run.epochs():
                run.report(score=float(epoch))
                run.save(epoch=epoch)
        assert grants.questions == [(2, {"score": 2.0})]
    assert [(saved.epoch, saved.attempt) for saved in run.records.checkpoints()] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("save_first", [True, False])
@pytest.mark.usefixtures("every_save")
def test_a_trial_that_diverges_ends_and_keeps_its_last_good_checkpoint(
    store: Store, value: float, save_first: bool
) -> None:
    grants = Grants(5)
    run = trial(store, grants)

    def train() -> None:
        with run:
            for epoch in run.epochs():
                if save_first:
                    run.save(epoch=epoch)
                run.report(score=value if epoch == 3 else 0.5)
                run.save(epoch=epoch)

    with pytest.raises(Diverged, match=f"objective 'score' became {value} at epoch 3"):
        train()
    assert (run.epoch, grants.questions, end_of(run)["status"]) == (2, [], "failed")
    assert [saved.epoch for saved in run.records.checkpoints()] == [1, 2]
    assert run.checkpoint == run.records.latest_checkpoint()
    assert [repr(number) for key, step, number in points(run) if step == 3] == [repr(value)]


def test_a_nan_in_another_metric_does_not_end_a_trial(store: Store) -> None:
    grants = Grants(1)
    with trial(store, grants) as run:
        for epoch in run.epochs():
            run.report(score=0.5, other=math.nan)
            run.save(epoch=epoch)
    assert grants.questions == [(1, {"score": 0.5})]


def test_a_rung_without_its_objective_says_what_was_reported(store: Store) -> None:
    reports: list[tuple[dict[str, float], str]] = [
        ({}, "it reported nothing"),
        ({"loss": 1.0, "acc": 0.5}, r"it reported \['acc', 'loss'\]"),
    ]
    for attempt, (reported, heard) in enumerate(reports, 1):
        with trial(store, Grants(1), attempt) as run:
            epochs = run.epochs()
            next(epochs)
            if reported:
                run.report(**reported)
            run.save(a=1)
            with pytest.raises(
                ObjectiveMissing,
                match=rf"'score' was not reported in epoch 1: {heard}; call run\.report\(score=…\)",
            ):
                next(epochs)


def test_an_objective_of_an_earlier_epoch_does_not_stand_in(store: Store) -> None:
    with trial(store, Grants(2)) as run:
        epochs = run.epochs()
        next(epochs)
        run.report(score=0.5)
        assert next(epochs) == 2
        run.save(a=1)
        with pytest.raises(ObjectiveMissing, match="in epoch 2: it reported nothing"):
            next(epochs)


def test_a_rung_without_a_checkpoint_of_its_own_epoch_says_so(store: Store) -> None:
    grants = Grants(2)
    with trial(store, grants) as run:
        epochs = run.epochs()
        next(epochs)
        run.save(a=1)
        assert next(epochs) == 2
        run.report(score=0.5)
        with pytest.raises(
            CheckpointMissing, match=r"epoch 2 ends a rung and has no checkpoint; call run\.save"
        ):
            next(epochs)
    assert grants.questions == []


def test_a_trial_has_its_snapshot_seed_and_parent(store: Store) -> None:
    with trial(store, Grants(1)) as run:
        assert (run.dataset.name, run.dataset.digest) == ("d", "sha256:" + "0" * 64)
        first = random.random()
    with trial(store, Grants(1), attempt=2):
        assert random.random() == first
    assert run.records.read().items() >= {"seed": 7, "parent": {"sweep": "s"}, "params": {"lr": 0.1}}.items()


def test_a_trial_continues_from_another_runs_checkpoint_until_it_has_its_own(
    store: Store,
) -> None:
    with trial(store, Grants(2)) as source:
        for epoch in source.epochs():
            source.report(score=0.5)
            source.save(seen=epoch)
    checkpoint = source.records.checkpoints()[-1]._asdict()
    trained = []
    for attempt, granted in ((1, 3), (2, 4)):
        with trial(store, Grants(granted), attempt, run="t.0000", start_from=checkpoint) as run:
            assert run.restore(seen=None)["seen"] == granted - 1
            for epoch in run.epochs():
                trained.append(epoch)
                run.report(score=0.6)
                run.save(seen=epoch)
    assert trained == [3, 4]
