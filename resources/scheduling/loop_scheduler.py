"""A sweep's scheduler for external loops, which ask for one trial at a time.

They ask over a network that may lose answers.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sqlalchemy import Connection

from halving.errors import NotFound
from resources.catalog import statements
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import Finish, Idle, Wait, decide
from resources.search.state import Control
from resources.search.suggestions.suggester import Suggester

MAX_LEASE_SECONDS = 86_400.0


@dataclass(frozen=True)
class LentAssignment(Assignment):
    """A trial that a loop has, or had.

    Attributes:
        lease_until: seconds since the epoch; None where the attempt is over.
    """

    lease_until: float | None


class LoopScheduler(Scheduler):
    """A :class:`resources.scheduling.scheduler.Scheduler` that never waits for a suggestion."""

    takes_places: ClassVar[bool] = False
    longest_lease: ClassVar[float] = MAX_LEASE_SECONDS

    def ask(self, worker: str, lease_seconds: float, *, again: bool) -> LentAssignment | Wait | Finish | None:
        """Hand out the next trial to a worker that works on one trial only.

        Args:
            again: the worker may have asked before. It then gets the same attempt with its present progress,
                and the lease is renewed unless the attempt is over.

        Returns:
            None if params must be chosen first, by :meth:`suggest_ahead`.
        """
        suggester = self._turns.suggester
        unsure: list[Assignment] = []  # of all tries, because the answer to a COMMIT may be lost
        work = self._retrying(
            lambda: self._next_work(worker, suggester, unsure, lease_seconds=lease_seconds, again=again)
        )
        assert not isinstance(work, Assignment) or isinstance(work, LentAssignment)
        return work

    def has_lent(self, worker: str) -> bool:
        """Whether :meth:`ask` has given this worker a trial, whatever has become of it."""
        of_worker = {"of_sweep": self.id, "of_worker": worker}
        return bool(self.catalog.at_once(statements.ATTEMPTS_OF_WORKER, of_worker))

    def assignment(self, trial: int, attempt: int | None = None) -> Assignment:
        """A trial's current attempt; with ``attempt`` that one, whatever has become of it.

        Raises:
            NotFound: no such trial, or no such attempt yet.
        """
        with self._transactions.reading():
            if not 0 <= trial < len(self._transactions.cache.details):
                raise NotFound(
                    f"no trial {trial} in sweep {self.id}: it has {len(self._transactions.cache.details)}, "
                    "from 0"
                )
            current = self._transactions.assignment(trial)
        if attempt is None:
            return current
        if not 1 <= attempt <= current.attempt:
            raise NotFound(f"no attempt {attempt} at trial {current.key}: its newest is {current.attempt}")
        return replace(current, attempt=attempt)

    def checkpoint(self, trial: int) -> str | None:
        """The digest of a trial's newest checkpoint, as of the last transaction; None if it has none."""
        with self._transactions.lock:
            return self._transactions.cache.details[trial].checkpoint or None

    def held_back(self) -> str | None:
        """Why the last transaction found the sweep paused; None if it was not."""
        with self._transactions.lock:
            cache = self._transactions.cache
            if cache.out_of_gpu_hours is not None:
                return cache.out_of_gpu_hours
            if cache.state.control is Control.PAUSE:
                return "the sweep's user has paused it"
            return None

    def may_be_over(self) -> bool:
        """Whether nothing was left to do as of the last transaction; also True if that is unknown."""
        with self._transactions.lock:
            return not self._transactions.cache.is_read or isinstance(
                decide(self._transactions.state, Idle())[0], Finish
            )

    def end_if_over(self) -> bool:
        """End the search if nothing is left to do; return whether it has ended.

        This is only needed when nobody asks for work any more.
        """
        return self._retrying(self._end_if_over)

    def _hand_out(
        self,
        connection: Connection,
        worker: str | None,
        suggester: Suggester,
        unsure: list[Assignment],
        *,
        lease_seconds: float | None = None,
        again: bool = False,
    ) -> LentAssignment | Wait | Finish | None:
        lease_until = self._leases.next_end(lease_seconds)
        if again:
            of_worker = {"of_sweep": self.id, "of_worker": worker}
            row = connection.execute(statements.ATTEMPTS_OF_WORKER, of_worker).first()
            if row is not None:
                return self._lend_again(row, lease_until)
        work = super()._hand_out(connection, worker, suggester, unsure, lease_seconds=lease_seconds)
        if isinstance(work, Assignment):
            return LentAssignment(**vars(work), lease_until=lease_until)
        return work

    def _lend_again(self, row: Any, lease_until: float) -> LentAssignment:
        assignment = replace(self._transactions.assignment(row.trial), attempt=row.attempt)
        if not self._transactions.is_current(assignment):
            return LentAssignment(**vars(assignment), lease_until=None)
        of_attempt = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
        self._transactions.note(statements.RENEW_LEASE, {**of_attempt, "lease_until": lease_until})
        return LentAssignment(**vars(assignment), lease_until=lease_until)

    def _end_if_over(self) -> bool:
        with self._transactions.deciding():
            if isinstance(decide(self._transactions.state, Idle())[0], Finish):
                self._end_search()
                return True
        return False
