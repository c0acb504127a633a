"""A queue that limits how many questions are answered at a time, in all and for each asker.

An asker is a token or a study. The others wait in the order in which they came, and hold neither a thread nor
a connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.errors import Busy

MAX_WAITING = 100
"""Questions of one token that wait or are being answered, where nothing else is said."""

SECONDS = 20.0
"""How long a question waits for its turn."""


class FairQueue:
    """Lets askers take turns. To be used from the event loop.

    Args:
        at_once: questions at a time.
        each: of one token, or about one study, at a time, so that others have their turn beside its slow
            ones.
    """

    def __init__(
        self, at_once: int, each: int, *, waiting: int = MAX_WAITING, seconds: float = SECONDS
    ) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._each = each
        self._waiting = waiting
        self._seconds = seconds
        self._askers: dict[str, _Asker] = {}

    @asynccontextmanager
    async def turn(self, asker_name: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the length of the ``with`` block.

        Raises:
            Busy: it does not come in time, or too many of the same name wait already.
        """
        asker = self._askers.setdefault(asker_name, _Asker(self._each))
        if asker.asking >= self._waiting:
            raise Busy(
                f"{asker.asking} requests like this one wait already: ask again when some are answered"
            )
        asker.asking += 1
        try:
            async with self._wait_for(asker.free), self._wait_for(self._free):
                yield
        finally:
            asker.asking -= 1
            if not asker.asking:
                del self._askers[asker_name]

    @asynccontextmanager
    async def _wait_for(self, free: asyncio.Semaphore) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds):
                await free.acquire()
        except TimeoutError:
            raise Busy(
                f"too many requests are being answered, and this one had no turn within {self._seconds:g} "
                "s: ask again"
            ) from None
        try:
            yield
        finally:
            free.release()


class _Asker:
    def __init__(self, each: int) -> None:
        self.free = asyncio.Semaphore(each)
        self.asking = 0
