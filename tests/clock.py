"""The time of a sweep's leases, as a test has it pass."""

from resources.scheduling.leases import DOUBT_SECONDS, LEASE_SECONDS
from resources.scheduling.scheduler import Scheduler


class Clock:
    """Seconds since the epoch, which pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def set_back(self, seconds: float = 3600.0) -> None:
        """Set it back, as an administrator does, or NTP after a machine has begun with a wrong time."""
        self.now -= seconds

    def lose_all(self, scheduler: Scheduler) -> None:
        """Let all leases expire, let it be noticed, and let the doubt pass; the next check finds all lost."""
        self.now += LEASE_SECONDS + 1
        scheduler.requeue_lost()
        self.now += DOUBT_SECONDS
