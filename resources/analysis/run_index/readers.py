"""Reading runs for the index: one after the other, by threads, or by several processes.

Reading a run is mostly computing, which threads of one process cannot do at the same time. With an object
store a process has many threads nevertheless, because a run takes eight to ten requests there, one after the
other, and these wait far longer than they compute.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from halving.errors import NotFound, StoreError, StoreUnavailable
from halving.query.runs import in_threads
from halving.store.store import Store
from resources.analysis.run_index.entry import Entry, read_entry

_PART = 16  # runs that each process has in memory at once, beside those that are not written yet
_PART_OF_OBJECTS = 256  # the same for an object store
_THREADS = 64  # runs that a process reads from an object store at once
_MIN_FOR_PROCESSES = 500  # runs; starting a process takes a second


@dataclass(frozen=True)
class Look:
    """A run to be looked at.

    Attributes:
        row: the index's row of it, if it has one.
        stale: whether the run is to be read again in any case.
    """

    project: str
    run: str
    row: dict[str, Any] | None = None
    stale: bool = False


Reading = Entry | Exception | None
"""The result of reading a run: its entry, the error, or None if it has not changed."""


class Readers:
    """Reads runs of a store; it may be used again after :meth:`close`, which ends its processes."""

    def __init__(self, store: Store, processes: int) -> None:
        self._store = store
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def read(self, looks: Sequence[Look]) -> Iterator[tuple[Sequence[Look], Sequence[Reading]]]:
        """Read runs part by part, in order; yield each part with its readings.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        if self._pool is None and self._processes > 1 and len(looks) >= _MIN_FOR_PROCESSES:
            # For the new processes, because Arrow's own pool keeps 8 MB for each of very many threads.
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
            self._pool = ProcessPoolExecutor(
                self._processes, mp_context=get_context("spawn"), initializer=_begin
            )
        if self._pool is None:
            yield from ((part, _read_part(self._store, part)) for part in _parts(looks, _PART))
            return
        size = _PART
        if self._store.folder is None:
            size = _PART_OF_OBJECTS
        parts = _parts(looks, size)
        yield from zip(parts, self._pool.map(_read_part, [self._store] * len(parts), parts), strict=True)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _begin() -> None:
    """Let Arrow wait for as many requests at a time as there are threads, instead of eight."""
    import pyarrow

    pyarrow.set_io_thread_count(_THREADS)


def _parts(looks: Sequence[Look], size: int) -> list[Sequence[Look]]:
    return [looks[first : first + size] for first in range(0, len(looks), size)]


def _read_part(store: Store, looks: Sequence[Look]) -> list[Reading]:
    def read(look: Look) -> Reading:
        row = look.row
        if look.stale:
            row = None
        try:
            return read_entry(store, look.project, look.run, row)
        except StoreUnavailable:
            raise
        except NotFound as error:
            return NotFound(str(error))
        except StoreError as error:
            return StoreError(str(error))
        except Exception as error:  # noqa: BLE001
            # A damaged record may raise anything, and must not keep other runs from being read.
            return StoreError(f"{type(error).__name__}: {error}")

    if store.folder is not None:
        return [read(look) for look in looks]
    return in_threads(read, looks, _THREADS)
