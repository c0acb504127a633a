"""Threads for reading the store.

While the store hangs, as a network disk can, only these threads are held, and other routes go on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from halving.errors import StoreUnavailable
from server.errors import Busy

THREADS = 20
SECONDS = 5.0
READ_SECONDS = 30.0
"""The longest that a request waits for what it reads of the store."""

_Result = TypeVar("_Result")


class StoreThreads:
    """Runs functions in a few threads.

    Args:
        seconds: that a function waits for a thread.
    """

    def __init__(self, threads: int = THREADS, seconds: float = SECONDS) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._seconds = seconds

    async def run(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Run a function in one of the threads and return its result.

        Raises:
            Busy: no thread was free in time.
        """
        with anyio.move_on_after(self._seconds):  # a function that has begun is waited for
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        raise Busy(
            f"{self._limiter.borrowed_tokens} requests wait for the store, which answers slowly or not at "
            "all: try again later"
        )

    async def read(
        self, function: Callable[..., _Result], *arguments: Any, seconds: float = READ_SECONDS
    ) -> _Result:
        """As :meth:`run`, for functions that only read.

        It holds its thread until it ends, but nobody waits for it any longer than so many seconds.

        Raises:
            Busy: no thread was free in time.
            StoreUnavailable: it took longer.
        """
        reading = asyncio.ensure_future(self.run(function, *arguments))
        # Nobody may wait any more; an error must not be reported as never retrieved.
        reading.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        done, _ = await asyncio.wait([reading], timeout=seconds)
        if not done:
            raise StoreUnavailable(f"what is asked for was not read within {seconds:g} s")
        return reading.result()

    async def stream(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Iterate over byte strings in the threads; none of them is empty."""
        while part := await self.run(next, parts, b""):
            yield part


def reads_store(route: Callable[..., _Result]) -> Callable[..., Coroutine[Any, Any, _Result]]:
    """Run a route that only reads the store in the store's threads.

    The route takes ``state``, and is given up when the store says nothing for too long.
    """

    @wraps(route)
    async def in_thread(**arguments: Any) -> _Result:
        return await arguments["state"].store_threads.read(partial(route, **arguments))

    return in_thread


def reads_store_and_writes(route: Callable[..., _Result]) -> Callable[..., Coroutine[Any, Any, _Result]]:
    """As :func:`reads_store`, for a route that also changes something.

    It is waited for, because its answer says whether the change was made.
    """

    @wraps(route)
    async def in_thread(**arguments: Any) -> _Result:
        return await arguments["state"].store_threads.run(partial(route, **arguments))

    return in_thread
