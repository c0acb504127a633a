"""The grace period of a trial, which limits how long the trial waits for an unavailable store."""

import math
from time import monotonic

from halving.store.deadline import Deadline

_SHARE = 0.8  # of a grace period, to wait for the store; the rest is for finishing the run


class GracePeriod(Deadline):
    """The time until which a run waits for an unavailable store.

    After a SIGTERM that is most of the grace period. But a trial that yields its place ends its epoch first,
    which may take much longer. So the limit does not apply to a process whose epoch goes on after its grace
    period, nor to one whose epoch ends when most of that is over: if it will be killed, giving up would save
    nothing. It applies to one that begins in time to save its end, however long the last try takes.

    Args:
        seconds: how long the grace period is; infinite in a script.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._began = math.inf
        self._saving_since: float | None = None

    def begin(self) -> None:
        """Begin the grace period: a SIGTERM has come."""
        self._began = monotonic()

    def lasts(self) -> bool:
        """Whether the grace period, once begun, is not over."""
        return monotonic() - self._began <= self._seconds

    def begin_to_save(self) -> None:
        """Note that the saving of an epoch's end begins, unless it has begun already."""
        if self._saving_since is None:
            self._saving_since = monotonic()

    def end_saving(self) -> None:
        """Note that the saving has ended, and training goes on."""
        self._saving_since = None

    @property
    def time(self) -> float:
        """When to give up, by ``time.monotonic``."""
        if self._is_late():
            return super().time
        return min(super().time, self._limit())

    def _limit(self) -> float:
        return self._began + _SHARE * self._seconds

    def _is_late(self) -> bool:
        saving_since = self._saving_since  # read once, because other threads ask for the time, too
        if saving_since is None:
            return monotonic() > self._began + self._seconds
        return saving_since > self._limit()
