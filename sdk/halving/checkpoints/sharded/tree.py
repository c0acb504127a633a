"""Named state as JSON with references to its tensors, and the way back; and whose the tensors are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halving.checkpoints.serialization import Stateful, as_json, from_json, state_of, unwrapped
from halving.errors import InvalidInput

if TYPE_CHECKING:
    import torch

FROZEN, TRAINED, OPTIMIZER, BUFFER, OTHER = "frozen", "trained", "optimizer", "buffer", "other"


@dataclass
class StateTree:
    """State taken apart.

    Attributes:
        tree: by name, as JSON: the manifest's ``tree``.
        stateful: the names whose objects gave their own state.
        tensors: by unique names, such as ``model.0.weight``; where they were, on a GPU perhaps. Tied ones are there once.
        roles: what each of the tensors is.
    """

    tree: dict[str, Any] = field(default_factory=dict)
    stateful: list[str] = field(default_factory=list)
    tensors: "dict[str, torch.Tensor]" = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)


def take_apart(state: Mapping[str, Any]) -> StateTree:
    """Named state as a tree and its tensors.

    Raises:
        InvalidInput: a value is neither stateful nor plain data, or a tensor is none of dense numbers; the message names it.
    """
    import torch

    taken, seen = StateTree(), dict[Any, str]()

    def keep(value: Any, name: str) -> dict[str, str]:
        is_tensor = isinstance(value, torch.Tensor)
        tensor = value.detach() if is_tensor else torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))
        local = _local(tensor, name)
        same = (local.data_ptr(), tuple(local.shape), local.stride(), local.dtype, tuple(tensor.shape))
        if not local.numel() or same not in seen:
            while name in taken.tensors:  # "a.b" beside "a" with "b" in it
                name += "'"
            taken.tensors[name], seen[same] = tensor, name
        return {"__tensor__" if is_tensor else "__numpy__": seen[same]}

    for name, value in state.items():
        if isinstance(value, Stateful):
            taken.stateful.append(name)
        taken.tree[name] = as_json(state_of(value), name, keep)
    known = {key: role for name, value in state.items() for key, role in _roles(name, value)}
    optimizers = tuple(f"{name}." for name, value in state.items() if isinstance(value, torch.optim.Optimizer))
    taken.roles = {key: OPTIMIZER if key.startswith(optimizers) and optimizers else known.get(key, OTHER) for key in taken.tensors}
    return taken


def put_together(tree: Any, tensor: "Callable[[str], torch.Tensor]") -> Any:
    """What a part of a tree was made of, with the tensors that ``tensor`` gives for their names."""

    def fetch(kind: str, name: str) -> Any:
        return tensor(name) if kind == "__tensor__" else tensor(name).numpy()

    return from_json(tree, fetch)


def _roles(name: str, value: Any) -> list[tuple[str, str]]:
    """What a module says of its tensors, by their names in the checkpoint."""
    import torch

    module = unwrapped(value)
    if not isinstance(module, torch.nn.Module):
        return []
    return [
        (f"{name}.{key}", (TRAINED if tensor.requires_grad else FROZEN) if isinstance(tensor, torch.nn.Parameter) else BUFFER)
        for key, tensor in module.state_dict(keep_vars=True).items()
    ]


def _local(tensor: "torch.Tensor", name: str) -> "torch.Tensor":
    """This process's part of a tensor.

    Raises:
        InvalidInput: it is not made of dense numbers.
    """
    import torch
    from torch.distributed.tensor import DTensor

    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    plain = type(local) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if not plain or local.layout != torch.strided or local.is_quantized or local.is_nested or local.is_meta:
        raise InvalidInput(
            f"checkpoint entry {name!r} is a tensor of class {type(local).__qualname__}, layout {local.layout} on {local.device}, which "
            "a checkpoint of many processes does not take: give dense tensors, sharded ones as DTensor"
        )
    return local
