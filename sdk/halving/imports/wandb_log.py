"""W&B's log of a run, the ``.wandb`` file: LevelDB's log format, with a header of its own.

The file begins with ``:W&B``, the number 0xBEE1 and a version byte. It is written in blocks of 32 KiB, the
header being part of the first. A block holds chunks: a CRC-32 over type and data, the data's length (2
bytes), the type, and the data, all little-endian. A record is one whole chunk, or a first, middle ones and a
last. A block's last bytes stay zero where no chunk's head fits.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from halving.errors import InvalidInput
from halving.imports.foreign_run import Skipped

BLOCK = 32 * 2**10
HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
MAGIC = (b":W&B", 0xBEE1)
VERSION = 0
WHOLE = 1
FIRST = 2
MIDDLE = 3
LAST = 4

_DAMAGED = "damaged parts of log files (up to 32 KiB each)"


class LogRecord(NamedTuple):
    """A record's bytes, and where in the file its first chunk begins and its last one ends."""

    start: int
    end: int
    data: bytes


class _Chunk(NamedTuple):
    kind: int
    start: int
    end: int
    data: bytes


def read_log(path: Path, skipped: Skipped, start: int = 0, until: int | None = None) -> Iterator[LogRecord]:
    """Read the records of a file from byte ``start`` up to ``until``, or to the file's end.

    ``start`` is 0 or the end of a record, and ``until`` is the end of one. A file that is being written, or
    whose writer was killed, ends in the middle of a record: its last whole record is the last then. Damage
    elsewhere costs the rest of its block, and is counted in ``skipped``.

    Raises:
        InvalidInput: the file has another header; one that is shorter than a header has no records.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if not _check_header(path, file.read(HEADER.size)):
            return
        parts: list[bytes] = []
        began = 0  # where the current record began
        wanted = 0  # where its next chunk begins if nothing in between is lost
        for chunk in _chunks(file, max(start, HEADER.size), skipped):
            if chunk.kind in (WHOLE, FIRST):
                if parts:
                    skipped.add("records whose end is missing")
                parts = []
                began = chunk.start
            elif not parts or chunk.start != wanted:
                # Its beginning was in a part of the file that is damaged, which is counted there.
                parts = []
                continue
            if until is not None and chunk.end > until:
                return
            parts.append(chunk.data)
            wanted = _next_chunk(chunk.end)
            if chunk.kind in (WHOLE, LAST):
                yield LogRecord(began, chunk.end, b"".join(parts))
                parts = []


def _check_header(path: Path, header: bytes) -> bool:
    if len(header) < HEADER.size:
        return False
    mark, magic, version = HEADER.unpack(header)
    if (mark, magic) != MAGIC or version != VERSION:
        raise InvalidInput(
            f"file {str(path)!r} begins with {header!r}: a .wandb file begins with "
            f"{HEADER.pack(*MAGIC, VERSION)!r}"
        )
    return True


def _next_chunk(position: int) -> int:
    """The place of the chunk after one that ends at ``position``."""
    left = BLOCK - position % BLOCK
    if left < CHUNK.size:  # No chunk's head fits into the rest of the block.
        return position + left
    return position


def _chunks(file: BinaryIO, position: int, skipped: Skipped) -> Iterator[_Chunk]:
    """Read the whole chunks from the one that begins at ``position``."""
    position = _next_chunk(position)
    empty = False  # reserved bytes that were never written; at a file's end they are no damage
    while True:
        within = position % BLOCK
        file.seek(position)
        block = file.read(BLOCK - within)
        base = position
        place = 0
        while len(block) - place >= CHUNK.size:
            crc, length, kind = CHUNK.unpack_from(block, place)
            body = place + CHUNK.size
            if not any(block[place : place + CHUNK.size]) and not any(block[place:]):
                empty = True
                break
            if empty:
                skipped.add(_DAMAGED)
                empty = False
            if within + body + length > BLOCK or not WHOLE <= kind <= LAST:
                skipped.add(_DAMAGED)
                break
            if body + length > len(block):
                return  # still being written
            data = block[body : body + length]
            if zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc:
                skipped.add(_DAMAGED)
                break
            yield _Chunk(kind, base + place, base + body + length, data)
            place = body + length
        if within + len(block) < BLOCK:
            return
        position += BLOCK - within
