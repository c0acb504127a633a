"""The writing side of the journal: the log segments that one process of an attempt fills.

Several threads write at once, and a signal handler may log, or finish the run, in the middle of any of it. A record is one call into
C and so is never torn by either; what takes several steps (another log_segment, another set of keys) is done under a lock, and a
handler that interrupts its own thread there has its records written behind it.
"""

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from halving.journal.format import CHECKSUM, DEFINITION, FIRST_SCHEMA, MAGIC, MAIN, NOTE, checksum, json_record, log_segment_name

LOG_SEGMENT_BYTES = 4 << 20
MEMORY_BYTES = 64 << 20  # room for log segments in memory, while the disk refuses files
MAX_SCHEMAS = 1_000  # sets of keys in a log segment; rarer ones are logged key by key
_MOST_KEYS = 4_000  # in one record; more are logged key by key
_RETRY_SECONDS = 1.0  # before a disk that refused is asked again
_MADV_POPULATE_WRITE = 23  # Linux; Python's mmap has no name for it
_POPULATE_BYTES = 64 << 10


class JournalFull(Exception):
    """A record found no room; never reaches a user."""


class Fast(NamedTuple):
    """What the hot path needs to log one set of keys, bound to the log segment that it writes into."""

    width: int
    pick: Callable[[Any], tuple[Any, ...]]
    pack: Callable[..., bytes]
    head: int
    write: Callable[[bytes], Any]


class LogSegment:
    """One mapped file, or memory without a file when the disk refuses it."""

    def __init__(self, path: Path | None, size: int) -> None:
        self.path, self.size, self.sealed = path, size, False
        self._unlock: Callable[[], Any] = lambda: None
        if path is None:
            self.memory = mmap.mmap(-1, size)
        else:
            descriptor, self.memory = _create(path, size)
            self._unlock = weakref.finalize(self, os.close, descriptor)  # the open file is the lock
            self._unlock.atexit = False
        self.memory.write(MAGIC)

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
        self._unlock()


class Appender:
    """The log segments that one process writes.

    Args:
        folder: the attempt's journal folder; None where the disk refused one: all log segments then lie in memory.
        name: ``main``, or digits that no other child of the attempt has.
        max_bytes: room for what is not drained; beyond it :class:`JournalFull` says so.
        on_full: called when a log segment is full.
        on_refused: called with the reason when the disk refuses a log segment. The main appender's next log segment then lies in memory; what a
            child has in memory nobody would drain, so there is no room in it.
    """

    def __init__(
        self,
        folder: Path | None,
        name: str,
        *,
        max_bytes: int,
        log_segment_bytes: int = LOG_SEGMENT_BYTES,
        on_full: Callable[[], Any],
        on_refused: Callable[[OSError], Any],
    ) -> None:
        self.folder, self.name, self._max_bytes, self._log_segment_bytes = folder, name, max_bytes, log_segment_bytes
        self._on_full, self._on_refused = on_full, on_refused
        self.fast: Fast | None = None
        self.clock_offset = time.time_ns() - time.monotonic_ns()
        self.log_segments: dict[int, LogSegment] = {}  # what is not drained, by number
        self._current: LogSegment | None = None
        self._spare: LogSegment | None = None
        self._schemas: dict[tuple[str, ...], Fast] = {}
        self._opened, self._created = 0, count()
        self._refused_at = -_RETRY_SECONDS
        self._closed = False
        self._lock, self._owner = threading.RLock(), 0
        self._deferred: deque[Callable[[], None]] = deque()

    def append(self, keys: tuple[str, ...], values: Sequence[float], step: int, at: int) -> None:
        """Write a record, with its definition and a new log segment where needed.

        Raises:
            JournalFull: the journal has no room left, or is closed.
            struct.error: an integer that no float64 holds; nothing is written.
        """
        while True:
            fast = self._schemas.get(keys)
            if fast is None:
                if self._interrupted():
                    self._deferred.append(partial(self.append, keys, tuple(values), step, at))
                    return
                fast = self._define(keys)
            if fast is None:  # too many sets of keys
                for key, value in zip(keys, [float(value) for value in values], strict=True):
                    self.append((key,), (value,), step, at)
                return
            body = fast.pack(fast.head, step, at, *values)
            try:
                fast.write(body + checksum(crc32(body)))
            except ValueError:
                if self._interrupted():
                    self._deferred.append(partial(self.append, keys, tuple(values), step, at))
                    return
                self._change(fast.write)
            else:
                self.fast = fast
                self._write_deferred()
                return

    def note(self, payload: dict[str, Any]) -> None:
        """Write a note.

        Raises:
            JournalFull: the journal has no room left, or is closed.
        """
        record = json_record(NOTE, payload)
        if len(record) > self._log_segment_bytes - len(MAGIC):
            raise JournalFull(f"a note of {len(record)} bytes does not fit into the journal")
        while True:
            if self._interrupted():
                self._deferred.append(partial(self.note, payload))
                return
            with self._alone():
                write = self._open().memory.write
            try:
                write(record)
                self._write_deferred()
                return
            except ValueError:
                self._change(write)

    def now(self) -> int:
        """Nanoseconds since 1970, by a clock that does not go back when the machine's is set back."""
        return time.monotonic_ns() + self.clock_offset

    def follow_clock(self) -> None:
        """Go forward with a clock that was set forward by a second or more, as when the machine slept."""
        ahead = time.time_ns() - self.now()
        if ahead > 1_000_000_000:
            self.clock_offset += ahead

    def prepare(self) -> None:
        """Have the next log segment ready when this one is half full, with its memory, so that the training waits for neither."""
        log_segment = self._current
        wanted = log_segment is None or log_segment.sealed or log_segment.memory.tell() > self._log_segment_bytes // 2
        if self._spare is None and wanted and not self._closed:
            spare = self._create()
            spare.populate()
            self._spare = spare
            if self._closed:
                self._drop_spare()

    def close(self) -> None:
        """Take no more records."""
        self._closed = True
        if self._interrupted():  # the interrupted call finds the appender closed
            return
        with self._alone():
            self._seal()
            self._drop_spare()

    def _define(self, keys: tuple[str, ...]) -> Fast | None:
        packer = struct.Struct(f"<Qqq{len(keys)}d")
        length = packer.size + CHECKSUM.size
        with self._alone():
            while True:
                log_segment, schemas = self._open(), self._schemas
                if (known := schemas.get(keys)) is not None:
                    return known
                if len(keys) > 1 and (len(schemas) >= MAX_SCHEMAS or len(keys) > _MOST_KEYS):
                    return None
                number = FIRST_SCHEMA + len(schemas)
                definition, write = json_record(DEFINITION, {"schema": number, "keys": keys}), log_segment.memory.write
                if len(keys) > 1 and len(definition) + length > self._log_segment_bytes - len(MAGIC):
                    return None
                try:
                    write(definition)
                except ValueError:
                    self._seal()
                    self._on_full()
                    continue
                schemas[keys] = Fast(len(keys), _picker(keys), packer.pack, length | number << 32, write)
                return schemas[keys]

    def _change(self, full: Callable[[bytes], Any]) -> None:
        """End the log segment that ``full`` writes into, unless another thread has done so."""
        with self._alone():
            if self._current is not None and self._current.memory.write == full:
                self._seal()
            elif self._current is None:
                self._schemas = {}
        self._on_full()

    # What follows is called with the lock held.

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = 0

    def _interrupted(self) -> bool:
        """Whether this is a signal handler that interrupted its own thread where it must not be interrupted."""
        return self._owner == threading.get_ident()

    def _write_deferred(self) -> None:
        while self._deferred and not self._interrupted():
            with contextlib.suppress(IndexError):
                self._deferred.popleft()()

    def _open(self) -> LogSegment:
        if self._closed:
            raise JournalFull("the run is finished")
        if self._current is None:
            waiting = self._waiting()
            if waiting + self._log_segment_bytes > self._max_bytes:
                raise JournalFull(f"the journal holds {waiting >> 20} MiB that the store has not taken")
            log_segment = self._placed(self._take_spare() or self._create())
            self._schemas, self._current = {}, log_segment
            self.log_segments[self._opened] = log_segment
            self._opened += 1
        return self._current

    def _seal(self) -> None:
        self.fast, self._schemas = None, {}
        if self._current is not None:
            self._current.seal()
        self._current = None

    def _waiting(self) -> int:
        if self.name != MAIN:  # drained, and deleted, by the process that it was forked from
            self.log_segments = {
                number: log_segment for number, log_segment in self.log_segments.items() if log_segment.path and log_segment.path.exists()
            }
        return sum(log_segment.size for log_segment in list(self.log_segments.values()))

    def _take_spare(self) -> LogSegment | None:
        if (spare := self._spare) is not None:
            self._spare = None
        return spare

    def _drop_spare(self) -> None:
        if (spare := self._take_spare()) is not None and spare.path is not None:
            with contextlib.suppress(OSError):
                spare.path.unlink()

    def _create(self) -> LogSegment:
        """A log segment under a name that nobody reads yet, or in memory."""
        if self.folder is not None and time.monotonic() - self._refused_at >= _RETRY_SECONDS:
            try:
                return LogSegment(self.folder / f"{self.name}-{next(self._created)}.new", self._log_segment_bytes)
            except OSError as error:
                self._refused_at = time.monotonic()
                self._on_refused(error)
        in_memory = sum(log_segment.size for log_segment in list(self.log_segments.values()) if log_segment.path is None)
        if self.name != MAIN or in_memory >= MEMORY_BYTES:
            raise JournalFull(f"the disk takes no journal, and {in_memory >> 20} MiB wait in memory")
        return LogSegment(None, self._log_segment_bytes)

    def _placed(self, log_segment: LogSegment) -> LogSegment:
        """The log segment under its name, where readers find it whole: locked, with its blocks and its first bytes."""
        if log_segment.path is not None and self.folder is not None:
            try:
                log_segment.path = log_segment.path.rename(self.folder / log_segment_name(self.name, self._opened))
            except OSError as error:  # gone with its folder
                self._refused_at = time.monotonic()
                self._on_refused(error)
                return self._create()
        return log_segment


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


def _picker(keys: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the values of these keys out of a dict, in this order; KeyError when one is not there."""
    if len(keys) == 1:
        (key,) = keys
        return lambda values: (values[key],)
    return itemgetter(*keys)
