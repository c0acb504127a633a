"""The time until which something is waited for, which may move while it is waited for."""

import math
import time


class Deadline:
    """The time until which something is waited for; whoever waits reads it anew at each try.

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
        """When it is, by ``time.monotonic``; infinite where there is no end."""
        return min([self._time, *(limit.time for limit in self._limits)])

    def remaining(self) -> float:
        """Seconds from now; 0 or less when it is over."""
        return self.time - time.monotonic()

    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.remaining() <= 0

    def move_to(self, time: float) -> None:
        """Move it to another time by ``time.monotonic``, as far as its limits allow."""
        self._time = time
