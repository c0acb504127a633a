"""Threads for what reads the store. While the store hangs, as a network disk can, it is they that are held, and other routes go on."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from halving.errors import StoreError

THREADS = 20
SECONDS = 5.0

_Result = TypeVar("_Result")


class StoreThreads:
    """Runs functions in a few threads.

    Args:
        seconds: that a function waits for a thread.
    """

    def __init__(self, threads: int = THREADS, seconds: float = SECONDS) -> None:
        self._limiter, self._seconds = anyio.CapacityLimiter(threads), seconds

    async def run(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """What the function gives.

        Raises:
            StoreError: no thread was free in time.
        """
        with anyio.move_on_after(self._seconds):  # a function that has begun is waited for
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        raise StoreError(
            f"{self._limiter.borrowed_tokens} requests wait for the store, which answers slowly or not at all: try again later"
        )

    async def stream(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The same parts, none of which is empty."""
        while part := await self.run(next, parts, b""):
            yield part


def reads_store(route: Callable[..., _Result]) -> Callable[..., Coroutine[Any, Any, _Result]]:
    """A route that takes ``state`` and reads the store, in threads of its own."""

    @wraps(route)
    async def in_thread(**given: Any) -> _Result:
        return await given["state"].store_threads.run(partial(route, **given))

    return in_thread
