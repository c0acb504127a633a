"""A cache of run readers and what they have read.

An entry is good for as long as its run gets no other points, so that the next question reads nothing again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from halving.query.curve_reader import RunCurves, open_run_curves
from halving.store.store import Store

MAX_BYTES = 256 << 20
_AT_ONCE = 64  # runs that are opened
_ITSELF = 8 << 10  # bytes that a reader takes without what it has read, about

Run = tuple[str, str]
# Project, run, and the only keys that the reader has; empty where it has all.
_Name = tuple[str, str, tuple[str, ...]]


@dataclass
class _Entry:
    stamp: bytes
    reader: RunCurves
    size: int = 0


class ReaderCache:
    """A bounded cache of readers; the least recently used one goes first.

    Args:
        max_bytes: of what they hold.
    """

    def __init__(self, store: Store, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: OrderedDict[_Name, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._opening = [threading.Lock() for _ in range(_AT_ONCE)]

    def opener(self, stamps: Mapping[Run, bytes]) -> Callable[[str, str, Sequence[str]], RunCurves]:
        """A function that opens a run's reader for some keys, or returns the cached one with the same stamp.

        Args:
            stamps: made before, so that a reader never has less than its stamp says.
        """

        def open_reader(project: str, run: str, keys: Sequence[str]) -> RunCurves:
            stamp = stamps[project, run]
            if reader := self._find(project, run, keys, stamp):
                return reader
            with self._opening[hash((project, run)) % _AT_ONCE]:
                # Two questions that come at once open it once.
                if reader := self._find(project, run, keys, stamp):
                    return reader
                reader = open_run_curves(self._store, project, run, keys)
                kept_keys = tuple(keys)
                if reader.is_compacted:  # it has all of the run's
                    kept_keys = ()
                self._keep((project, run, kept_keys), stamp, reader)
                return reader

        return open_reader

    def _find(self, project: str, run: str, keys: Sequence[str], stamp: bytes) -> RunCurves | None:
        with self._lock:
            for name in ((project, run, ()), (project, run, tuple(keys))):
                entry = self._entries.get(name)
                if entry is not None and entry.stamp == stamp:
                    self._entries.move_to_end(name)
                    return entry.reader
        return None

    def _keep(self, name: _Name, stamp: bytes, reader: RunCurves) -> None:
        with self._lock:
            self._forget(name)
            self._entries[name] = _Entry(stamp, reader)
            reader.grew = partial(self._count, name, reader)
        self._count(name, reader, reader.size + _ITSELF)

    def _count(self, name: _Name, reader: RunCurves, more: int) -> None:
        with self._lock:
            if name in self._entries and self._entries[name].reader is reader:
                self._entries[name].size += more
                self._size += more
            while self._size > self._max_bytes:
                self._forget(next(iter(self._entries)))

    def _forget(self, name: _Name) -> None:
        if name in self._entries:
            entry = self._entries.pop(name)
            self._size -= entry.size
            # A question may still have the reader, and would keep all that was read in memory.
            entry.reader.forget()
