"""What ``run.distribute`` refuses, before anything is changed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halving.distributed.ranks import ALONE
from halving.distributed.training import Training, distribute
from halving.errors import InvalidInput
from tests.sdk.distributed.trainings import CPU, Net, batch, loss


def make(model: nn.Module | None = None, **options: Any) -> Training:
    model = model or Net()
    return distribute(ALONE, CPU, model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "half"}, "precision = 'half' is not accepted: give one of 'fp32', 'bf16', 'fp16'"),
        ({"shard": "zero"}, "shard = 'zero' is not accepted: give one of 'ddp', 'fsdp'"),
        ({"accumulate": 0}, "accumulate = 0 is not accepted: give 'auto', or micro-batches: 1, 2, …"),
        ({"micro_batch": True}, "micro_batch = True is not accepted: give rows: 1, 2, …, or leave it out"),
        (
            {"micro_batch": 2, "accumulate": 4},
            "micro_batch = 2 is not accepted: leave it out with accumulate=4, which fixes the parts",
        ),
        ({"unused_parameters": 1}, "unused_parameters = 1 is not accepted: give True or False"),
        ({"clip": -1}, "clip = -1 is not accepted: give the largest norm of the gradients, above 0, or None"),
        ({"skips": 1.5}, "skips = 1.5 is not accepted: give steps: 0, 1, 2, …"),
        ({"out_of_memory": "retry"}, "out_of_memory = 'retry' is not accepted: give one of 'fail', 'halve'"),
        (
            {"compile": "inductor"},
            "compile = 'inductor' is not accepted: give True, False, or a dict of options of torch.compile",
        ),
        (
            {"compile": {"backend": "gcc"}},
            "compile = {'backend': 'gcc'} is not accepted by torch.compile: Invalid backend: 'gcc'",
        ),
        (
            {"compile": {"backend": 3}},
            "compile's backend = 3 is not accepted: give the name of one, or a function",
        ),
        ({"compile": {"options": "x"}}, "compile = {'options': 'x'} is not accepted by torch.compile: "),
        ({"compile": {"dynamic": "x"}}, "compile = {'dynamic': 'x'} is not accepted by torch.compile: "),
        (
            {"compile": {"fast": True}},
            (
                "compile = {'fast': True} is not accepted by torch.compile: .* unexpected keyword argument "
                "'fast'"
            ),
        ),
        (
            {"compile": {"mode": "fast"}},
            "compile = {'mode': 'fast'} is not accepted by torch.compile: Unrecognized mode=fast",
        ),
        (
            {"activation_checkpointing": [Net]},
            r"activation_checkpointing = \[.*\] is not accepted: give True or False, and in blocks=… the",
        ),
        (
            {"blocks": nn.Linear},
            "blocks = <class .*Linear'> is not accepted: give a list of classes of modules",
        ),
        (
            {"blocks": [nn.Conv2d]},
            r"blocks = \['Conv2d'\] is not accepted: no module of Net is of these classes",
        ),
        (
            {"accumlate": 2},
            (
                "accumlate = 2 is not accepted: run.distribute.. takes precision, accumulate, micro_batch, "
                "clip, shard, blocks, "
            ),
        ),
        ({"exact": 0.5}, "exact = 0.5 is not accepted: give True, False, or the micro-batches of a batch"),
        (
            {"exact": 12},
            (
                "exact = 12 micro-batches on 1 ranks is not accepted: each rank must have 1, 2, 4, 8, … of "
                "them; give exact=8"
            ),
        ),
        ({"exact": True, "shard": "fsdp"}, "shard = 'fsdp' is not accepted: with exact=True leave it out"),
        ({"exact": True, "micro_batch": 4}, "micro_batch = 4 is not accepted: with exact=True leave it out"),
        (
            {"exact": True, "out_of_memory": "halve"},
            "out_of_memory = 'halve' is not accepted: with exact=True leave it out",
        ),
    ],
)
def test_a_value_that_is_not_accepted_is_said_with_what_is(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make(**options)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(
        InvalidInput,
        match="batch normalisation '1' is not accepted: its running statistics depend on how rows are dealt",
    ):
        make(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), exact=True)
    with pytest.raises(
        InvalidInput,
        match="activation_checkpointing = True is not accepted: Linear has no ModuleList or Sequential",
    ):
        make(nn.Linear(6, 4), activation_checkpointing=True)
    other = nn.Linear(2, 2)
    with pytest.raises(
        InvalidInput, match="an optimizer with 2 parameters that are not the model's is not accepted"
    ):
        distribute(ALONE, CPU, Net(), torch.optim.SGD(other.parameters(), lr=0.1))


class OfALoss(torch.optim.SGD):
    """An optimizer whose step has an argument of its own."""

    def step(self, loss: Tensor) -> None:  # type: ignore[override]
        raise NotImplementedError


def test_what_is_no_model_or_no_optimizer_is_refused() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    value: Any = "Net"
    with pytest.raises(
        InvalidInput,
        match=r"model = 'Net' is not accepted: give run.distribute\(model, optimizer\) a torch.nn.Module",
    ):
        distribute(ALONE, CPU, value, optimizer)
    for value in ([optimizer], torch.optim.lr_scheduler.ConstantLR(optimizer), model):
        with pytest.raises(
            InvalidInput, match=r"optimizer = [\s\S]* is not accepted: .* a torch.optim.Optimizer"
        ):
            distribute(ALONE, CPU, model, value)
    with pytest.raises(
        InvalidInput, match=r"the optimizer OfALoss is not accepted: its step\(\) needs loss, and"
    ):
        distribute(ALONE, CPU, model, OfALoss(model.parameters()))
    with pytest.raises(
        InvalidInput, match=r"the optimizer LBFGS is not accepted: its step\(\) needs closure, and"
    ):
        distribute(ALONE, CPU, model, torch.optim.LBFGS(model.parameters()))


def test_an_optimizer_that_has_a_learning_rate_schedule_is_accepted() -> None:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    training = distribute(ALONE, CPU, model, optimizer)
    training.step(loss, *batch(0, ALONE))
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_model_that_is_wrapped_or_cannot_be_trained_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"a model in DataParallel is not accepted: run.distribute.. wraps it by itself"
    ):
        make(nn.DataParallel(Net()))
    inner = nn.Sequential(Net(), nn.DataParallel(nn.Linear(2, 2)))
    with pytest.raises(InvalidInput, match=r"a model in DataParallel is not accepted"):
        make(inner)
    with pytest.raises(
        InvalidInput, match="the model Net with parameters on the meta device is not accepted"
    ):
        make(Net().to("meta"))
    with pytest.raises(
        InvalidInput, match="the model Net is not accepted: none of its parameters requires gradients"
    ):
        make(Net().requires_grad_(False))
    with pytest.raises(
        InvalidInput,
        match=r"the parameter 'first.weight' of torch.bfloat16 is not accepted: .* call model.float",
    ):
        make(Net().bfloat16())
    frozen = Net()
    frozen.first.requires_grad_(False).bfloat16()
    assert make(frozen).steps == 0, "a frozen part may be of any type"


def test_a_step_without_its_loss_is_refused() -> None:
    value: Any = torch.ones(3, 6)
    with pytest.raises(
        InvalidInput,
        match=r"a loss of type Tensor is not accepted: give training.step\(loss, \*batch\) the function",
    ):
        make().step(value, torch.ones(3))


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (
            (torch.ones(3, 6), torch.ones(2)),
            r"a batch of different numbers of rows is not accepted: batch\[1\] has 2, batch\[0\] has 3",
        ),
        (
            (torch.ones(0, 6),),
            "a batch without rows is not accepted: give training.step.. tensors, arrays or lists",
        ),
        ((3.0,), "a batch without rows is not accepted"),
    ],
)
def test_a_batch_must_have_rows(batch: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make().step(lambda model, *columns: model(columns[0]).sum(), *batch)


@pytest.mark.parametrize(
    "of",
    [
        lambda scores: scores.mean().item(),
        lambda scores: scores,
        lambda scores: scores.mean().detach(),
        lambda scores: scores.mean() * 1j,
    ],
)
def test_a_loss_must_be_one_number_that_has_gradients(of: Any) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"is not accepted: loss\(model, \*batch\) must return the mean loss of the rows, a 0-d tensor",
    ):
        make().step(lambda model, x: of(model(x)), torch.ones(3, 6))
