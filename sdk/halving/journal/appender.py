"""The writing side of the journal: the log segments that one process of an attempt fills.

Several threads write at once, and a signal handler may log, or finish the run, in the middle of any of it. A
record is written by one call into C, so neither can tear it. What takes several steps (a new log segment, a
new set of keys) is done under a lock; where a handler interrupts its own thread there, the handler's records
are written after those steps.
"""

import contextlib
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path
from time import monotonic_ns
from typing import Any, NamedTuple
from zlib import crc32

from halving.journal.format import CHECKSUM, DEFINITION, FIRST_SCHEMA, MAGIC, NOTE, checksum, json_record
from halving.journal.log_segment import LOG_SEGMENT_BYTES, MAIN, LogSegment, log_segment_name

MEMORY_BYTES = 64 << 20  # room for log segments in memory, while the disk refuses files
MAX_SCHEMAS = 1_000  # sets of keys in a log segment; rarer ones are logged key by key
_MAX_KEYS = 4_000  # A record with more keys is logged key by key.
_RETRY_SECONDS = 1.0  # before a file is tried again on a disk that has refused one


class JournalFull(Exception):
    """A record found no room; it is caught before it reaches a user."""


class Schema(NamedTuple):
    """How to write one set of keys into the current log segment."""

    pack: Callable[..., bytes]
    head: int
    write: Callable[[bytes], Any]
    fast: "Callable[[Any, int], bool]"


class Appender:
    """Fills the log segments of one process of an attempt.

    Args:
        folder: the attempt's journal folder; None where the disk refused one: every log segment then lies in
            memory.
        name: ``main``, or digits that no other child of the attempt has.
        max_bytes: room for what is not drained yet; :class:`JournalFull` is raised beyond it.
        on_full: called when a log segment is full.
        on_refused: called with the reason when the disk refuses a log segment. The next one of ``main`` then
            lies in memory. A child's does not, since nobody could drain it: its records find no room.

    Attributes:
        fast: ``fast(values, step)`` writes a record stamped with the present time if ``values`` is a dict
            with exactly the keys of the last record and plain numbers. Otherwise it gives False or raises any
            exception, and nothing is written.
        log_segments: those that are not drained yet, by number.
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
        self.folder = folder
        self.name = name
        self._max_bytes = max_bytes
        self._log_segment_bytes = log_segment_bytes
        self._on_full = on_full
        self._on_refused = on_refused
        self.fast: Callable[[Any, int], bool] = _no_keys_yet
        self.clock_offset = time.time_ns() - time.monotonic_ns()
        self.log_segments: dict[int, LogSegment] = {}
        self._current: LogSegment | None = None
        self._spare: LogSegment | None = None
        self._schemas: dict[tuple[str, ...], Schema] = {}
        self._opened = 0
        self._created = count()
        self._refused_at = -_RETRY_SECONDS
        self._closed = False
        self._lock = threading.RLock()
        self._owner = 0
        self._deferred: deque[Callable[[], None]] = deque()

    def append(self, keys: tuple[str, ...], values: Sequence[float], step: int, at: int) -> None:
        """Write a record, with its definition and a new log segment where needed.

        Raises:
            JournalFull: the journal has no room left, or is closed.
            struct.error: an integer that no float64 holds; nothing is written.
        """
        while True:
            schema = self._schemas.get(keys)
            if schema is None:
                if self._is_interrupting():
                    self._deferred.append(partial(self.append, keys, tuple(values), step, at))
                    return
                schema = self._define(keys)
            if schema is None:  # too many sets of keys
                for key, value in zip(keys, [float(value) for value in values], strict=True):
                    self.append((key,), (value,), step, at)
                return
            body = schema.pack(schema.head, step, at, *values)
            try:
                schema.write(body + checksum(crc32(body)))
            except ValueError:
                if self._is_interrupting():
                    self._deferred.append(partial(self.append, keys, tuple(values), step, at))
                    return
                self._change(schema.write)
            else:
                self.fast = schema.fast
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
            if self._is_interrupting():
                self._deferred.append(partial(self.note, payload))
                return
            with self._holding_lock():
                write = self._open_segment().memory.write
            try:
                write(record)
                self._write_deferred()
                return
            except ValueError:
                self._change(write)

    def now(self) -> int:
        """Nanoseconds since 1970, by a clock that is not set back when the machine's is."""
        return time.monotonic_ns() + self.clock_offset

    def follow_clock(self) -> None:
        """Follow the machine's clock when it was set forward by a second or more, as after a sleep."""
        ahead = time.time_ns() - self.now()
        if ahead > 1_000_000_000:
            self.clock_offset += ahead

    def prepare(self) -> None:
        """Make the next log segment once this one is half full, so that training need not wait for it."""
        log_segment = self._current
        wanted = (
            log_segment is None
            or log_segment.sealed
            or log_segment.memory.tell() > self._log_segment_bytes // 2
        )
        if self._spare is None and wanted and not self._closed:
            spare = self._create()
            spare.populate()
            self._spare = spare
            if self._closed:
                self._drop_spare()

    def close(self) -> None:
        """Take no more records."""
        self._closed = True
        if self._is_interrupting():  # the interrupted call finds the appender closed
            return
        with self._holding_lock():
            self._seal()
            self._drop_spare()

    def _define(self, keys: tuple[str, ...]) -> Schema | None:
        packer = struct.Struct(f"<Qqq{len(keys)}d")
        length = packer.size + CHECKSUM.size
        with self._holding_lock():
            while True:
                log_segment = self._open_segment()
                schemas = self._schemas
                if (schema := schemas.get(keys)) is not None:
                    return schema
                if len(keys) > 1 and (len(schemas) >= MAX_SCHEMAS or len(keys) > _MAX_KEYS):
                    return None
                number = FIRST_SCHEMA + len(schemas)
                definition = json_record(DEFINITION, {"schema": number, "keys": keys})
                write = log_segment.memory.write
                if len(keys) > 1 and len(definition) + length > self._log_segment_bytes - len(MAGIC):
                    return None
                try:
                    write(definition)
                except ValueError:
                    self._seal()
                    self._on_full()
                    continue
                head = length | number << 32
                schemas[keys] = Schema(packer.pack, head, write, self._fast(keys, packer.pack, head, write))
                return schemas[keys]

    def _fast(
        self, keys: tuple[str, ...], pack: Callable[..., bytes], head: int, write: Callable[[bytes], Any]
    ) -> Callable[[Any, int], bool]:
        """The function for :attr:`fast` with these keys."""
        width = len(keys)
        pick = _picker(keys)

        def fast(values: Any, step: int) -> bool:
            # A sum of floats is a float, and costs less than a look at each type; of anything else (a tensor,
            # a string) it is something else, or raises.
            if (
                type(values) is dict
                and len(values) == width
                and type(sum(picked := pick(values), 0.0)) is float
            ):
                # Joining tuples is cheaper than unpacking.
                body = pack(*((head, step, monotonic_ns() + self.clock_offset) + picked))  # noqa: RUF005
                write(body + checksum(crc32(body)))
                return True
            return False

        return fast

    def _change(self, full: Callable[[bytes], Any]) -> None:
        """Seal the log segment that ``full`` writes into, unless another thread has done so."""
        with self._holding_lock():
            if self._current is not None and self._current.memory.write == full:
                self._seal()
            elif self._current is None:
                self._schemas = {}
        self._on_full()

    # What follows is called with the lock held.

    @contextlib.contextmanager
    def _holding_lock(self) -> Iterator[None]:
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = 0

    def _is_interrupting(self) -> bool:
        """Whether this is a signal handler that interrupted its own thread while that holds the lock."""
        return self._owner == threading.get_ident()

    def _write_deferred(self) -> None:
        while self._deferred and not self._is_interrupting():
            with contextlib.suppress(IndexError):
                self._deferred.popleft()()

    def _open_segment(self) -> LogSegment:
        if self._closed:
            raise JournalFull("the run is finished")
        if self._current is None:
            undrained = self._count_undrained_bytes()
            if undrained + self._log_segment_bytes > self._max_bytes:
                raise JournalFull(f"the journal holds {undrained >> 20} MiB that the store has not taken")
            log_segment = self._give_final_name(self._take_spare() or self._create())
            self._schemas = {}
            self._current = log_segment
            self.log_segments[self._opened] = log_segment
            self._opened += 1
        return self._current

    def _seal(self) -> None:
        self.fast = _no_keys_yet
        self._schemas = {}
        if self._current is not None:
            self._current.seal()
        self._current = None

    def _count_undrained_bytes(self) -> int:
        if self.name != MAIN:  # a child: its log segments are drained, and deleted, by its parent
            self.log_segments = {
                number: log_segment
                for number, log_segment in self.log_segments.items()
                if log_segment.path and log_segment.path.exists()
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
        """Make a log segment, under a name that nobody reads yet, or in memory."""
        if self.folder is not None and time.monotonic() - self._refused_at >= _RETRY_SECONDS:
            try:
                return LogSegment(
                    self.folder / f"{self.name}-{next(self._created)}.new", self._log_segment_bytes
                )
            except OSError as error:
                self._refused_at = time.monotonic()
                self._on_refused(error)
        in_memory = sum(
            log_segment.size for log_segment in list(self.log_segments.values()) if log_segment.path is None
        )
        if self.name != MAIN or in_memory >= MEMORY_BYTES:
            raise JournalFull(f"the disk takes no journal, and {in_memory >> 20} MiB wait in memory")
        return LogSegment(None, self._log_segment_bytes)

    def _give_final_name(self, log_segment: LogSegment) -> LogSegment:
        """Give a log segment its final name; readers find it locked, allocated and begun."""
        if log_segment.path is not None and self.folder is not None:
            try:
                log_segment.path = log_segment.path.rename(
                    self.folder / log_segment_name(self.name, self._opened)
                )
            except OSError as error:  # its folder was removed
                self._refused_at = time.monotonic()
                self._on_refused(error)
                return self._create()
        return log_segment


def _no_keys_yet(values: Any, step: int) -> bool:
    """Accept nothing: the value of :attr:`Appender.fast` until a log segment has its first record."""
    return False


def _picker(keys: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that takes the values of these keys out of a dict, in this order.

    It raises KeyError where one is missing.
    """
    if len(keys) == 1:
        (key,) = keys
        return lambda values: (values[key],)
    return itemgetter(*keys)
