"""Finds the buffers of an Arrow file's record batches, so that rows can be copied out of the mapped file.

Arrow's own reader makes objects for each batch and column. Thousands of batches are open at a time, and for
those that takes longer than a resumed training should wait. The layout is the format's
(https://arrow.apache.org/docs/format/Columnar.html): a footer lists messages, and each message is a
flatbuffer with a record batch's length, field nodes and buffers. The messages of a file mostly differ in
these numbers alone, so they are all read at once.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

_MAGIC = b"ARROW1"
_RECORD_BATCH = 3  # a message's header type
_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("_", "<i4"), ("body", "<i8")])


class NotReadable(ValueError):
    """The bytes are not an Arrow file, or they are compressed."""


@dataclass(frozen=True)
class Layout:
    """Where the record batches of a file lie.

    Attributes:
        starts: the first row of each batch, ``(batches,)``.
        rows: number of rows in all batches.
        nulls: number of nulls in each field node, ``(nodes, batches)``.
        offsets, lengths: of each buffer, in bytes; offsets count from the beginning of the file.
            ``(buffers, batches)``.
    """

    starts: "Numbers"
    rows: int
    nulls: "Numbers"
    offsets: "Numbers"
    lengths: "Numbers"


def layout_of(data: "Bytes") -> Layout:
    """Read the layout from a file's bytes, ``(bytes,)``.

    Raises:
        NotReadable: the bytes have no layout, or one that shards do not have.
    """
    try:
        return _layout(data)
    except NotReadable:
        raise
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotReadable(f"it is no Arrow file: {error}") from error


def _layout(data: "Bytes") -> Layout:
    """Read the layout; where there is none, errors of reading bytes are raised as they are."""
    if bytes(data[:6]) != _MAGIC or bytes(data[-6:]) != _MAGIC:
        raise NotReadable("it does not begin and end as an Arrow file does")
    end = len(data) - 10
    (length,) = struct.unpack("<i", bytes(data[end : end + 4]))
    footer = bytes(data[max(0, end - length) : end])
    root = _follow(footer, 0)
    first_block, count = _vector(footer, root, 3)
    blocks = np.zeros(0, _BLOCK)
    if count:
        blocks = np.frombuffer(footer, _BLOCK, count, first_block)
    rows = np.zeros(count, np.int64)
    nodes: Numbers | None = None
    buffers: Numbers | None = None
    remaining = np.arange(count)
    while len(remaining):
        # Once for each form of message: nearly always one, or two where the last batch is smaller.
        same, form_rows, form_nodes, form_buffers = _same_form(data, blocks, remaining)
        if nodes is None or buffers is None:
            nodes = np.zeros((count, *form_nodes.shape[1:]), np.int64)
            buffers = np.zeros((count, *form_buffers.shape[1:]), np.int64)
        places = remaining[same]
        rows[places] = form_rows
        nodes[places] = form_nodes
        buffers[places] = form_buffers
        remaining = remaining[~same]
    if nodes is None or buffers is None:
        nodes = buffers = np.zeros((0, 0, 2), np.int64)
    offsets = (blocks["offset"] + blocks["metadata"])[:, None] + buffers[:, :, 0]
    if buffers.min(initial=0) < 0 or (offsets + buffers[:, :, 1]).max(initial=0) > len(data):
        raise NotReadable("its buffers lie outside of it")
    ends = np.cumsum(rows)
    return Layout(
        starts=ends - rows,
        rows=int(rows.sum()),
        nulls=np.ascontiguousarray(nodes[:, :, 1].T),
        offsets=np.ascontiguousarray(offsets.T),
        lengths=np.ascontiguousarray(buffers[:, :, 1].T),
    )


def _same_form(
    data: "Bytes", blocks: "np.ndarray[Any, Any]", remaining: "Numbers"
) -> "tuple[Any, Numbers, Numbers, Numbers]":
    """Find the messages of the same form as the first one, and read their numbers.

    Returns a mask of the remaining messages, and of those that it selects the rows, ``(messages,)``, and the
    nodes and buffers, ``(messages, count, 2)`` each.
    """
    size = int(blocks["metadata"][remaining[0]])
    same = blocks["metadata"][remaining] == size
    messages = data[blocks["offset"][remaining[same]][:, None] + np.arange(size)]  # (messages, size)
    first = messages[0].tobytes()
    message = _follow(first, 8)  # behind the continuation mark and the length
    if first[:4] != b"\xff\xff\xff\xff" or first[_field(first, message, 1) or 0] != _RECORD_BATCH:
        raise NotReadable("it has a message that is no record batch")
    batch = _follow(first, _field(first, message, 2) or 0)
    if _field(first, batch, 3) is not None:
        raise NotReadable("it is compressed")
    values = np.zeros(size, bool)  # True for the bytes that are numbers; all others are the form
    length = _field(first, batch, 0)
    body = _field(first, message, 3)
    vectors = [_vector(first, batch, number) for number in (1, 2)]
    spans = [(start, 16 * count) for start, count in vectors]
    for start, width in [(length, 8), (body, 8), *spans]:
        if start is not None:
            values[start : start + width] = True
    alike = (messages[:, ~values] == messages[0, ~values]).all(axis=1)
    same[same] = alike
    messages = messages[alike]
    rows = np.zeros(len(messages), np.int64)
    if length is not None:
        rows = messages[:, length : length + 8].copy().view("<i8")[:, 0]
    nodes, buffers = (
        messages[:, start : start + 16 * count].copy().view("<i8").reshape(-1, count, 2)
        for start, count in vectors
    )
    return same, rows, nodes, buffers


# In a flatbuffer a table begins with the distance back to its vtable. That has the place of each field within
# the table, or 0 for a field that is left out.


def _follow(data: bytes, place: int) -> int:
    """The place that an offset at ``place`` points to."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """The place of a table's field; None where the table leaves it out."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    place = int(struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0])
    if not place:
        return None
    return table + place


def _vector(data: bytes, table: int, number: int) -> tuple[int, int]:
    """The place of a vector's first item, and how many items it has."""
    field = _field(data, table, number)
    if field is None:
        return 0, 0
    vector = _follow(data, field)
    return vector + 4, int(struct.unpack_from("<I", data, vector)[0])
