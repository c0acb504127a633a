"""What becomes of a trial in several processes when one of them runs out of memory, or has a NaN."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halving import Run, Store
from halving.distributed.out_of_memory import MemoryNotes
from halving.query.curve_stats import keys_of, read_curve
from halving.records.run_record import RunRecords
from halving.trial.messages import Raised, Stopped
from tests.sdk.distributed.trainings import Net, batch, loss
from tests.sdk.trial_process.gangs import Gang

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gangs")]


def train(run: Run) -> None:
    """Three epochs of two steps; rank 1 has its trouble in the second, some only in the first attempt."""
    model = Net()
    optimizer = getattr(torch.optim, run.params["optimizer"])(model.parameters(), lr=0.02)
    training = run.distribute(
        model, optimizer, shard=run.params["shards"][run.attempt - 1], **run.params["options"]
    )
    run.restore(model=model, optimizer=optimizer, training=training)
    notes = Path(run.store.root, f"steps.{run.rank}")
    for epoch in run.epochs():
        trouble = _TROUBLES[run.params["trouble"]] if run.rank == 1 and epoch >= 2 else loss
        if run.params["trouble"] in ("raise", "nan at first") and run.attempt > 1:
            trouble = loss
        for step in range(2 * epoch, 2 * epoch + 2):
            value = training.step(trouble, *batch(step, run)).item()
            with notes.open("a") as file:
                file.write(f"{run.attempt} {epoch} {training.micro_batch} {value}\n")
        if run.params["trouble"] == "evaluate" and run.rank == 1:
            torch.empty(2**60)
        run.report(score=value)
        run.save(model=model, optimizer=optimizer, training=training)


class Branches(nn.Module):
    """Uses its second layer where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(6, 4)

    def forward(self, x: Tensor, both: bool) -> Tensor:
        return self.first(x) + self.second(x) if both else self.first(x)


def _loss_of_branches(model: nn.Module, x: Tensor, y: Tensor, *, both: bool) -> Tensor:
    return nn.functional.cross_entropy(model(x, both), y)


def train_branches(run: Run) -> None:
    """In the second epoch rank 1 leaves a layer unused."""
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = run.distribute(model, optimizer, shard=run.params["shard"])
    run.restore(model=model, optimizer=optimizer, training=training)
    for epoch in run.epochs():
        used = partial(_loss_of_branches, both=epoch == 1 or run.rank == 0)
        value = training.step(used, *batch(epoch, run)).item()
        run.report(score=value)
        run.save(model=model, optimizer=optimizer, training=training)


def distribute_on_rank_0(run: Run) -> None:
    model = Net()
    if run.rank == 0:
        run.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in run.epochs():
        run.report(score=1.0)


def _too_large(rows: int) -> Any:
    def fail_beyond_rows(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if len(x) > rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return loss(model, x, y)

    return fail_beyond_rows


def _nan(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return loss(model, x, y) * float("nan")


_TROUBLES = {
    "none": loss,
    "evaluate": loss,
    "more than 4 rows": _too_large(4),
    "more than 2 rows": _too_large(2),
    "raise": lambda model, x, y: 1 / 0,
    "nan": _nan,
    "nan at first": _nan,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def gang(
    store: Store,
    attempt: int,
    trouble: str,
    shards: Sequence[str] = ("ddp", "ddp"),
    optimizer: str = "AdamW",
    **options: Any,
) -> Any:
    params = {"trouble": trouble, "shards": list(shards), "optimizer": optimizer, "options": options}
    return Gang(store, f"{__name__}:train", attempt=attempt, **params).messages()[-1]


def test_out_of_memory_on_a_rank_halves_the_micro_batch_and_keeps_the_losses(
    store: Store, tmp_path: Path
) -> None:
    raised = gang(store, 1, "more than 4 rows", out_of_memory="halve")
    assert isinstance(raised, Raised)
    assert not raised.final
    assert "rank 1 ran out of memory in step 3, with 1 micro-batches of 8 rows" in raised.error
    assert "An attempt that goes on from its last checkpoint begins with half the micro-batch" in raised.error
    assert gang(store, 2, "more than 4 rows", out_of_memory="halve") == Stopped()
    halved = [line.split() for line in Path(store.root, "steps.0").read_text().splitlines()]
    assert [line[:3] for line in halved] == [["1", "1", "8"]] * 2 + [["2", "2", "4"]] * 2 + [
        ["2", "3", "4"]
    ] * 2
    other = Store(str(tmp_path / "whole"))
    assert gang(other, 1, "none") == Stopped()
    whole = [float(line.split()[-1]) for line in Path(other.root, "steps.0").read_text().splitlines()]
    assert [float(line[-1]) for line in halved] == pytest.approx(whole, abs=1e-6)


def test_a_rank_that_runs_out_of_memory_again_ends_the_trial_and_is_named(store: Store) -> None:
    assert not gang(store, 1, "more than 2 rows", out_of_memory="halve").final
    raised = gang(store, 2, "more than 2 rows", out_of_memory="halve")
    assert isinstance(raised, Raised)
    assert raised.final
    assert (
        "OutOfMemory: rank 1 ran out of memory in step 3, with 2 micro-batches of 4 rows: the process had "
        "taken"
    ) in raised.error


def test_a_rank_out_of_memory_outside_of_a_step_ends_the_trial_and_is_named(store: Store) -> None:
    raised = gang(store, 1, "evaluate", out_of_memory="halve")
    assert isinstance(raised, Raised)
    assert raised.final
    assert raised.error.startswith("rank 1: Traceback")
    assert "rank 1 ran out of memory: the process had taken" in raised.error.splitlines()[-1]
    assert not MemoryNotes(RunRecords(store, "p", "s.0001"), 1).is_retry_due(), (
        "half a micro-batch would not help"
    )


def test_a_nan_of_one_rank_ends_the_trial_as_diverged_with_the_checkpoint_of_before(store: Store) -> None:
    raised = gang(store, 1, "nan", skips=1)
    assert isinstance(raised, Raised)
    assert raised.final
    saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
    assert saved is not None
    assert saved.epoch == 1
    assert (
        "Diverged: the loss of rank 1 was NaN or infinite at step 4: 2 in a row, of which at most 1 are "
        "left out"
    ) in raised.error
    curves = {
        key: read_curve(store, "p", "s.0001", key)
        for key in keys_of(store, "p", "s.0001")
        if "skipped" in key or "nonfinite" in key
    }
    counted = {
        key: list(zip(points.step.tolist(), points.value.tolist(), strict=True))
        for key, points in curves.items()
    }
    both = [(3, 1.0), (4, 2.0)]
    assert counted == {"system/skipped_steps": both, "system/nonfinite_loss/rank.1": both}, (
        "which rank began it, and in which steps"
    )


def test_another_attempt_resumes_from_the_checkpoint_of_a_diverged_training(
    store: Store, tmp_path: Path
) -> None:
    raised = gang(store, 1, "nan at first", skips=1)
    assert isinstance(raised, Raised)
    assert raised.final
    assert gang(store, 2, "nan at first", skips=1) == Stopped()
    other = Store(str(tmp_path / "whole"))
    assert gang(other, 1, "none") == Stopped()
    finite, whole = (
        [
            line.split()[1:]
            for line in Path(each.root, "steps.0").read_text().splitlines()
            if not line.endswith(" nan")
        ]
        for each in (store, other)
    )
    assert finite == whole, "bit for bit"


@pytest.mark.parametrize("optimizer", ["AdamW", "Adagrad"])
@pytest.mark.parametrize("shards", [("fsdp", "ddp"), ("ddp", "fsdp")])
def test_a_training_goes_on_with_its_parameters_sharded_or_whole(
    store: Store, tmp_path: Path, shards: tuple[str, str], optimizer: str
) -> None:
    raised = gang(store, 1, "raise", shards, optimizer, activation_checkpointing=True)
    assert isinstance(raised, Raised)
    assert not raised.final
    assert gang(store, 2, "raise", shards, optimizer, activation_checkpointing=True) == Stopped()
    other = Store(str(tmp_path / "whole"))
    assert gang(other, 1, "none", optimizer=optimizer) == Stopped()
    losses = [
        [float(line.split()[-1]) for line in Path(each.root, "steps.0").read_text().splitlines()]
        for each in (store, other)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize(
    ("shard", "said"),
    [
        (
            "ddp",
            (
                "the parameter 'second.weight' (and 1 more: second.bias) takes no part in the loss of rank 1 "
                "in step 2"
            ),
        ),
        (
            "fsdp",
            (
                "a loss that uses other parameters of the model on rank 1 than on other ranks, or than "
                "before, "
                "is not accepted"
            ),
        ),
    ],
)
def test_a_parameter_that_one_rank_does_not_use_ends_the_trial_at_once_and_is_named(
    store: Store, shard: str, said: str
) -> None:
    raised = Gang(store, f"{__name__}:train_branches", shard=shard).messages()[-1]
    assert isinstance(raised, Raised)
    assert raised.final
    assert f"InvalidInput: {said}" in raised.error
    assert "unused_parameters=True" in raised.error.splitlines()[-1]


def test_a_model_that_rank_0_alone_distributes_ends_the_trial_with_both_calls(store: Store) -> None:
    raised = Gang(store, f"{__name__}:distribute_on_rank_0").messages()[-1]
    assert isinstance(raised, Raised)
    assert (
        "rank 1 has called run.epochs() where rank 0 has called run.distribute(): every rank must call the "
        "same"
    ) in raised.error
