"""A tensor that lies in boxes comes out in C order, however it was cut, in pieces of any size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from halving.checkpoints.sharded.box_pieces import pieces_of
from halving.checkpoints.sharded.manifest import Chunk, Place, SavedTensor

Box = tuple[tuple[int, ...], tuple[int, ...]]


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Box]:
    """Boxes that cover a shape: it is cut in two, again and again, along any of its dimensions."""
    left = [((0,) * len(shape), shape)]
    boxes_ = list[Box]()
    while left:
        offsets, sizes = left.pop()
        cuttable = [dimension for dimension, size in enumerate(sizes) if size > 1]
        if not cuttable or not draw(st.booleans()):
            boxes_.append((offsets, sizes))
            continue
        along = draw(st.sampled_from(cuttable))
        at = draw(st.integers(1, sizes[along] - 1))
        left.append((offsets, (*sizes[:along], at, *sizes[along + 1 :])))
        right = (*offsets[:along], offsets[along] + at, *offsets[along + 1 :])
        left.append((right, (*sizes[:along], sizes[along] - at, *sizes[along + 1 :])))
    return boxes_


@given(st.data(), st.lists(st.integers(1, 6), max_size=4), st.sampled_from([1, 2, 8]), st.integers(8, 200))
def test_pieces_are_the_tensors_bytes_in_c_order(
    data: st.DataObject, dimensions: list[int], itemsize: int, max_bytes: int
) -> None:
    shape = tuple(dimensions)
    whole = np.random.default_rng(0).integers(0, 256, (*shape, itemsize), np.uint8)
    blobs = dict[str, bytes]()
    chunks = list[Chunk]()
    for offsets, sizes in data.draw(boxes(shape)):
        content = whole[
            tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
        ].tobytes()
        blobs[str(len(blobs))] = b"before" + content
        chunks.append(Chunk(offsets, sizes, Place(str(len(blobs) - 1), 6, len(content))))
    tensor = SavedTensor("uint8", shape, tuple(chunks))

    def read(place: Place, start: int, size: int) -> bytes:
        assert start + size <= place.size
        return blobs[place.blob][place.start + start :][:size]

    pieces = list(pieces_of(tensor, itemsize, read, max_bytes))
    assert b"".join(pieces) == whole.tobytes()
    assert max(map(len, pieces)) <= max_bytes
