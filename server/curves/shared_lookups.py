"""Lookups in the store that waiting questions share."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

_THREADS = 2

Run = tuple[str, str]


@dataclass
class _Lookup:
    """A pending lookup; collects the runs requested since the last one started."""

    runs: dict[Run, None] = field(default_factory=dict)
    made: "asyncio.Task[dict[Run, bytes]] | None" = None


class SharedLookups:
    """Looks up whether runs have new points, in threads of its own so that it never waits for queries.

    It is called from the event loop. At most two lookups run at a time, and each asks the store about a run
    once: otherwise a dozen dashboards of the same runs would make the same thousands of calls a dozen times.

    Args:
        stamps: gives the stamp of each run.
    """

    def __init__(self, stamps: Callable[[Sequence[Run]], Sequence[bytes]]) -> None:
        self._stamps = stamps
        self._threads = ThreadPoolExecutor(_THREADS, "stamps")
        self._turns = asyncio.Semaphore(_THREADS)
        self._next = _Lookup()

    async def stamps_of(self, runs: Sequence[Run]) -> list[bytes]:
        """The runs' stamps, all made after this call. Raises what ``stamps`` does."""
        lookup = self._next
        lookup.runs.update(dict.fromkeys(runs))
        if lookup.made is None:
            lookup.made = asyncio.create_task(self._make(lookup))
            # Read the error, which asyncio would else report as never retrieved if nobody waits any more.
            lookup.made.add_done_callback(lambda made: made.cancelled() or made.exception())
        stamps = await asyncio.shield(lookup.made)  # others may wait for it
        return [stamps[run] for run in runs]

    async def _make(self, lookup: _Lookup) -> dict[Run, bytes]:
        async with self._turns:
            self._next = _Lookup()  # later callers need what is new since now
            runs = tuple(lookup.runs)
            stamps = await asyncio.get_running_loop().run_in_executor(self._threads, self._stamps, runs)
        return dict(zip(runs, stamps, strict=True))
