"""Trainings that go on from a real checkpoint in new processes, on as many ranks as before and on others."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from halving import Run, Store
from halving.checkpoints.restoring import saved_state
from halving.records.run_record import RunRecords
from halving.trial.messages import Granted, Stopped
from tests.gangs import run_in_gang
from tests.sdk.distributed.trainings import Net, batch, loss
from tests.sdk.trial_process.attempts import context

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gangs")]

EPOCHS = 6
WIDE = 96  # enough for DDP's buckets to have parts that are summed in different orders


class Training(NamedTuple):
    """The losses of a training's steps on each rank, in their order, and its last checkpoint."""

    losses: list[float]
    state: dict[str, Any]


def train(run: Run) -> None:
    """Two steps an epoch; each rank notes their losses. The blocks may be frozen in the first epochs."""
    model = Net(run.params["width"], run.params["dropout"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    training = run.distribute(model, optimizer, clip=0.5, **run.params["options"])
    run.restore(model=model, optimizer=optimizer, training=training)
    torch.rand(run.attempt)  # generators are elsewhere than they were
    for epoch in run.epochs():
        model.blocks.requires_grad_(epoch > run.params["frozen"])
        losses = [training.step(loss, *batch(step, run)).item() for step in (2 * epoch, 2 * epoch + 1)]
        with Path(run.store.root, f"losses.{run.rank}").open("a") as file:
            file.writelines(f"{value.hex()}\n" for value in losses)
        run.report(score=losses[-1])
        run.save(model=model, optimizer=optimizer, training=training)


@pytest.fixture
def train_attempts(tmp_path: Path) -> Callable[..., Training]:
    """Trains in attempts, each of so many ranks up to so many epochs."""

    def train_in(
        name: str,
        *attempts: tuple[int, int],
        width: int = 8,
        dropout: float = 0.0,
        frozen: int = 0,
        **options: Any,
    ) -> Training:
        store = Store(str(tmp_path / name))
        for number, (processes, epochs) in enumerate(attempts, start=1):
            trial = context(store, number, width=width, dropout=dropout, frozen=frozen, options=options)
            heard, _ = run_in_gang(
                trial, f"{__name__}:train", processes, epochs, Granted(epochs, complete=epochs == EPOCHS)
            )
            assert heard[-1] == Stopped(), heard
        saved = RunRecords(store, "p", "s.0001").latest_checkpoint()
        assert saved is not None
        assert saved.epoch == EPOCHS
        lines = Path(store.root, "losses.0").read_text().splitlines()
        return Training([float.fromhex(line) for line in lines], saved_state(store, saved.digest))

    return train_in


def tensors(value: Any, name: str = "") -> dict[str, Tensor]:
    """All tensors within the state of a checkpoint, by where they are."""
    if isinstance(value, Tensor):
        return {name: value}
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    return {path: tensor for key, item in items for path, tensor in tensors(item, f"{name}/{key}").items()}


def assert_equal(first: Training, second: Training) -> None:
    assert first.losses == second.losses
    assert len(set(first.losses)) == 2 * EPOCHS
    weights = tensors(first.state)
    others = tensors(second.state)
    assert weights.keys() == others.keys()
    assert len(weights) > 3 * 10, "the model's and the optimizer's"
    assert [name for name, tensor in weights.items() if not torch.equal(tensor, others[name])] == []


@pytest.mark.parametrize("shard", ["ddp", "fsdp"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_training_on_three_ranks_goes_on_from_its_checkpoint_bit_for_bit(
    train_attempts: Callable[..., Training], shard: str, precision: str
) -> None:
    options = {"width": WIDE, "dropout": 0.3, "shard": shard, "precision": precision}
    assert_equal(
        train_attempts("whole", (3, EPOCHS), **options),
        train_attempts("resumed", (3, 2), (3, EPOCHS), **options),
    )


@pytest.mark.parametrize("shard", ["ddp", "fsdp"])
def test_a_training_that_unfreezes_blocks_resumes_bit_for_bit(
    train_attempts: Callable[..., Training], shard: str
) -> None:
    options = {"width": WIDE, "dropout": 0.3, "shard": shard, "frozen": 3}
    assert_equal(
        train_attempts("whole", (3, EPOCHS), **options),
        train_attempts("resumed", (3, 2), (3, 4), (3, EPOCHS), **options),
    )


@pytest.mark.parametrize("shard", ["ddp", "fsdp"])
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-6), ("bf16", 5e-3)])
def test_a_training_that_goes_on_on_two_and_on_four_ranks_has_the_losses_of_one(
    train_attempts: Callable[..., Training], shard: str, precision: str, within: float
) -> None:
    options = {"shard": shard, "precision": precision}
    whole = train_attempts("whole", (1, EPOCHS), **options)
    climbed = train_attempts("climbed", (1, 2), (2, 4), (4, EPOCHS), **options)
    assert climbed.losses == pytest.approx(whole.losses, abs=within)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_exact_training_resumed_on_two_and_four_ranks_equals_that_of_one(
    train_attempts: Callable[..., Training], precision: str
) -> None:
    options = {"dropout": 0.3, "exact": True, "precision": precision}
    assert_equal(
        train_attempts("whole", (1, EPOCHS), **options),
        train_attempts("climbed", (1, 2), (2, 4), (4, EPOCHS), **options),
    )
