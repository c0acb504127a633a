"""The time at which waiting ends, which may move while somebody waits."""

import math
import time


class Deadline:
    """The time at which waiting ends; it may move, so it is read again before each try.

    Args:
        time: by ``time.monotonic``; without it there is no end.
        limits: other deadlines. This one is never later than the earliest of them, wherever they move.
    """

    def __init__(self, time: float = math.inf, *limits: "Deadline") -> None:
        self._time = time
        self._limits = limits

    @classmethod
    def after(cls, seconds: float, *limits: "Deadline") -> "Deadline":
        """The deadline that is ``seconds`` seconds away, or earlier by one of the limits."""
        return Deadline(time.monotonic() + seconds, *limits)

    @property
    def time(self) -> float:
        """The time by ``time.monotonic``; infinite if the waiting has no end."""
        return min([self._time, *(limit.time for limit in self._limits)])

    def remaining(self) -> float:
        """Seconds that are left; 0 or less when it is over."""
        return self.time - time.monotonic()

    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.remaining() <= 0

    def move_to(self, time: float) -> None:
        """Move it to another time by ``time.monotonic``, as far as its limits allow."""
        self._time = time
