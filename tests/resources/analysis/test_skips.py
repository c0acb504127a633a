"""What a training has left out: steps that were not finite, and checkpoints that the store did not take."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import halving
from halving import Store
from halving.errors import Diverged
from halving.records.run_record import RunRecords, SavedCheckpoint
from resources.analysis.skips import COUNTED, Culprit, Skips, skipped_steps, skips_of
from resources.analysis.system_points import read_system_points

_AWAY = {"count": 5, "since": "2026-03-01T10:00:00+00:00", "why": "the store does not answer"}


def _loss(model: nn.Module, x: Tensor, factor: float) -> Tensor:
    return (model(x) * factor).mean()


def _train(root: Path, factors: list[float]) -> None:
    """An attempt at a run, with one step for each factor of its loss."""
    with halving.init("p", {}, id="r", root=str(root), system_metrics=None, seed=1) as run:
        model = nn.Linear(2, 1)
        training = run.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), skips=2)
        for factor in factors:
            training.step(_loss, torch.ones(4, 2), factor)


def _skips(root: Path, run: str = "r") -> Skips | None:
    points = read_system_points(Store(root), "p", run, [COUNTED])
    assert points is not None
    return skips_of(Store(root), "p", run, points)


@pytest.mark.filterwarnings("ignore:step .* was left out")
def test_each_attempts_steps_that_were_not_finite_are_counted_with_their_rank(
    tmp_path: Path,
) -> None:
    _train(tmp_path, [1.0, float("nan"), 1.0, float("inf"), 1.0])
    with pytest.raises(Diverged):
        _train(tmp_path, [1.0, *[float("nan")] * 3])
    skips = _skips(tmp_path)
    assert skips is not None
    assert [(each.attempt, each.count, each.last_step, each.culprits) for each in skips.steps] == [
        (1, 2, 4, [Culprit(0, 2, 0)]),
        (2, 3, 4, [Culprit(0, 3, 0)]),
    ]
    assert skips.texts[0].startswith(
        "attempt 1 left out 2 steps that were NaN or infinite (the loss of rank 0 in 2), the last at step "
        "4, 2"
    )
    assert skips.texts[0].endswith(" UTC: lower the learning rate, or look at the data of these steps")


def test_a_training_without_a_bad_step_skips_nothing_and_an_unknown_one_is_none(
    tmp_path: Path,
) -> None:
    _train(tmp_path, [1.0, 1.0])
    assert _skips(tmp_path) == Skips([], [])
    assert _skips(tmp_path, "other") is None


@pytest.mark.parametrize(
    ("counts", "culprits", "says"),
    [
        (
            {"loss/rank.1": 3, "gradients/rank.0": 1},
            [Culprit(0, 0, 1), Culprit(1, 3, 0)],
            "(the loss of rank 1 in 3, the gradients of rank 0 in 1)",
        ),
        ({}, [], "(only the sum of all ranks' gradients)"),
    ],
)
def test_of_many_ranks_each_is_named_that_began_a_bad_step(
    counts: dict[str, int], culprits: list[Culprit], says: str
) -> None:
    named = {f"system/nonfinite_{name}": {1: (count, 9, 60.0)} for name, count in counts.items()}
    [steps] = skipped_steps({"system/skipped_steps": {1: (4, 9, 60.0)}, **named})
    assert steps.culprits == culprits
    assert steps.text.startswith(
        f"attempt 1 left out 4 steps that were NaN or infinite {says}, the last at step 9, 1970-01-01 "
        "00:01:00 UTC"
    )


def test_a_checkpoints_record_keeps_what_was_skipped_before_it(tmp_path: Path) -> None:
    _train(tmp_path, [1.0])
    records = RunRecords(Store(tmp_path), "p", "r")
    records.add_checkpoint(SavedCheckpoint(7, 1, "sha256:c", {}, missed=_AWAY))
    skips = _skips(tmp_path)
    assert skips is not None
    assert [each.count for each in skips.checkpoints] == [5]


def test_a_count_that_is_not_finite_is_no_count(tmp_path: Path) -> None:
    with halving.init("p", {}, id="r", root=str(tmp_path), system_metrics=None) as run:
        run.log({"system/skipped_steps": float("inf")}, step=1)
        run.log({"system/skipped_steps": 2.0}, step=2)
    skips = _skips(tmp_path)
    assert skips is not None
    assert [each.count for each in skips.steps] == [2]
