"""Whether a model in one process is large enough for its checkpoints to be written beside training.

Such a checkpoint is copied in memory first, and the copy is written while training goes on.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from halving.checkpoints.serialization import LOADERS, unwrap
from halving.errors import InvalidInput
from halving.records.hardware import available_memory

if TYPE_CHECKING:
    import torch
    from torch import nn

MIN_BYTES = 32 << 20
"""A model or state of at least this size is large; writing less, with Adam's states, takes 0.3 s."""

_MAX_STATES = 2  # State tensors of a parameter in an optimizer; Adam has two.
_COPY_SHARE = 0.5  # The share of the available memory that a copy may take.


def is_large(model: "nn.Module") -> bool:
    """Whether a model that is about to be trained is worth a copy, and there is memory for one.

    The copy is made ahead of the first save, with room for Adam's states. Sparse and quantised tensors are
    not copied; ``torch.save`` writes them.
    """
    from halving.checkpoints.sharded.tree import is_dense

    tensors = [*model.parameters(), *model.buffers()]
    if not all(is_dense(tensor) for tensor in tensors):
        return False
    size = sum(tensor.nbytes for tensor in tensors)
    return size >= MIN_BYTES and has_room((1 + _MAX_STATES) * size)


def find_trained(state: Mapping[str, Any]) -> "tuple[nn.Module, torch.optim.Optimizer] | None":
    """The model and its optimizer, if the state that is restored and saved has exactly one of each."""
    if (torch := sys.modules.get("torch")) is None:
        return None
    models = [value for value in state.values() if isinstance(value, torch.nn.Module)]
    optimizers = [value for value in state.values() if isinstance(value, torch.optim.Optimizer)]
    if not len(models) == len(optimizers) == 1:
        return None
    return models[0], optimizers[0]


def is_worth_a_copy(state: Mapping[str, Any], prepared: int = 0) -> bool:
    """Whether the state given to ``run.save`` is large, and there is memory for a copy of all of it.

    What is not made of dense tensors that are whole here is not copied: ``torch.save`` writes it, or says
    what is wrong with it.

    Args:
        prepared: bytes of memory for the copy that are there already.
    """
    if "torch" not in sys.modules or sum(_sizes(state)) < MIN_BYTES:
        return False
    from torch.distributed.tensor import DTensor

    from halving.checkpoints.sharded.planning import fits
    from halving.checkpoints.sharded.tree import take_apart

    try:
        tensors = take_apart(
            {name: value for name, value in state.items() if name != LOADERS}
        ).tensors.values()
    except InvalidInput:
        return False
    if any(isinstance(tensor, DTensor) for tensor in tensors):
        return False
    size = sum(tensor.nbytes for tensor in tensors)
    return fits(prepared, size) or has_room(size)


def has_room(size: int) -> bool:
    """Whether there is memory for a copy of so many bytes."""
    available = available_memory()
    return available is None or size <= _COPY_SHARE * available


def _sizes(value: Any) -> "Iterator[int]":
    """Bytes of the tensors and arrays in the state, as far as no ``state_dict`` is called."""
    torch = sys.modules["torch"]
    numpy = sys.modules.get("numpy")
    value = unwrap(value)
    if isinstance(value, torch.Tensor):
        yield _bytes_of(value)
    elif numpy is not None and isinstance(value, numpy.ndarray):
        yield value.nbytes
    elif isinstance(value, torch.nn.Module):
        yield from map(_bytes_of, (*value.parameters(), *value.buffers()))
    elif isinstance(value, torch.optim.Optimizer):
        for states in value.state.values():
            yield from _sizes(states)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _sizes(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _sizes(item)


def _bytes_of(tensor: "torch.Tensor") -> int:
    """Bytes of a tensor; 0 while its shape is not known yet."""
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor):
        return 0
    return tensor.numel() * tensor.element_size()
