"""Optimizers of sharded parameters: which ones work, and how their initial state is sharded."""

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from halving.distributed.keyed_random import generators_kept
from halving.errors import InvalidInput, message_of

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    Making = Callable[[torch.Tensor], torch.Tensor]


def check_shardable(optimizer: "Optimizer", mesh: "DeviceMesh") -> None:
    """Check that an optimizer is new and can step sharded parameters, by one step of a few numbers.

    A collective.

    Raises:
        InvalidInput: it is not, or cannot.
    """
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor

    kind = type(optimizer).__name__
    states = [state for state in optimizer.state.values() if state]
    if any("step" not in state for state in states):
        raise InvalidInput(
            f"the optimizer {kind}, whose state does not count its steps as 'step', is not accepted with "
            "shard = 'fsdp' if it has any: "
            "distribute a new one, then restore() it; for one that makes such state when it is created "
            "give shard = 'ddp'"
        )
    if any(float(state["step"]) for state in states):
        raise InvalidInput(
            "an optimizer that has made steps is not accepted with shard = 'fsdp': distribute it first, "
            "then restore() it"
        )

    def shard(whole: torch.Tensor) -> torch.Tensor:
        return distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)

    error = _error_of_a_step(optimizer, mesh, shard)
    # One that fails with whole parameters as well does so for a reason that has nothing to do with sharding.
    if error is not None and _error_of_a_step(optimizer, mesh, lambda whole: whole) is None:
        raise InvalidInput(
            f"the optimizer {kind} is not accepted with shard = 'fsdp': it cannot make a step of sharded "
            "parameters "
            f"({message_of(error).split('. ')[0]:.200}); give shard = 'ddp', or another one, such as AdamW"
        )


def shard_state(optimizer: "Optimizer", shards: "Mapping[torch.Tensor, torch.Tensor]") -> None:
    """Replace an optimizer's parameters by their shards, and shard the state that has their shape.

    Args:
        shards: of each of its parameters.
    """
    import torch
    from torch.distributed.tensor import DTensor, distribute_tensor

    def shard_like(whole: torch.Tensor, key: str, value: Any) -> Any:
        shard = shards[whole]
        if (
            key == "step"
            or not isinstance(value, torch.Tensor)
            or value.shape != whole.shape
            or not isinstance(shard, DTensor)
        ):
            return value
        part = distribute_tensor(
            value.to(shard.device), shard.device_mesh, shard.placements, src_data_rank=None
        )
        return part.clone()  # A clone does not keep the whole tensor alive.

    for group in optimizer.param_groups:
        group["params"] = [shards[parameter] for parameter in group["params"]]
    states = {
        shards[whole]: {key: shard_like(whole, key, value) for key, value in state.items()}
        for whole, state in optimizer.state.items()
    }
    optimizer.state = defaultdict(dict, states)


def move_state(optimizer: "Optimizer") -> None:
    """Move the state that has a parameter's shape to where the parameter is now."""
    import torch

    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if key != "step" and isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                state[key] = value.to(parameter.device)


def _error_of_a_step(optimizer: "Optimizer", mesh: "DeviceMesh", make: "Making") -> Exception | None:
    """The error of one step of a few small parameters, shaped like the optimizer's own; else None.

    The optimizer and its parameters stay as they are.
    """
    import torch

    twin = object.__new__(type(optimizer))
    twin.__dict__.update(optimizer.__dict__)
    twin.__dict__.pop("step", None)  # a learning-rate schedule puts one of the optimizer itself there
    twin._optimizer_step_pre_hooks = OrderedDict()
    twin._optimizer_step_post_hooks = OrderedDict()
    twin.state = defaultdict(dict)
    twin.param_groups = []

    def small(like: torch.Tensor, value: float) -> torch.Tensor:
        size = [2 * mesh.size()] * like.dim()
        return make(torch.full(size, value, dtype=like.dtype, device=mesh.device_type))

    for group in optimizer.param_groups:
        kinds = {
            (each.dim(), each.dtype): each for each in group["params"] if each.dim() and each.requires_grad
        }
        others = {key: deepcopy(value) for key, value in group.items() if key != "params"}
        twin.param_groups.append({**others, "params": []})
        for whole in kinds.values():
            parameter = small(whole.detach(), 1.0).requires_grad_()
            parameter.grad = small(whole.detach(), 1.0)
            twin.param_groups[-1]["params"].append(parameter)
            for key, value in optimizer.state.get(whole, {}).items():
                is_like_it = key != "step" and isinstance(value, torch.Tensor) and value.shape == whole.shape
                if is_like_it:
                    twin.state[parameter][key] = small(value, float(value.flatten()[0]))
                else:
                    twin.state[parameter][key] = deepcopy(value)
    try:
        with generators_kept(torch.device(mesh.device_type)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            type(optimizer).step(twin)
    except Exception as error:  # noqa: BLE001  # whatever an optimizer of anyone's raises
        return error
    return None
