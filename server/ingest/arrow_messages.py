"""Check the messages of an Arrow IPC stream before they are read.

A compressed message may be a thousand times as large in memory.

Arrow does not say whether a batch is compressed, so its flatbuffers are looked at
(https://arrow.apache.org/docs/format/Columnar.html, "Message.fbs"): of the table ``Message`` field 2 is the
header, and of a header's ``RecordBatch`` field 3 is the compression.
"""

import struct

import pyarrow as pa

from halving.errors import InvalidInput

_HEADER = 2
_DATA = 1
_COMPRESSION = 3


def check_uncompressed(stream: bytes) -> None:
    """Refuse a stream with compressed buffers.

    Raises:
        InvalidInput: it has some, or is none.
    """
    try:
        for message in pa.ipc.MessageReader.open_stream(stream):
            if message.type == "schema":
                continue
            buffer = memoryview(message.metadata)
            header = _table(buffer, _field(buffer, _table(buffer, 0), _HEADER))
            if message.type == "dictionary":
                header = _table(buffer, _field(buffer, header, _DATA))
            if _field(buffer, header, _COMPRESSION):
                raise InvalidInput(
                    "compressed Arrow buffers are not accepted: compress the whole body, with "
                    "Content-Encoding: zstd"
                )
    except (struct.error, pa.ArrowException, OSError) as error:
        raise InvalidInput(f"the body is not an Arrow IPC stream: {error}") from None


def _table(buffer: memoryview, place: int) -> int:
    """Follow the offset at a place to its table."""
    return place + int(struct.unpack_from("<I", buffer, place)[0])


def _field(buffer: memoryview, table: int, number: int) -> int:
    """The place of a table's field with this number; 0 where it has none."""
    vtable = table - int(struct.unpack_from("<i", buffer, table)[0])
    (size,) = struct.unpack_from("<H", buffer, vtable)
    place = 4 + 2 * number
    if place >= size:
        return 0
    (offset,) = struct.unpack_from("<H", buffer, vtable + place)
    if not offset:
        return 0
    return table + int(offset)
