"""The journal: where ``log()`` puts a record, in memory that outlives the process.

A *piece* is a file mapped into memory: a write is a copy into the page cache, which stays when the process is killed. Each
process of an attempt writes a *lane* of pieces of its own (``main``, and the process id of a forked child). Records are

    length: uint32, schema: uint32, step: int64, time: int64 (ns since 1970), values: float64 each, checksum: uint64 (CRC-32)

and all are multiples of 8 bytes. Schema 0 is a definition (JSON: which keys a schema number stands for in this piece), schema 1 a
note (JSON: a reference to an artifact). A record whose length or checksum is wrong was torn: the piece ends there.
"""

import contextlib
import fcntl
import json
import mmap
import os
import re
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

PIECE_BYTES = 4 << 20
MAX_SCHEMAS = 1_000  # different sets of keys in a piece; rarer ones are logged key by key
MAIN = "main"

_MAGIC = b"HALVING\x01" + b"\0" * 8
_DEFINITION, _NOTE, _FIRST_SCHEMA = 0, 1, 2
_CHECKSUM = struct.Struct("<Q")
_HEAD = struct.Struct("<II")
_SMALLEST = _HEAD.size + _CHECKSUM.size
MEMORY_BYTES = 64 << 20  # room for pieces in memory, while the disk refuses files
_MADV_POPULATE_WRITE = 23  # Linux; Python's mmap has no name for it
_POPULATE_BYTES = 64 << 10
_MOST_KEYS = 4_000  # in one record; more are logged key by key
_PIECE_NAME = re.compile(r"(main|\d+)-(\d{6,})\.journal")

checksum = _CHECKSUM.pack


class JournalFull(Exception):
    """A record found no room; never reaches a user."""


class Fast(NamedTuple):
    """What the hot path needs to log one set of keys, bound to the piece that it writes into."""

    width: int
    pick: Callable[[Any], tuple[Any, ...]]
    pack: Callable[..., bytes]
    head: int
    write: Callable[[bytes], Any]


class Piece:
    """One mapped file, or memory without a file when the disk refuses it."""

    def __init__(self, path: Path | None, size: int) -> None:
        self.path, self.size, self.sealed = path, size, False
        if path is None:
            self.memory = mmap.mmap(-1, size)
        else:
            descriptor, self.memory = _create(path, size)
            weakref.finalize(self, os.close, descriptor).atexit = False  # the open file is the lock
        self.memory.write(_MAGIC)

    def populate(self) -> None:
        """Take the pages from the system now, a few at a time: a first touch in ``log()`` would cost it 10 µs every 4 KiB."""
        with contextlib.suppress(OSError, ValueError):  # before Linux 5.14, or elsewhere: each page is taken when it is touched
            for start in range(0, self.size, _POPULATE_BYTES):
                self.memory.madvise(_MADV_POPULATE_WRITE, start, min(_POPULATE_BYTES, self.size - start))
                time.sleep(0)  # the call holds the interpreter's lock

    def seal(self) -> None:
        """Let no more records in. One that is written meanwhile is inside: readers go by the content, not by an end."""
        self.memory.seek(0, os.SEEK_END)
        self.sealed = True


class Lane:
    """The pieces that one process writes.

    Args:
        folder: the attempt's journal folder.
        name: ``main`` or a process id.
        max_bytes: room for what is not drained; beyond it :class:`JournalFull` says so.
        on_full: called when a piece is full.
        on_refused: called with the reason when the disk refuses a piece, which then lies in memory only.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        max_bytes: int,
        piece_bytes: int = PIECE_BYTES,
        on_full: Callable[[], Any],
        on_refused: Callable[[OSError], Any],
    ) -> None:
        self.folder, self.name, self._max_bytes, self._piece_bytes = folder, name, max_bytes, piece_bytes
        self._on_full, self._on_refused = on_full, on_refused
        self._lock = threading.RLock()  # a signal handler may log while this very thread changes pieces
        self.fast: Fast | None = None
        self.clock_offset = time.time_ns() - time.monotonic_ns()
        self.pieces: dict[int, Piece] = {}  # what is not drained, by number
        self._current: Piece | None = None
        self._spare: Piece | None = None
        self._schemas: dict[tuple[str, ...], Fast] = {}
        self._opened = 0

    def find(self, keys: tuple[str, ...]) -> Fast | None:
        """The hot path's tools for these keys if the current piece has their definition."""
        return self._schemas.get(keys)

    def append(self, keys: tuple[str, ...], values: Sequence[float], step: int, at: int) -> None:
        """Write a record, with its definition and a new piece where needed.

        Raises:
            JournalFull: the journal has no room left.
        """
        while True:
            fast = self._schemas.get(keys) or self._define(keys)
            if fast is None:  # too many sets of keys
                for key, value in zip(keys, values, strict=True):
                    self.append((key,), (value,), step, at)
                return
            body = fast.pack(fast.head, step, at, *values)
            try:
                fast.write(body + checksum(crc32(body)))
            except ValueError:
                self._change(fast.write)
            else:
                self.fast = fast
                return

    def now(self) -> int:
        """Nanoseconds since 1970, by a clock that does not go back when the machine's is set back."""
        return time.monotonic_ns() + self.clock_offset

    def follow_clock(self) -> None:
        """Go forward with a clock that was set forward by a second or more, as when the machine slept."""
        ahead = time.time_ns() - self.now()
        if ahead > 1_000_000_000:
            self.clock_offset += ahead

    def note(self, payload: dict[str, Any]) -> None:
        """Write a note.

        Raises:
            JournalFull: the journal has no room left.
        """
        record = _json_record(_NOTE, payload)
        if len(record) > self._piece_bytes - len(_MAGIC):
            raise JournalFull(f"a note of {len(record)} bytes does not fit into the journal")
        while True:
            write = self._open().memory.write
            try:
                write(record)
                return
            except ValueError:
                self._change(write)

    def prepare(self) -> None:
        """Have the next piece ready when this one is half full, with its memory, so that the training waits for neither."""
        piece = self._current
        if self._spare is None and (piece is None or piece.sealed or piece.memory.tell() > self._piece_bytes // 2):
            spare = self._create(f"{self.name}-{os.getpid()}.spare")
            spare.populate()
            self._spare = spare

    def seal(self) -> None:
        """End the lane's last piece; what is logged later begins another."""
        with self._lock:
            self.fast, self._schemas = None, {}
            if self._current is not None:
                self._current.seal()
            self._current = None

    def drop_spare(self) -> None:
        """Take away the piece that was made ahead."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.path is not None:
            spare.path.unlink(missing_ok=True)

    def _define(self, keys: tuple[str, ...]) -> Fast | None:
        packer = struct.Struct(f"<Qqq{len(keys)}d")
        length = packer.size + _CHECKSUM.size
        while True:
            with self._lock:
                piece = self._open()
                if (known := self._schemas.get(keys)) is not None:
                    return known
                if len(keys) > 1 and (len(self._schemas) >= MAX_SCHEMAS or len(keys) > _MOST_KEYS):
                    return None
                number = _FIRST_SCHEMA + len(self._schemas)
                definition, write = _json_record(_DEFINITION, {"schema": number, "keys": keys}), piece.memory.write
                if len(keys) > 1 and len(definition) + length > self._piece_bytes - len(_MAGIC):
                    return None
                try:
                    write(definition)
                except ValueError:
                    self._change(write)
                    continue
                self._schemas[keys] = Fast(len(keys), _picker(keys), packer.pack, length | number << 32, write)
                return self._schemas[keys]

    def _open(self) -> Piece:
        with self._lock:
            if self._current is None:
                waiting = self._waiting()
                if waiting + self._piece_bytes > self._max_bytes:
                    raise JournalFull(f"the journal holds {waiting >> 20} MiB that the store has not taken")
                piece = self._take_spare() or self._create(piece_name(self.name, self._opened))
                if piece.path is None and sum(other.size for other in list(self.pieces.values()) if not other.path) >= MEMORY_BYTES:
                    raise JournalFull(f"the disk takes no journal, and {MEMORY_BYTES >> 20} MiB wait in memory")
                self._schemas, self._current = {}, piece
                self.pieces[self._opened] = piece
                self._opened += 1
            return self._current

    def _change(self, full: Callable[[bytes], Any]) -> None:
        """End the piece that ``full`` writes into, unless another thread has done so."""
        with self._lock:
            if self._current is None or self._current.memory.write != full:
                return
            self.seal()
        self._on_full()

    def _waiting(self) -> int:
        if self.name != MAIN:  # drained, and deleted, by the process that it was forked from
            self.pieces = {number: piece for number, piece in self.pieces.items() if piece.path is None or piece.path.exists()}
        return sum(piece.size for piece in list(self.pieces.values()))

    def _take_spare(self) -> Piece | None:
        piece, self._spare = self._spare, None
        if piece is None or piece.path is None:
            return None
        try:
            piece.path = piece.path.rename(self.folder / piece_name(self.name, self._opened))
        except OSError:
            return None
        return piece

    def _create(self, name: str) -> Piece:
        try:
            return Piece(self.folder / name, self._piece_bytes)
        except OSError as error:
            self._on_refused(error)
            return Piece(None, self._piece_bytes)


class Block(NamedTuple):
    """Records of one schema that follow each other: ``records`` of ``length`` bytes each from ``start``."""

    schema: int
    start: int
    records: int
    length: int


class Reading:
    """Reads a piece from an offset on, remembering the schemas that it met.

    Args:
        memory: the piece, mapped.
        verify: check every record, as is needed for what another process wrote or left.
    """

    def __init__(self, memory: Any, *, verify: bool) -> None:
        import numpy as np

        self.memory, self.offset, self._verify = memory, len(_MAGIC), verify
        self.keys: dict[int, tuple[str, ...]] = {}
        self.words = np.frombuffer(memory, np.uint64)

    @property
    def valid(self) -> bool:
        """Whether this is a piece at all: a machine that died may leave a file of zeros."""
        return bytes(self.memory[: len(_MAGIC)]) == _MAGIC

    def blocks(self, end: int | None = None) -> Iterator[Block | dict[str, Any]]:
        """What was written since the last call (up to ``end``): blocks of points, and notes.

        Ends at the first record that is not there yet, or is torn.
        """
        size = len(self.memory) if end is None else end
        while self.offset + _SMALLEST <= size and (head := int(self.words[self.offset >> 3])):
            length, schema = head & 0xFFFFFFFF, head >> 32
            if length % 8 or not _SMALLEST <= length <= size - self.offset:
                return
            count = 1 if schema < _FIRST_SCHEMA else self._repeats(head, length, size)
            if self._verify:
                count = self._intact(self.offset, length, count)
            if not count or (schema >= _FIRST_SCHEMA and schema not in self.keys):
                return
            start, self.offset = self.offset, self.offset + count * length
            if schema >= _FIRST_SCHEMA:
                yield Block(schema, start, count, length)
                continue
            payload = json.loads(bytes(self.memory[start + _HEAD.size : start + length - _CHECKSUM.size]))
            if schema == _NOTE:
                yield {**payload, "offset": start}
            else:
                self.keys[payload["schema"]] = tuple(payload["keys"])

    def rows(self, block: Block) -> Any:
        """A block's records as a uint64 array of shape (records, length / 8)."""
        start, stride = block.start >> 3, block.length >> 3
        return self.words[start : start + block.records * stride].reshape(block.records, stride)

    def _repeats(self, head: int, length: int, size: int) -> int:
        """How many records with this very head follow each other. Compared in bulk, in steps that grow while they agree."""
        stride, first = length >> 3, self.offset >> 3
        most = (size - self.offset) // length
        count, chunk = 1, 8
        while count < most:
            heads = self.words[first + count * stride : first + min(most, count + chunk) * stride : stride]
            same = heads == head
            if not same.all():
                return count + int(same.argmin())
            count += len(heads)
            chunk = min(chunk * 4, 4096)
        return count

    def _intact(self, start: int, length: int, count: int) -> int:
        """How many of these records have their checksum."""
        for number in range(count):
            begin = start + number * length
            body = self.memory[begin : begin + length - _CHECKSUM.size]
            if crc32(body) != int(self.words[(begin + length - _CHECKSUM.size) >> 3]):
                return number
        return count


def map_piece(path: Path) -> mmap.mmap:
    """A piece that another process wrote, read-only.

    Raises:
        OSError, ValueError: it is gone, or empty.
    """
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def piece_name(lane: str, number: int) -> str:
    return f"{lane}-{number:06d}.journal"


def piece_files(folder: Path) -> dict[str, list[tuple[int, Path]]]:
    """The pieces in an attempt's folder: lane to numbers and paths, in order."""
    lanes: dict[str, list[tuple[int, Path]]] = {}
    for name in sorted(os.listdir(folder)):
        if found := _PIECE_NAME.fullmatch(name):
            lanes.setdefault(found[1], []).append((int(found[2]), folder / name))
    return {lane: sorted(pieces) for lane, pieces in lanes.items()}


def is_written(path: Path) -> bool:
    """Whether the process that writes a piece still lives: it holds a lock on it, which the system takes back when it dies."""
    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _create(path: Path, size: int) -> tuple[int, mmap.mmap]:
    """A new file of zeros, mapped, whose blocks are the disk's already: writing to a hole on a full disk would kill the process."""
    path.parent.mkdir(parents=True, exist_ok=True)  # of a child that logs on when its parent has finished the run
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.write(descriptor, bytes(size))
        return descriptor, mmap.mmap(descriptor, size)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise


def _json_record(schema: int, payload: dict[str, Any]) -> bytes:
    text = json.dumps(payload, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = _HEAD.pack(_SMALLEST + len(text), schema) + text
    return body + checksum(crc32(body))


def _picker(keys: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the values of these keys out of a dict, in this order; KeyError when one is not there."""
    if len(keys) == 1:
        (key,) = keys
        return lambda values: (values[key],)
    return itemgetter(*keys)
