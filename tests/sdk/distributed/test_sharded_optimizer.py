"""Which optimizers FSDP2 takes, and what becomes of state that they have before their first step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halving.distributed.ranks import ALONE, Ranks
from halving.distributed.training import distribute
from halving.errors import InvalidInput
from tests.gangs import run_gang
from tests.sdk.distributed.trainings import CPU, Net, batch, loss

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gangs")]


class Counted(torch.optim.SGD):
    """An optimizer that is not torch's: it has state before its first step, and does not count its steps."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        for group in self.param_groups:
            self.state.update({each: {"seen": torch.zeros_like(each)} for each in group["params"]})


def make_step(
    kind: Callable[..., Any], ranks: Ranks, shard: str, *, steps: int = 0
) -> tuple[nn.Module, Any, list[float] | str]:
    """A model, its optimizer, and the losses of a training or why there is none."""
    torch.manual_seed(0)
    model = Net()
    optimizer = kind(model.parameters())
    # which puts itself around the optimizer's step
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for _ in range(steps):
        loss(model, *batch(0, ALONE)).backward()
        optimizer.step()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    drawn = torch.get_rng_state()
    try:
        training = distribute(ranks, CPU, model, optimizer, seed=3, shard=shard)
    except InvalidInput as error:
        assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
        assert type(model) is Net, "it is not sharded"
        return model, optimizer, str(error)
    assert torch.equal(torch.get_rng_state(), drawn)
    losses = []
    for step in range(5):
        losses.append(training.step(loss, *batch(step, ranks)).item())
        schedule.step()
    return model, optimizer, losses


OPTIMIZERS = {
    name: getattr(torch.optim, name)
    for name in ("Adagrad", "AdamW", "SGD", "NAdam", "RMSprop", "ASGD", "Adamax", "Adadelta", "RAdam")
}


def losses(ranks: Ranks) -> dict[str, Any]:
    losses_ = {name: make_step(kind, ranks, "fsdp")[2] for name, kind in OPTIMIZERS.items()}
    if ranks.world_size > 1:
        refused = {"Adafactor": torch.optim.Adafactor, "Rprop": torch.optim.Rprop, "Counted": Counted}
        losses_ |= {name: make_step(kind, ranks, "fsdp")[2] for name, kind in refused.items()}
        losses_ |= {
            f"stepped {name}": make_step(OPTIMIZERS[name], ranks, "fsdp", steps=1)[2]
            for name in ("Adagrad", "AdamW")
        }
        losses_["whole Adafactor"] = make_step(torch.optim.Adafactor, ranks, "ddp")[2]
        model, optimizer, _ = make_step(torch.optim.Adagrad, ranks, "fsdp")
        losses_["sizes"] = [(_size(optimizer.state[each]["sum"]), _size(each)) for each in model.parameters()]
    return losses_


def _size(tensor: Any) -> tuple[int, int]:
    """The numbers that this rank's memory has for a sharded tensor, and those that it uses."""
    local: Tensor = tensor.to_local()
    return local.untyped_storage().nbytes() // 4, local.numel()


@pytest.fixture(scope="module")
def single() -> dict[str, Any]:
    return run_gang(1, losses)[0]


@pytest.fixture(scope="module")
def two() -> list[dict[str, Any]]:
    return run_gang(2, losses)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_of_shards_trains_as_in_one_process(single: Any, two: Any, name: str) -> None:
    assert two[0][name] == pytest.approx(single[name], abs=2e-6)


def test_state_that_an_optimizer_has_from_the_beginning_is_sharded(two: Any) -> None:
    assert all(of_state[0] == of_state[1] == of_parameter[1] for of_state, of_parameter in two[0]["sizes"])


def test_an_optimizer_that_cannot_step_shards_is_refused_before_any_change(
    two: Any,
) -> None:
    for of_rank in two:
        for name in ("Adafactor", "Rprop"):
            assert of_rank[name].startswith(
                f"the optimizer {name} is not accepted with shard = 'fsdp': it cannot make a step of "
                "sharded parameters (aten."
            )
            assert of_rank[name].endswith("); give shard = 'ddp', or another one, such as AdamW")
        assert len(of_rank["whole Adafactor"]) == 5


def test_an_optimizer_that_is_not_new_is_refused_with_the_reason(two: Any) -> None:
    for of_rank in two:
        for name in ("Adagrad", "AdamW"):
            assert of_rank[f"stepped {name}"].startswith(
                "an optimizer that has made steps is not accepted with shard = 'fsdp'"
            )
        assert of_rank["Counted"].startswith(
            "the optimizer Counted, whose state does not count its steps as 'step', is not accepted"
        )
