"""Limits on queries: how many run at a time, for how long, and with how many rows."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from halving.errors import HalvingError, InvalidInput
from server.curves.question import MAX_ROWS

THREADS = 2
"""Queries at a time.

More finish no sooner, because they share the interpreter's lock, and all of them come late.
"""

MAX_WAITING = 100
SECONDS = 20.0


FEWER = "ask for fewer runs or keys, or fewer max_points"


class Overloaded(HalvingError, TimeoutError):
    """A query took too long, or too many wait; the same may be answered later."""


def too_slow(seconds: float) -> Overloaded:
    """The error of a query that was not done in time."""
    return Overloaded(
        f"the curves were not read within {seconds:g} s: ask for fewer runs or keys, or try again"
    )


class Budget:
    """What one query may use of time and rows.

    :meth:`spend` is called before each block and after each curve.

    Args:
        seconds: from now on.
        advice: what to do about too many rows.
    """

    def __init__(self, seconds: float, rows: int = MAX_ROWS, advice: str = FEWER) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._max_rows = rows
        self._advice = advice
        self._rows = 0
        self._lock = threading.Lock()

    def spend(self, rows: int) -> None:
        """Count rows, and check that time and rows suffice.

        Raises:
            InvalidInput: they are too many.
            Overloaded: the time is over.
        """
        with self._lock:
            self._rows += rows
        if self._rows > self._max_rows:
            raise InvalidInput(f"an answer of more than {self._max_rows:,} rows is not given: {self._advice}")
        if time.monotonic() > self._end:
            raise too_slow(self._seconds)


class Limiter:
    """Runs queries in a few threads of its own.

    A query that is requested while an equal one runs gets that one's answer.
    """

    def __init__(self, threads: int = THREADS, seconds: float = SECONDS, waiting: int = MAX_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, "curves")
        self.seconds = seconds
        self._waiting = waiting
        self._flying: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    async def answer(
        self, name: str, query: Callable[[Budget], bytes], rows: int = MAX_ROWS, advice: str = FEWER
    ) -> bytes:
        """Run a query in a thread and wait for its answer; equal ``name`` means an equal query.

        Args:
            rows, advice: the most that it may have, and what to do where it has more.

        Raises:
            Overloaded: not within the time, or too many wait already.
        """
        with self._lock:
            flight = self._flying.get(name)
            new = name not in self._flying
            if flight is None:
                if len(self._flying) >= self._waiting:
                    raise Overloaded(f"{len(self._flying)} questions for curves wait already: try again")
                budget = Budget(self.seconds, rows, advice)  # the time includes that of waiting for a thread
                flight = self._flying[name] = self._pool.submit(query, budget)
        if new:  # without the lock: it is called at once where the query has ended already
            flight.add_done_callback(lambda _: self._forget(name))
        try:
            # Shielded: others may wait for the same.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(flight)), self.seconds)
        except TimeoutError as error:
            if isinstance(error, HalvingError):
                raise
            raise too_slow(self.seconds) from None

    def _forget(self, name: str) -> None:
        with self._lock:
            self._flying.pop(name, None)
