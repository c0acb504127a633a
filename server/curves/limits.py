"""Limits on queries: two at a time, equal ones once, none longer than a time, none with too many rows."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from halving.errors import HalvingError, InvalidInput
from server.curves.question import MOST_ROWS

THREADS = 2
"""Queries at a time. More finish no sooner, because they share the interpreter's lock, and all of them come late."""

MOST_WAITING = 100
SECONDS = 20.0


class Overloaded(HalvingError, TimeoutError):
    """A query took too long, or too many wait; the same may be answered later."""


class Budget:
    """What one query may use; to be told after each run that was read.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float, rows: int = MOST_ROWS) -> None:
        self._seconds, self._end, self._most = seconds, time.monotonic() + seconds, rows
        self._rows = 0
        self._lock = threading.Lock()

    def spend(self, rows: int) -> None:
        """Count rows.

        Raises:
            InvalidInput: they are too many.
            Overloaded: the time is over.
        """
        with self._lock:
            self._rows += rows
        if self._rows > self._most:
            raise InvalidInput(f"an answer of more than {self._most:,} rows is not given: ask for fewer runs or keys, or fewer max_points")
        if time.monotonic() > self._end:
            raise Overloaded(f"the curves were not read within {self._seconds:g} s: ask for fewer runs or keys, or try again")


class Limiter:
    """Runs queries in a few threads of its own; one that is asked for while an equal one runs gets that one's answer."""

    def __init__(self, threads: int = THREADS, seconds: float = SECONDS, waiting: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, "curves")
        self._seconds, self._waiting = seconds, waiting
        self._flying: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    async def answer(self, name: str, query: Callable[[Budget], bytes]) -> bytes:
        """What ``query`` gives; ``name`` is equal for equal queries. A request that waits holds no thread.

        Raises:
            Overloaded: not within the time, or too many wait already.
        """
        with self._lock:
            flight, new = self._flying.get(name), name not in self._flying
            if flight is None:
                if len(self._flying) >= self._waiting:
                    raise Overloaded(f"{len(self._flying)} questions for curves wait already: try again")
                budget = Budget(self._seconds)  # the time includes that of waiting for a thread
                flight = self._flying[name] = self._pool.submit(query, budget)
        if new:  # without the lock: it is called at once where the query has ended already
            flight.add_done_callback(lambda _: self._landed(name))
        try:
            # Shielded: others may wait for the same.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(flight)), self._seconds)
        except TimeoutError as error:
            if isinstance(error, HalvingError):
                raise
            raise Overloaded(f"the curves were not read within {self._seconds:g} s: ask for fewer runs or keys, or try again") from None

    def _landed(self, name: str) -> None:
        with self._lock:
            self._flying.pop(name, None)
