"""Sums that do not depend on the number of ranks: over micro-batches, in the order of one binary tree.

Floating-point addition is not associative, so the bits of a gradient depend on which parts of a batch are
added first. Here each global batch is cut into the same micro-batches on any number of ranks, and their
gradients are added as the leaves of a complete binary tree (pairwise summation; Higham, "Accuracy and
Stability of Numerical Algorithms", section 4.1). Each rank adds a whole subtree of it, and what is above is
added on every rank.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from halving.errors import InvalidInput

if TYPE_CHECKING:
    import torch
    from torch import nn

MICRO_BATCHES = 8
"""The micro-batches of a global batch, unless the user gives another number."""
_BUCKET = 8_000_000  # numbers that the ranks exchange at once


class TreeSum:
    """The sum of lists of tensors, added in the order of a binary tree.

    Lists come one after another, and sums of equal height are added first, as in a binary counter.
    """

    def __init__(self) -> None:
        # The height and the sum of each subtree, from the left; heights decrease.
        self._subtrees: list[tuple[int, list[torch.Tensor]]] = []

    def add(self, leaf: "list[torch.Tensor]") -> None:
        """Add the next list. Its tensors may be changed."""
        import torch

        height = 0
        while self._subtrees and self._subtrees[-1][0] == height:
            _, left = self._subtrees.pop()
            torch._foreach_add_(left, leaf)
            leaf = left
            height = height + 1
        self._subtrees.append((height, leaf))

    @property
    def total(self) -> "list[torch.Tensor]":
        """The sum of all lists; incomplete subtrees are added from the right."""
        import torch

        *left_of_it, (_, total) = self._subtrees
        for _, left in reversed(left_of_it):
            total = list(torch._foreach_add(left, total))
        return total


def check_leaves(micro_batches: int, world_size: int) -> None:
    """Check that each rank adds a whole subtree of the sum.

    Raises:
        InvalidInput: with so many ranks it has not.
    """
    share, rest = divmod(micro_batches, world_size)
    if rest or share & (share - 1) or not share:
        raise InvalidInput(
            f"exact = {micro_batches} micro-batches on {world_size} ranks is not accepted: each rank must "
            "have 1, 2, 4, 8, … of them; "
            f"give exact={world_size * MICRO_BATCHES}, which is as exact on {world_size} ranks and on "
            "half, a quarter, … of them"
        )


def check_exact(model: "nn.Module", device: "torch.device") -> None:
    """Check that a model computes the result of a micro-batch from that micro-batch's rows alone.

    Raises:
        InvalidInput: it has running statistics, or is on a GPU that may choose other algorithms.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    if device.type != "cpu" and not torch.are_deterministic_algorithms_enabled():
        raise InvalidInput(
            "exact = True on a GPU is not accepted without deterministic algorithms: write deterministic: "
            "true in the spec too"
        )
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            raise InvalidInput(
                f"exact = True with the batch normalisation {name!r} is not accepted: its running "
                "statistics depend on how rows are dealt "
                "to ranks; use GroupNorm or LayerNorm, or leave exact out"
            )


def sum_over_ranks(tensors: "Sequence[torch.Tensor]", world_size: int) -> "list[torch.Tensor]":
    """The sum of each tensor over all ranks in the order of the tree, with the same bits on every rank.

    A collective where there is more than one rank.
    """
    import torch
    import torch.distributed as dist

    if world_size == 1:
        return list(tensors)
    summed: list[torch.Tensor] = []
    for bucket in _buckets(tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        of_ranks = [torch.empty_like(flat) for _ in range(world_size)]
        dist.all_gather(of_ranks, flat)
        tree = TreeSum()
        for own in of_ranks:
            tree.add([own])
        parts = torch.split(tree.total[0], [tensor.numel() for tensor in bucket])
        summed.extend(part.view(tensor.shape) for part, tensor in zip(parts, bucket, strict=True))
    return summed


def _buckets(tensors: "Sequence[torch.Tensor]") -> "Iterator[list[torch.Tensor]]":
    """The tensors in order, in groups of one dtype and of the size that is exchanged at once."""
    bucket: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if bucket and (size + tensor.numel() > _BUCKET or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
            size = 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        yield bucket
