"""Reading a tensor that is stored as boxes piece by piece, in C order. Pure; without torch."""

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

import numpy as np

from halving.checkpoints.sharded.manifest import Chunk, Place, SavedTensor

MAX_PIECE_BYTES = 16 << 20
"""The size of a piece, at most."""

Read = Callable[[Place, int, int], bytes]
"""Reads bytes of a place: from a position in it, and so many."""


def pieces_of(
    tensor: SavedTensor, itemsize: int, read: Read, max_bytes: int = MAX_PIECE_BYTES
) -> Iterator[bytes]:
    """The bytes of a tensor's elements in C order, piece by piece.

    A piece is some rows of the outermost dimension whose rows are no larger than a piece, at one index of the
    dimensions before it.

    Args:
        itemsize: bytes of an element.
        max_bytes: of a piece; at least ``itemsize``.
    """
    shape = tensor.shape or (1,)
    # The bytes of a row, for each dimension.
    sizes = [itemsize * prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
    cut = next(dimension for dimension, size in enumerate(sizes) if size <= max_bytes)
    rows = shape[cut]
    if sizes[cut]:
        rows = max_bytes // sizes[cut]
    for outer in product(*map(range, shape[:cut])):
        for first in range(0, shape[cut], rows):
            piece = np.empty((min(rows, shape[cut] - first), *shape[cut + 1 :], itemsize), np.uint8)
            for chunk in tensor.chunks:
                _fill(piece, outer, first, chunk, read)
            yield piece.tobytes()


def _fill(piece: np.ndarray, outer: tuple[int, ...], first: int, chunk: Chunk, read: Read) -> None:
    """Copy the part of a piece that a chunk holds.

    The piece's rows are those from ``first`` on, at the indices ``outer`` of the dimensions before.
    """
    offsets = chunk.offsets or (0,)
    sizes = chunk.sizes or (1,)
    cut = len(outer)
    within = [index - offset for index, offset in zip(outer, offsets, strict=False)]
    begin = max(first, offsets[cut])
    end = min(first + len(piece), offsets[cut] + sizes[cut])
    if begin >= end or not all(0 <= index < size for index, size in zip(within, sizes, strict=False)):
        return
    row = 0  # The chunk's row, counted over its first dimensions.
    for index, size in zip((*within, begin - offsets[cut]), sizes, strict=False):
        row = row * size + index
    inner = sizes[cut + 1 :]
    row_bytes = piece.shape[-1] * prod(inner)
    content = np.frombuffer(read(chunk.place, row * row_bytes, (end - begin) * row_bytes), np.uint8)
    box = tuple(slice(offset, offset + size) for offset, size in zip(offsets[cut + 1 :], inner, strict=True))
    piece[(slice(begin - first, end - first), *box)] = content.reshape(end - begin, *inner, piece.shape[-1])
