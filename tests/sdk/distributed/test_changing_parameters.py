"""Trainings that freeze and unfreeze parameters, or whose loss uses only some of them."""

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halving.checkpoints.weights_digest import weights_digest
from halving.distributed.ranks import Ranks
from halving.distributed.training import Training, distribute
from halving.errors import InvalidInput
from tests.gangs import run_gang
from tests.sdk.distributed.trainings import CPU, batch, copy_of, every, later, local, loss, prepare_net

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gangs")]

SHARDS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp": {"shard": "fsdp"},
    "in micro-batches": {"micro_batch": 3},
}
FROZEN_FIRST = (True, False)
FROZEN_LATER = (False, True)


def train_switching(
    ranks: Ranks, frozen: Sequence[bool], resumed_at: int | None = None, **options: Any
) -> list[float]:
    """Losses and norms of two steps with the blocks frozen or not, of two switched, and of two switched back.

    With a state, the training resumes from it, while the blocks are still as they were made.
    """
    objects = model, _, training = prepare_net(ranks, **options)
    numbers: list[float] = []
    for step in range(6):
        if step == resumed_at:
            states = [copy_of(each.state_dict()) for each in objects]
            objects = model, _, training = prepare_net(ranks, **options)
            for each, state in zip(objects, states, strict=True):
                each.load_state_dict(state)
        model.blocks.requires_grad_(not frozen[step // 2 % 2])
        before = copy_of(dict(model.blocks.named_parameters()))
        numbers += [training.step(loss, *batch(step, ranks)).item(), float(training.gradient_norm)]
        is_changed = any(
            not torch.equal(local(each), local(before[name]))
            for name, each in model.blocks.named_parameters()
        )
        assert is_changed != frozen[step // 2 % 2]
    digest = float(int(weights_digest({"model": model})[-8:], 16)) if "shard" not in options else 0.0
    return [*numbers, digest]


def disagreeing(ranks: Ranks) -> str:
    model, _, training = prepare_net(ranks)
    training.step(loss, *batch(0, ranks))
    model.blocks[1].up.requires_grad_(ranks.rank == 0)
    with pytest.raises(InvalidInput) as raised:
        training.step(loss, *batch(1, ranks))
    return str(raised.value)


def frozen_whole(ranks: Ranks) -> str:
    model, _, training = prepare_net(ranks)
    training.step(loss, *batch(0, ranks))
    model.requires_grad_(False)
    with pytest.raises(InvalidInput) as raised:
        training.step(loss, *batch(1, ranks))
    return str(raised.value)


class Branches(nn.Module):
    """Uses its second layer for no row, for all rows, or for some.

    Some are in each global batch, but not in each rank's share.
    """

    def __init__(self, use: str) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(6, 4)
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        scores = self.first(x)
        rows = x[:, 0] > {"never": 9, "always": -9, "sometimes": 0.9}[self.use]
        return scores.index_add(0, rows.nonzero()[:, 0], self.second(x[rows])) if rows.any() else scores


def branching(
    ranks: Ranks, use: str, *, fused: bool = False, only_first: bool = False, **options: Any
) -> tuple[Branches, Training]:
    torch.manual_seed(0)
    model = Branches(use)
    optimizer = torch.optim.AdamW((model.first if only_first else model).parameters(), lr=0.02, fused=fused)
    return model, distribute(ranks, CPU, model, optimizer, seed=3, **options)


def train_branches(ranks: Ranks, use: str, **options: Any) -> list[float]:
    """The losses, norms and weights of a training that may leave parameters unused."""
    model, training = branching(ranks, use, **options)
    numbers: list[float] = []
    for step in range(8):
        numbers += [training.step(loss, *batch(step, ranks)).item(), float(training.gradient_norm)]
    state = (
        each.full_tensor() if "shard" in options and ranks.world_size > 1 else each
        for each in model.state_dict().values()
    )
    return numbers + [float(each.sum()) for each in state]


def train_refused(ranks: Ranks, use: str, trouble: str = "", **options: Any) -> tuple[str, int]:
    """Why a training ended, and after how many of its steps; what it has refused has changed nothing."""
    model, training = branching(ranks, use, **options)
    own_loss = (lambda _, x, y: loss(model, x, y)) if trouble == "bypass" else loss
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(8):
            before = copy_of(model.state_dict())
            made = training.steps
            x, y = batch(step, ranks)
            try:
                training.step(own_loss, x * float("nan") if trouble == "nan" and ranks.rank == 1 else x, y)
            except InvalidInput as error:
                assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
                return str(error), made
            if not torch.equal(before["first.weight"], model.first.weight):
                continue
            assert options.get("fused"), "the host hears of it in the next step"
    raise AssertionError("nothing was refused")


def refused_sharded(ranks: Ranks) -> str:
    """In the first step rank 0 has no row that uses the second layer."""
    _, training = branching(ranks, "sometimes", shard="fsdp")
    with pytest.raises(InvalidInput) as raised:
        training.step(loss, *batch(4, ranks))
    return str(raised.value)


REFUSED: dict[str, Any] = {
    "unused": later(train_refused, "never"),
    "unused, NaN on a rank": later(train_refused, "never", "nan"),
    "unused, fused": later(train_refused, "never", fused=True),
    "unused, in fp16": later(train_refused, "never", precision="fp16"),
    "unused on a rank": later(train_refused, "sometimes"),
    "unused on a rank, fused": later(train_refused, "sometimes", fused=True),
    "unused on a rank, in micro-batches": later(train_refused, "sometimes", micro_batch=2),
    "unused on a rank, not the optimizer's": later(train_refused, "sometimes", only_first=True),
    "another model": later(train_refused, "always", "bypass"),
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "unused": {"use": "never"},
    "unused on a rank": {"use": "sometimes"},
    "unused on a rank, in micro-batches": {"use": "sometimes", "micro_batch": 2},
    "unused on a rank, fused": {"use": "sometimes", "fused": True},
    "all used": {"use": "always"},
    "unused on a rank, checkpointed": {
        "use": "sometimes",
        "micro_batch": 2,
        "activation_checkpointing": True,
        "blocks": [nn.Linear],
    },
}
SWITCHED = {
    f"{name}, {'frozen' if frozen[0] else 'trained'} first": later(train_switching, frozen, **options)
    for name, options in SHARDS.items()
    for frozen in (FROZEN_FIRST, FROZEN_LATER)
} | {"checkpointed": later(train_switching, FROZEN_FIRST, activation_checkpointing=True)}
BRANCHED = {
    f"branches {name}": later(train_branches, unused_parameters=True, **options)
    for name, options in ACCEPTED.items()
}
BRANCHED |= {
    "branches sharded, unused": later(train_branches, "never", shard="fsdp"),
    "branches sharded, unused on a rank": later(
        train_branches, "sometimes", shard="fsdp", unused_parameters=True
    ),
}
WIDE = {"width": 96, "dropout": 0.3}  # wide enough for buckets whose parts are summed in different orders


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    """What one process gave."""
    return run_gang(1, every_of, SWITCHED | BRANCHED)[0]


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    """What two ranks gave."""
    others = {"disagreeing": disagreeing, "frozen whole": frozen_whole, "refused sharded": refused_sharded}
    return run_gang(2, every_of, SWITCHED | BRANCHED | REFUSED | others)


@pytest.fixture(scope="module")
def three() -> list[dict[str, Any]]:
    """What three ranks gave."""
    bodies = {f"resumed at {at}": later(train_switching, FROZEN_FIRST, at, **WIDE) for at in (None, 3, 4)}
    return run_gang(3, every_of, bodies | BRANCHED | REFUSED)


def every_of(ranks: Ranks, bodies: dict[str, Any]) -> dict[str, Any]:
    return every(ranks, **bodies)


@pytest.mark.parametrize("name", SWITCHED)
def test_freezing_and_unfreezing_trains_as_in_one_process(single: Any, two: Any, name: str) -> None:
    *alone, _ = single[name]
    *together, _ = two[0][name]
    assert together[::2] == pytest.approx(alone[::2], abs=1e-6)
    assert together[1::2] == pytest.approx(alone[1::2], rel=2e-6)
    assert two[0][name] == two[1][name], "all ranks have the same weights"


@pytest.mark.parametrize("at", [3, 4])
def test_a_training_of_changing_parameters_goes_on_from_its_state_bit_for_bit(three: Any, at: int) -> None:
    for of_rank in three:
        assert of_rank[f"resumed at {at}"] == of_rank["resumed at None"] == three[0]["resumed at None"]


def test_ranks_that_train_different_parameters_or_none_are_refused_on_all(two: Any) -> None:
    for of_rank in two:
        assert of_rank["disagreeing"].startswith(
            "the parameter 'blocks.1.up.weight' requires gradients on rank 0 and none on rank 1, which is "
            "not accepted: every rank must"
        )
        assert (
            "none of its parameters requires gradients, so there is nothing to train"
            in of_rank["frozen whole"]
        )


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("size", [2, 3])
def test_a_parameter_unused_by_the_loss_ends_all_ranks_before_any_step(
    size: int, name: str, request: Any
) -> None:
    of_ranks = request.getfixturevalue({2: "two", 3: "three"}[size])
    said, made = of_ranks[0][name]
    assert [of_rank[name] for of_rank in of_ranks] == [(said, made)] * size
    assert said.endswith("No rank has applied this step")
    if name == "another model":
        assert said.startswith(
            "the loss of rank 0 in step 1 is not accepted, for DDP has not seen its forward pass: call the "
            "model that"
        )
    else:
        assert said.startswith(
            "the parameter 'second.weight' (and 1 more: second.bias) takes no part in the loss of rank "
        )
        assert (
            "freeze it by requires_grad_(False), or give run.distribute unused_parameters=True or exact=True"
            in said
        )


def test_shards_used_on_some_ranks_are_refused_before_gradients_are_summed(
    two: Any,
) -> None:
    for rank, of_rank in enumerate(two):
        assert of_rank["refused sharded"].startswith(
            f"a loss that uses other parameters of the model on rank {rank} than on other ranks"
        )
        assert of_rank["refused sharded"].endswith("give run.distribute unused_parameters=True")


@pytest.mark.parametrize("name", BRANCHED)
@pytest.mark.parametrize("size", [2, 3])
def test_with_unused_parameters_a_training_is_that_of_one_process(
    single: Any, size: int, name: str, request: Any
) -> None:
    of_ranks = request.getfixturevalue({2: "two", 3: "three"}[size])
    assert of_ranks[0][name] == pytest.approx(single[name], abs=2e-6)
    assert all(of_rank[name] == of_ranks[0][name] for of_rank in of_ranks)
