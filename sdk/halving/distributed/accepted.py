"""Which models and optimizers can be trained on many ranks; others are refused before any change."""

import inspect
import sys
from typing import TYPE_CHECKING

from halving.errors import InvalidInput

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def check_model(model: "nn.Module") -> None:
    """Check that a model is not wrapped yet and has parameters that can be trained.

    Raises:
        InvalidInput: it is not.
    """
    from torch import nn
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    # It takes long to import, and is imported already where it has wrapped something.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    wrappers: tuple[type, ...] = (DataParallel, DistributedDataParallel)
    if fsdp is not None:
        wrappers += (fsdp.FSDPModule, fsdp.FullyShardedDataParallel)
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"model = {model!r:.80} is not accepted: give run.distribute(model, optimizer) a torch.nn.Module"
        )
    if wrapped := next((type(part).__name__ for part in model.modules() if isinstance(part, wrappers)), None):
        raise InvalidInput(
            f"a model in {wrapped} is not accepted: run.distribute() wraps it by itself; give one that "
            "nothing has wrapped"
        )
    if any(each.is_meta for each in model.parameters()):
        raise InvalidInput(
            f"the model {kind} with parameters on the meta device is not accepted: they have no values; "
            "make it on the CPU"
        )
    check_trained(model)


def check_trained(model: "nn.Module") -> None:
    """Check that a model has parameters to train, and that these are fp32 or more.

    Raises:
        InvalidInput: it is not so.
    """
    import torch

    kind = type(model).__name__
    trained = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    if not trained:
        raise InvalidInput(
            f"the model {kind} is not accepted: none of its parameters requires gradients, so there is "
            "nothing to train"
        )
    for name, each in trained:
        if each.dtype in (torch.float16, torch.bfloat16):
            raise InvalidInput(
                f"the parameter {name!r} of {each.dtype} is not accepted: parameters and the optimizer's "
                "state are fp32, and precision "
                "says what is computed in; call model.float() before the optimizer is made"
            )


def check_optimizer(optimizer: "Optimizer", model: "nn.Module") -> None:
    """Check that an optimizer needs no closure and has only parameters of this model.

    Raises:
        InvalidInput: it does not.
    """
    from torch.optim import Optimizer

    if not isinstance(optimizer, Optimizer):
        raise InvalidInput(
            f"optimizer = {optimizer!r:.80} is not accepted: give run.distribute(model, optimizer) a "
            "torch.optim.Optimizer"
        )
    if needed := _needed_arguments(optimizer):
        raise InvalidInput(
            f"the optimizer {type(optimizer).__name__} is not accepted: its step() needs "
            f"{', '.join(needed)}, and training.step() calls it "
            "without: it computes the loss once, and not by a closure; give one whose step() needs nothing"
        )
    own = set(model.parameters())
    if foreign := sum(each not in own for group in optimizer.param_groups for each in group["params"]):
        raise InvalidInput(
            f"an optimizer with {foreign} parameters that are not the model's is not accepted: their "
            "gradients would not be summed over "
            "ranks; make them parameters of the model"
        )


def _needed_arguments(optimizer: "Optimizer") -> list[str]:
    """The arguments of an optimizer's ``step`` that have no default."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    # Of the class: a learning-rate schedule has put a function of its own, whose signature has `self`, in the
    # optimizer's place of it.
    _, *arguments = inspect.signature(type(optimizer).step).parameters.values()
    return [
        each.name
        for each in arguments
        if each.default is inspect.Parameter.empty and each.kind not in several
    ]
