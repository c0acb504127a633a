"""Which part of a saved tensor this process's objects hold: FSDP's modules and their optimizers have
``DTensor``s.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halving.checkpoints.serialization import unwrapped

if TYPE_CHECKING:
    import torch

Shards = Callable[[str], Any]


def shards_of(name: str, value: Any) -> Shards | None:
    """For an object that is to be filled: of the name of a saved tensor the DTensor that is sharded as it is
    to be, or None.

    A parameter's own name tells it; of an optimizer's states the number of the parameter (a fresh optimizer
    has no states yet). None altogether where nothing is sharded.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return None
    import torch
    from torch.distributed.tensor import DTensor

    value = unwrapped(value)
    if isinstance(value, torch.optim.Optimizer):
        numbered = [parameter for group in value.param_groups for parameter in group["params"]]
        by_number = {
            str(number): parameter
            for number, parameter in enumerate(numbered)
            if isinstance(parameter, DTensor)
        }
        prefix = f"{name}.state."

        def of_state(key: str) -> Any:
            return (
                by_number.get(key.removeprefix(prefix).partition(".")[0]) if key.startswith(prefix) else None
            )

        return of_state if by_number else None
    if isinstance(value, DTensor):
        return {name: value}.get
    if not isinstance(value, torch.nn.Module):
        return None
    by_name = {
        f"{name}.{key}": tensor
        for key, tensor in value.state_dict(keep_vars=True).items()
        if isinstance(tensor, DTensor)
    }
    return by_name.get if by_name else None


def empty_like_shard(shape: tuple[int, ...], dtype: "torch.dtype", like: Any) -> Any:
    """A DTensor to be filled, on the same ranks and devices as another; None where that has another shape."""
    import torch
    from torch.distributed.tensor import DTensor

    if like is None or tuple(like.shape) != shape:
        return None
    local = like.to_local()
    own = torch.empty(local.shape, dtype=dtype, device=local.device)
    return DTensor.from_local(
        own, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def placed(value: Any, name: str, shards: Shards) -> Any:
    """Data with whole tensors, in which each that is sharded here is this process's part of it."""
    import torch

    if isinstance(value, torch.Tensor):
        shard = empty_like_shard(tuple(value.shape), value.dtype, shards(name))
        if shard is None:
            return value
        for chunk in shard.__create_chunk_list__():
            box = tuple(
                slice(start, start + size) for start, size in zip(chunk.offsets, chunk.sizes, strict=True)
            )
            shard.to_local().copy_(value[box])
        return shard
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = placed(item, f"{name}.{key}", shards)
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(placed(item, f"{name}[{index}]", shards) for index, item in enumerate(value))
    return value
