"""A sweep's scheduler for external loops, which ask for one trial at a time, over a network that may lose
answers.
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
from resources.search.suggest import Suggester

LONGEST_LEASE_SECONDS = 86_400.0


@dataclass(frozen=True)
class Lent(Assignment):
    """A trial that a loop has, or had.

    Attributes:
        lease_until: seconds since the epoch; None where the attempt is over.
    """

    lease_until: float | None


class LoopScheduler(Scheduler):
    """As :class:`resources.scheduling.scheduler.Scheduler`; nothing here waits for a suggestion."""

    takes_places: ClassVar[bool] = False
    longest_lease: ClassVar[float] = LONGEST_LEASE_SECONDS

    def ask(self, worker: str, lease_seconds: float, *, again: bool) -> Lent | Wait | Finish | None:
        """Hand out the next trial to a worker that works on one only; with ``again`` it may have asked
        before.

        It then gets the same attempt, as far as that has come by now, and its lease is renewed unless it is
        over. It never waits: None if params must be chosen first, which is up to :meth:`suggest_ahead`.
        """
        suggester = self._turns.suggester
        unsure: list[Assignment] = []  # of all tries: the answer to a COMMIT may have been lost
        given = self._retrying(
            lambda: self._next_work(worker, suggester, unsure, lease_seconds=lease_seconds, again=again)
        )
        assert not isinstance(given, Assignment) or isinstance(given, Lent)
        return given

    def has_given(self, worker: str) -> bool:
        """Whether :meth:`ask` has given this worker a trial, whatever has become of it."""
        return bool(self.catalog.at_once(statements.GIVEN_TO, {"of_sweep": self.id, "of_worker": worker}))

    def assignment(self, trial: int, attempt: int | None = None) -> Assignment:
        """A trial's current attempt; with ``attempt`` that one, whatever has become of it.

        Raises:
            NotFound: no such trial, or no such attempt yet.
        """
        with self._transactions.reading():
            if not 0 <= trial < len(self._transactions.cache.known):
                raise NotFound(
                    f"no trial {trial} in sweep {self.id}: it has {len(self._transactions.cache.known)}, "
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
            return self._transactions.cache.known[trial].checkpoint or None

    def held_back(self) -> str | None:
        """Why no trial is handed out, whatever there is to do, as of the last transaction; None where nothing
        holds the sweep back.
        """
        with self._transactions.lock:
            cache = self._transactions.cache
            if cache.out_of_gpu_hours is not None:
                return cache.out_of_gpu_hours
            return "the sweep's user has paused it" if cache.state.control is Control.PAUSE else None

    def may_be_over(self) -> bool:
        """Whether nothing was left to do as of the last transaction; also where that is not known."""
        with self._transactions.lock:
            return not self._transactions.cache.is_read or isinstance(
                decide(self._transactions.state, Idle())[0], Finish
            )

    def end_if_over(self) -> bool:
        """End the search if nothing is left to do; whether it has ended.

        Only needed where nobody asks for work any more.
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
    ) -> Lent | Wait | Finish | None:
        lease_until = self._leases.next_end(lease_seconds)
        if again and (
            known := connection.execute(
                statements.GIVEN_TO, {"of_sweep": self.id, "of_worker": worker}
            ).first()
        ):
            return self._lend_again(known, lease_until)
        given = super()._hand_out(connection, worker, suggester, unsure, lease_seconds=lease_seconds)
        return Lent(**vars(given), lease_until=lease_until) if isinstance(given, Assignment) else given

    def _lend_again(self, known: Any, lease_until: float) -> Lent:
        given = replace(self._transactions.assignment(known.trial), attempt=known.attempt)
        if not self._transactions.is_current(given):
            return Lent(**vars(given), lease_until=None)
        of = {"of_sweep": self.id, "of_trial": given.trial, "of_attempt": given.attempt}
        self._transactions.note(statements.RENEW_LEASE, {**of, "lease_until": lease_until})
        return Lent(**vars(given), lease_until=lease_until)

    def _end_if_over(self) -> bool:
        with self._transactions.deciding():
            if isinstance(decide(self._transactions.state, Idle())[0], Finish):
                self._end_search()
                return True
        return False
