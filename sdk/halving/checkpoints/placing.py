"""Which part of a saved tensor the objects of this process hold.

Modules under FSDP and their optimizers hold ``DTensor``s.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halving.checkpoints.serialization import unwrap

if TYPE_CHECKING:
    import torch

Shards = Callable[[str], Any]


def shards_of(name: str, value: Any) -> Shards | None:
    """A function from a saved tensor's name to the DTensor to shard it like; None without shards.

    A parameter is found by its own name. An optimizer's state is found by the number of its parameter,
    because a fresh optimizer has no states yet.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return None
    import torch
    from torch.distributed.tensor import DTensor

    value = unwrap(value)
    if isinstance(value, torch.optim.Optimizer):
        numbered = [parameter for group in value.param_groups for parameter in group["params"]]
        by_number = {
            str(number): parameter
            for number, parameter in enumerate(numbered)
            if isinstance(parameter, DTensor)
        }
        prefix = f"{name}.state."

        def of_state(key: str) -> Any:
            if not key.startswith(prefix):
                return None
            return by_number.get(key.removeprefix(prefix).partition(".")[0])

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
    """An empty DTensor on the same ranks and devices as another; None where that has another shape."""
    import torch
    from torch.distributed.tensor import DTensor

    if like is None or tuple(like.shape) != shape:
        return None
    local = like.to_local()
    own = torch.empty(local.shape, dtype=dtype, device=local.device)
    return DTensor.from_local(
        own, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def place_shards(value: Any, name: str, shards: Shards) -> Any:
    """Replace whole tensors in data by this process's part, where they are sharded here."""
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
            value[key] = place_shards(item, f"{name}.{key}", shards)
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(place_shards(item, f"{name}[{index}]", shards) for index, item in enumerate(value))
    return value
