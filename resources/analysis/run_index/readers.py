"""Reading runs for the index: one after the other, by threads where the store answers slowly, or by several
processes.

Reading a run is mostly computing, which threads of one process do not do at the same time. A process of ours
has many threads all the same where the store is an object store: a run is eight to ten requests there, one
after the other, and waits far longer than it computes.
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

_PART = 16  # runs that are in memory at once, beside what is not written yet, in each process
# the same of a process of ours that reads from an object store, and how many it reads at once
_PART_OF_OBJECTS = 256
_THREADS = 64
_WORTH_PROCESSES = 500  # runs: a process takes a second to start


@dataclass(frozen=True)
class Look:
    """A run to be looked at; ``row`` is what the index has of it, and ``stale`` whether that is to be read
    again in any case.
    """

    project: str
    run: str
    row: dict[str, Any] | None = None
    stale: bool = False


Found = Entry | Exception | None
"""What is new of a run, or why it cannot be read."""


class Readers:
    """Reads runs of a store; :meth:`close` ends its processes, and it may be used again."""

    def __init__(self, store: Store, processes: int) -> None:
        self._store = store
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def read(self, looks: Sequence[Look]) -> Iterator[tuple[Sequence[Look], Sequence[Found]]]:
        """Runs part by part, in order, and what was found of each.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        if self._pool is None and self._processes > 1 and len(looks) >= _WORTH_PROCESSES:
            # theirs: Arrow's own keeps 8 MB for each of very many threads
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
            self._pool = ProcessPoolExecutor(
                self._processes, mp_context=get_context("spawn"), initializer=_begin
            )
        if self._pool is None:
            yield from ((part, _read_part(self._store, part)) for part in _parts(looks, _PART))
            return
        parts = _parts(looks, _PART if self._store.folder is not None else _PART_OF_OBJECTS)
        yield from zip(parts, self._pool.map(_read_part, [self._store] * len(parts), parts), strict=True)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _begin() -> None:
    """Have Arrow wait for as many answers at once as there are threads, and not for eight."""
    import pyarrow

    pyarrow.set_io_thread_count(_THREADS)


def _parts(looks: Sequence[Look], size: int) -> list[Sequence[Look]]:
    return [looks[at : at + size] for at in range(0, len(looks), size)]


def _read_part(store: Store, looks: Sequence[Look]) -> list[Found]:
    def read(look: Look) -> Found:
        try:
            return read_entry(store, look.project, look.run, None if look.stale else look.row)
        except StoreUnavailable:
            raise
        except NotFound as error:
            return NotFound(str(error))
        except Exception as error:  # noqa: BLE001
            # whatever a damaged record raises: it is that run's problem alone
            return StoreError(
                f"{type(error).__name__}: {error}" if not isinstance(error, StoreError) else str(error)
            )

    if store.folder is not None:
        return [read(look) for look in looks]
    return in_threads(read, looks, _THREADS)
