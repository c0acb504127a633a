"""Named state as JSON with references to its tensors, and back; and what each tensor is."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halving.checkpoints.serialization import Stateful, as_json, from_json, state_of, unwrap
from halving.errors import InvalidInput

if TYPE_CHECKING:
    import torch

FROZEN = "frozen"
TRAINED = "trained"
OPTIMIZER = "optimizer"
BUFFER = "buffer"
OTHER = "other"
TENSOR = "__tensor__"
LEAF = "__leaf__"
PARAMETER = "__parameter__"
NUMPY = "__numpy__"
"""The keys for a tensor in the tree: a plain one, a trained one, a trained parameter, a NumPy array."""


@dataclass
class StateTree:
    """State taken apart.

    Attributes:
        tree: by name, as JSON: the manifest's ``tree``.
        stateful: the names whose objects gave their own state.
        tensors: by unique names, such as ``model.0.weight``; where they were, on a GPU perhaps. Tied ones are
            there once.
        roles: what each of the tensors is.
        strides: of the tensors that are whole here, without gaps, and not in C order.
    """

    tree: dict[str, Any] = field(default_factory=dict)
    stateful: list[str] = field(default_factory=list)
    tensors: "dict[str, torch.Tensor]" = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)


def take_apart(state: Mapping[str, Any]) -> StateTree:
    """Named state as a tree and its tensors.

    Raises:
        InvalidInput: a value is neither stateful nor plain data, or a tensor is none of dense numbers; the
            message names it.
    """
    import torch

    taken = StateTree()
    names = dict[Any, str]()

    def keep(value: Any, name: str) -> dict[str, str]:
        if isinstance(value, torch.Tensor):
            kind = _kind_of(value)
            tensor = value.detach()
        else:
            kind = NUMPY
            tensor = _as_tensor(value)
        local = _local(tensor, name)
        same = (
            local.data_ptr(),
            tuple(local.shape),
            local.stride(),
            local.dtype,
            tuple(tensor.shape),
            local.is_conj(),
            local.is_neg(),
        )
        if kind == NUMPY or not local.numel() or same not in names:
            while name in taken.tensors:  # "a.b" beside "a" with "b" in it
                name += "'"
            taken.tensors[name] = tensor
            names[same] = name
            if local is tensor and not tensor.is_contiguous() and _has_no_gaps(tensor):
                taken.strides[name] = tensor.stride()
        return {kind: names[same]}

    for name, value in state.items():
        if isinstance(value, Stateful):
            taken.stateful.append(name)
        taken.tree[name] = as_json(state_of(value), name, keep)
    role_of = {key: role for name, value in state.items() for key, role in _roles(name, value)}
    optimizers = tuple(
        f"{name}." for name, value in state.items() if isinstance(value, torch.optim.Optimizer)
    )
    for key in taken.tensors:
        taken.roles[key] = role_of.get(key, OTHER)
        if key.startswith(optimizers):
            taken.roles[key] = OPTIMIZER
    return taken


def put_together(tree: Any, tensor: "Callable[[str], torch.Tensor]") -> Any:
    """Rebuild a part of a tree, with the tensors that ``tensor`` returns for their names."""

    return from_json(tree, lambda kind, name: as_kind(kind, tensor(name)))


def as_kind(kind: str, tensor: "torch.Tensor") -> Any:
    """Convert a tensor to what it stands for."""
    import torch

    if kind == PARAMETER:
        return torch.nn.Parameter(tensor)
    if kind == LEAF:
        return tensor.detach().requires_grad_()
    if kind == TENSOR:
        return tensor
    return tensor.numpy()


def _as_tensor(array: Any) -> "torch.Tensor":
    """A tensor of a NumPy array, in the array's own memory where torch allows; it is copied later anyway."""
    import torch

    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 or stride % native.itemsize for stride in native.strides):
        native = native.copy()
    with warnings.catch_warnings():
        # Nobody writes into the array, so it may be read-only.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(native)


def _kind_of(tensor: "torch.Tensor") -> str:
    import torch

    if not (tensor.requires_grad and tensor.is_leaf):
        return TENSOR
    if isinstance(tensor, torch.nn.Parameter):
        return PARAMETER
    return LEAF


def _has_no_gaps(tensor: "torch.Tensor") -> bool:
    """Whether a tensor's elements fill their memory, each once; a tensor like it then has its layout."""
    import torch

    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _roles(name: str, value: Any) -> list[tuple[str, str]]:
    """The roles of a module's tensors, by their names in the checkpoint."""
    import torch

    module = unwrap(value)
    if not isinstance(module, torch.nn.Module):
        return []
    return [(f"{name}.{key}", _role(tensor)) for key, tensor in module.state_dict(keep_vars=True).items()]


def _role(tensor: "torch.Tensor") -> str:
    import torch

    if not isinstance(tensor, torch.nn.Parameter):
        return BUFFER
    if tensor.requires_grad:
        return TRAINED
    return FROZEN


def is_dense(tensor: "torch.Tensor") -> bool:
    """Whether this process's part of a tensor is made of dense numbers, and of no foreign class."""
    import torch
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor):
        return False
    local = _part_here(tensor)
    is_plain = type(local) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return (
        is_plain
        and local.layout == torch.strided
        and not (local.is_quantized or local.is_nested or local.is_meta)
    )


def _local(tensor: "torch.Tensor", name: str) -> "torch.Tensor":
    """This process's part of a tensor.

    Raises:
        InvalidInput: it is not made of dense numbers.
    """
    local = _part_here(tensor)
    if not is_dense(tensor):
        raise InvalidInput(
            f"checkpoint entry {name!r} is a tensor of class {type(local).__qualname__}, dtype "
            f"{local.dtype}, layout {local.layout} on "
            f"{local.device}, which a checkpoint that is written beside training does not take: give dense "
            "tensors, sharded ones as DTensor"
        )
    return local


def _part_here(tensor: "torch.Tensor") -> "torch.Tensor":
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
