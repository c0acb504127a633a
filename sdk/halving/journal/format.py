"""The journal's format: the bytes of a log segment, and how they are read.

A *log segment* is a file of the journal, mapped into memory: a write is a copy into the page cache, which
outlives the process. Each process of an attempt fills log segments of its own
(:mod:`halving.journal.appender`). After 16 magic bytes come its records:

    length: uint32, schema: uint32, step: int64, time: int64 (ns since 1970), values: float64 each, checksum:
        uint64 (CRC-32)

The length counts the bytes of the whole record, a multiple of 8. Schema 0 is a definition (JSON: the keys
that a schema number stands for in this log segment), schema 1 a note (JSON: a reference to an artifact). A
record with a wrong length or checksum was torn by the death of its process or machine, and reading ends
before it.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

MAGIC = b"HALVING\x01" + b"\0" * 8
DEFINITION = 0
NOTE = 1
FIRST_SCHEMA = 2
CHECKSUM = struct.Struct("<Q")
_HEAD = struct.Struct("<II")
_MIN_RECORD_BYTES = _HEAD.size + CHECKSUM.size

checksum = CHECKSUM.pack


class Block(NamedTuple):
    """Records of one schema that follow each other.

    Attributes:
        keys: those that the schema stands for.
        start: the first record's offset in the log segment.
        rows: the records as uint64 of shape (n, words): head, step, time, values, checksum.
    """

    keys: tuple[str, ...]
    start: int
    rows: Any

    @property
    def points(self) -> int:
        """How many values the records hold together."""
        return len(self.rows) * len(self.keys)


class Reading:
    """Reads a log segment from an offset on, and remembers the schemas that it has met.

    Args:
        memory: the log segment, mapped.
        verify: check every record, as is needed for what another process has written.

    Raises:
        ValueError: it is no log segment; a machine that died may leave a file of zeros.
    """

    def __init__(self, memory: Any, *, verify: bool) -> None:
        import numpy as np

        if bytes(memory[: len(MAGIC)]) != MAGIC:
            raise ValueError("it does not begin as a log segment does")
        self.memory = memory
        self.offset = len(MAGIC)
        self._verify = verify
        self._keys: dict[int, tuple[str, ...]] = {}
        self._words = np.frombuffer(memory, np.uint64)

    def blocks(self, end: int | None = None) -> Iterator[Block | dict[str, Any]]:
        """What was written since the last call: blocks of points, and notes with their ``offset``.

        It ends at ``end``, or at the first record that is not written yet, or is torn.
        """
        size = len(self.memory) if end is None else end
        while self.offset + _MIN_RECORD_BYTES <= size and (head := int(self._words[self.offset >> 3])):
            length = head & 0xFFFFFFFF
            schema = head >> 32
            if length % 8 or not _MIN_RECORD_BYTES <= length <= size - self.offset:
                return
            count = 1
            if schema >= FIRST_SCHEMA:
                count = self._repeats(head, length, size)
            if self._verify:
                count = self._intact(self.offset, length, count)
            if not count or (schema >= FIRST_SCHEMA and schema not in self._keys):
                return
            start = self.offset
            self.offset = self.offset + count * length
            if schema >= FIRST_SCHEMA:
                yield Block(
                    self._keys[schema], start, self._words[start >> 3 : self.offset >> 3].reshape(count, -1)
                )
                continue
            payload = json.loads(bytes(self.memory[start + _HEAD.size : start + length - CHECKSUM.size]))
            if schema == NOTE:
                yield {**payload, "offset": start}
            else:
                self._keys[payload["schema"]] = tuple(payload["keys"])

    def _repeats(self, head: int, length: int, size: int) -> int:
        """How many records with this very head follow each other.

        They are compared in bulk, in steps that grow while they agree.
        """
        stride = length >> 3
        first = self.offset >> 3
        limit = (size - self.offset) // length
        count = 1
        chunk = 8
        while count < limit:
            heads = self._words[first + count * stride : first + min(limit, count + chunk) * stride : stride]
            same = heads == head
            if not same.all():
                return count + int(same.argmin())
            count += len(heads)
            chunk = min(chunk * 4, 4096)
        return count

    def _intact(self, start: int, length: int, count: int) -> int:
        """How many of these records, from the first on, have the right checksum."""
        for number in range(count):
            begin = start + number * length
            body = self.memory[begin : begin + length - CHECKSUM.size]
            if crc32(body) != int(self._words[(begin + length - CHECKSUM.size) >> 3]):
                return number
        return count


def json_record(schema: int, payload: dict[str, Any]) -> bytes:
    """The bytes of a definition or a note."""
    text = json.dumps(payload, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = _HEAD.pack(_MIN_RECORD_BYTES + len(text), schema) + text
    return body + checksum(crc32(body))
