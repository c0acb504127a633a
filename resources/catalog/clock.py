"""The time that all processes on a catalog compare: the database's clock, as each reckons it."""

import time

AHEAD_SECONDS = 5.0
"""So much may a time in the catalog be ahead of a process's reckoning of now.

What is further ahead was written before the database's clock was set back: it is neither a moment ago nor
does it hold until then. The same is seen where this process's reckoning lags, because the server's clock was
set forward or this machine stood still: who would do something about it asks :meth:`Catalog.read_clock`
first.
"""

_READ_AGAIN_SECONDS = 60.0
# It goes on while a laptop sleeps: on Linux only the first one does, on macOS the second does.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ServerClock:
    """A server's clock: what it said last, and the seconds since, which pass whatever is done to this
    machine's clock.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._read_at = float("-inf")

    def set(self, now: float) -> None:
        """Take over what the server has just said, in seconds since the epoch."""
        self._read_at = time.clock_gettime(_COUNTER)
        self._offset = now - self._read_at

    def now(self) -> float:
        return time.clock_gettime(_COUNTER) + self._offset

    def is_due(self) -> bool:
        """Whether the server is to be asked again: its own clock may have been set."""
        return time.clock_gettime(_COUNTER) - self._read_at > _READ_AGAIN_SECONDS
