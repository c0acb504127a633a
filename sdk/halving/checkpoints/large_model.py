"""Which models of one process are large: their checkpoints are copied, and written while training goes on."""

from typing import TYPE_CHECKING

from halving.records.hardware import available_memory

if TYPE_CHECKING:
    from torch import nn

MIN_BYTES = 32 << 20
"""Of a model from which on it is large: to write fewer, with the optimizer's states, takes 0.3 s."""

_MOST_STATES = 2  # of an optimizer for each parameter: Adam has two
_COPY_SHARE = 0.5  # of the available memory, that the copy may take


def is_large(model: "nn.Module") -> bool:
    """Whether a model is worth a copy, there is memory for one with Adam's states, and its tensors are such as can be written so.

    Sparse and quantised ones cannot: ``torch.save`` writes them.
    """
    from halving.checkpoints.sharded.tree import is_dense

    tensors = [*model.parameters(), *model.buffers()]
    if not all(is_dense(tensor) for tensor in tensors):
        return False
    size = sum(tensor.nbytes for tensor in tensors)
    available = available_memory()
    return size >= MIN_BYTES and (available is None or (1 + _MOST_STATES) * size <= _COPY_SHARE * available)
