"""A limit on the memory that the bodies of clients take at a time.

What finds no room is sent again: nobody loses a point by it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from server.errors import Busy


class BudgetExhausted(Busy):
    """Too many bytes are in memory; the client keeps its data and sends it again."""

    status = 429  # nothing is wrong with the server
    retry_seconds = 1


class MemoryBudget:
    """A limit on bytes in memory; to be used from the event loop.

    Args:
        limit: bytes. One request that is larger has room where it is alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0

    @contextmanager
    def reserve(self, size: int) -> Iterator[Callable[[int], None]]:
        """Reserve bytes for the length of the ``with`` block; yields a function that reserves more.

        Raises:
            BudgetExhausted: there is none.
        """
        reserved = 0

        def take_more(size: int) -> None:
            nonlocal reserved
            if self._taken > reserved and self._taken + size > self._limit:
                raise BudgetExhausted(
                    f"{self._taken >> 20} MiB are being taken already: send this again in "
                    f"{BudgetExhausted.retry_seconds} s"
                )
            self._taken = self._taken + size
            reserved = reserved + size

        take_more(size)
        try:
            yield take_more
        finally:
            self._taken -= reserved
