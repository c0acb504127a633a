"""The database's clock, as each process estimates it, so that processes can compare times."""

import time

AHEAD_SECONDS = 5.0
"""How far a time in the catalog may be ahead of this process's estimate of the present.

A time that is further ahead was written before the database's clock was set back, so it does not count. But
it may also be that this process's estimate lags, because the server's clock was set forward or this machine
was suspended. So call :meth:`Catalog.read_clock` before acting on such a time.
"""

_READ_AGAIN_SECONDS = 60.0
# A clock that goes on while a laptop sleeps: on Linux only the first one does, on macOS the second does.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ServerClock:
    """An estimate of a server's clock: the last time it gave, plus the seconds since.

    Changes of this machine's clock do not affect it.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._read_at = float("-inf")

    def set(self, now: float) -> None:
        """Set the time that the server has just given, in seconds since the epoch."""
        self._read_at = time.clock_gettime(_COUNTER)
        self._offset = now - self._read_at

    def now(self) -> float:
        return time.clock_gettime(_COUNTER) + self._offset

    def is_due(self) -> bool:
        """Whether the server's clock is to be read again, because it may have been set."""
        return time.clock_gettime(_COUNTER) - self._read_at > _READ_AGAIN_SECONDS
