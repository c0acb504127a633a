"""Cutting a rank's share of a batch into micro-batches, whose gradients are added."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    import torch


def micro_batch_count(rows: Sequence[int], micro_batch: int | None, minimum: int = 1) -> int:
    """How many micro-batches each rank cuts its share of a batch into.

    It is the same number on all ranks, because a sharded model's forward pass is a collective.

    Args:
        rows: of each rank's share.
        micro_batch: the most rows of a micro-batch; None where a share is not cut for its size. A micro-batch
            has more rows than that where a rank's share has fewer rows than there would be micro-batches,
            because none may be empty.
        minimum: the smallest number of micro-batches.
    """
    wanted = max(minimum, 1)
    if micro_batch:
        wanted = max(minimum, -(-max(rows) // micro_batch))
    return min(wanted, min(rows))


def bounds(rows: int, parts: int) -> list[tuple[int, int]]:
    """The first row and the end of each of so many parts.

    They depend on nothing else, and parts differ by at most one row in size.
    """
    return list(pairwise(rows * part // parts for part in range(parts + 1)))


def rows_of(batch: Sequence[Any]) -> int:
    """The number of rows of a batch: the common length of all tensors, arrays and lists in it.

    Raises:
        InvalidInput: they differ, or there are none.
    """
    lengths = {len(leaf): name for name, leaf in _leaves(batch, "batch") if _has_rows(leaf)}
    if len(lengths) == 1 and (rows := next(iter(lengths))):
        return rows
    if not lengths or 0 in lengths:
        raise InvalidInput(
            "a batch without rows is not accepted: give training.step() tensors, arrays or lists whose "
            "first dimension is rows"
        )
    counts = ", ".join(f"{name} has {length}" for length, name in sorted(lengths.items()))
    raise InvalidInput(
        f"a batch of different numbers of rows is not accepted: {counts}; the first dimension of each must "
        "be the rows"
    )


def part_of(batch: Sequence[Any], first: int, end: int, device: "torch.device") -> tuple[Any, ...]:
    """Some rows of a batch, on a device.

    Arrays of numbers become tensors, lists stay lists, and what has no rows is passed on as it is.
    """

    def take_rows(leaf: Any) -> Any:
        if _has_rows(leaf):
            leaf = leaf[first:end]
        return _on_device(leaf, device)

    return tuple(_map_leaves(each, take_rows) for each in batch)


def _on_device(leaf: Any, device: "torch.device") -> Any:
    import numpy as np
    import torch

    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf":
        leaf = torch.from_numpy(leaf)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.to(device, non_blocking=True)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{name}[{key!r}]")
    elif _is_structure(value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}[{index}]")
    else:
        yield name, value


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _map_leaves(item, change) for key, item in value.items()}
    if _is_structure(value):
        items = [_map_leaves(item, change) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    return change(value)


def _is_structure(value: Any) -> bool:
    """Whether a value is a tuple, or the list that PyTorch's DataLoader makes of one.

    A list of numbers or of strings is a column.
    """
    return isinstance(value, tuple) or (
        isinstance(value, list) and all(_has_rows(item) or isinstance(item, Mapping) for item in value)
    )


def _has_rows(value: Any) -> bool:
    return isinstance(value, list) or getattr(value, "ndim", 0) > 0
