"""Leases that have run out: they are doubted first and revoked later.

A lease is renewed by heartbeats. When the database was unavailable, all leases expire at once, those of
living workers too. So an expired lease is only doubted at first. Its worker is lost if no heartbeat comes for
another :data:`DOUBT_SECONDS`.
"""

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from resources.catalog import AHEAD_SECONDS, Catalog, statements
from resources.scheduling.assignment import Assignment
from resources.scheduling.termination import Termination, TerminationLookup
from resources.scheduling.transaction import SweepTransactions
from resources.search.decide import Crashed, Preempted

LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 3.0
DOUBT_SECONDS = 8.0  # two heartbeats, and the longest pause before a worker connects again
_LOOK_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Leases:
    """The leases on one sweep's trials.

    Args:
        catalog: where the sweep is.
        transactions: the sweep's.
        clock: seconds since the epoch, the same for all processes that look at a lease. The lease of a worker
            whose clock is slow looks expired, but the worker keeps renewing it, so it is never lost.
        termination_lookup: finds out why a worker ended.
        longest: the longest possible lease in seconds.
    """

    def __init__(
        self,
        catalog: Catalog,
        transactions: SweepTransactions,
        clock: Callable[[], float],
        termination_lookup: TerminationLookup | None,
        longest: float = LEASE_SECONDS,
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._clock = clock
        self._termination_lookup = termination_lookup
        self._longest = longest
        self._looked_at = float("-inf")

    def next_end(self, seconds: float | None = None) -> float:
        """When a lease that begins now will end, in seconds since the epoch.

        Args:
            seconds: its length, by default :data:`LEASE_SECONDS`.
        """
        if seconds is None:
            seconds = LEASE_SECONDS
        return self._clock() + seconds

    def look_if_due(self) -> dict[str, float] | None:
        """The times to compare all leases with; None if that was done less than a second ago."""
        now = self._clock()
        if 0.0 <= now - self._looked_at < _LOOK_SECONDS:
            return None
        self._looked_at = now
        return self._times(now)

    def requeue_lost(self) -> list[Assignment]:
        """Doubt expired leases, and queue again, or give up, the trials doubted for long enough.

        Returns:
            The attempts that were lost.
        """
        now = self._clock()
        parameters: dict[str, Any] = {"of_sweep": self._transactions.sweep, **self._times(now)}
        overdue = self._catalog.at_once(statements.OVERDUE, parameters)
        if any(row.lease_until > parameters["latest"] for row in overdue):
            with self._catalog.read() as session:
                self._catalog.read_clock(session)
            now = self._clock()
            parameters |= self._times(now)
            overdue = self._catalog.at_once(statements.OVERDUE, parameters)
        until = now + DOUBT_SECONDS
        latest = until + AHEAD_SECONDS
        if any(row.doubted_until is None or row.doubted_until > latest for row in overdue):
            self._catalog.at_once(statements.DOUBT, {**parameters, "until": until, "latest_doubt": latest})
        lost = {
            (row.number, row.attempt): self._termination_of(row.worker)
            for row in overdue
            if _is_lost(row, now)
        }
        self._looked_at = now
        if not lost:
            return []
        with self._transactions.deciding() as connection:
            return self._requeue(connection, parameters, lost)

    def _times(self, now: float) -> dict[str, float]:
        """The present time, and the latest possible end of a lease.

        A lease that ends later was given before the clock was set back.
        """
        return {"now": now, "latest": now + self._longest + AHEAD_SECONDS}

    def _requeue(
        self,
        connection: Connection,
        parameters: dict[str, Any],
        lost: dict[tuple[int, int], Termination | None],
    ) -> list[Assignment]:
        assignments = []
        for row in connection.execute(statements.OVERDUE_LOCKED, parameters).all():
            if (row.number, row.attempt) not in lost or not _is_lost(row, parameters["now"]):
                continue
            assignments.append(self._transactions.assignment(row.number))
            termination = lost[row.number, row.attempt]
            error = f"attempt {row.attempt} was lost: worker {row.worker} stopped sending heartbeats"
            event: Crashed | Preempted = Preempted(row.number)
            if termination is not None:
                error += f"; {termination.reason}"
                if termination.own_fault:
                    event = Crashed(row.number)
            unreported = self._transactions.unreported_seconds(connection, row.number)
            self._transactions.decide(event, error=error, unreported=unreported)
        return assignments

    def _termination_of(self, worker: str) -> Termination | None:
        if self._termination_lookup is None:
            return None
        try:
            return self._termination_lookup(worker)
        except Exception as error:  # noqa: BLE001
            # Whatever a cluster's API raises, the trial is queued, then without a reason.
            _log.warning("cannot find out why worker %s ended: %s", worker, error)
            return None


def _is_lost(row: Any, now: float) -> bool:
    return row.doubted_until is not None and row.doubted_until <= now
