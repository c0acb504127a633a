"""A sweep's scheduler for external loops, which ask for one trial at a time, over a network that may lose answers."""

from dataclasses import replace

from halving.errors import NotFound
from resources.catalog import statements
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import Finish, Idle, Wait, decide


class LoopScheduler(Scheduler):
    """As :class:`resources.scheduling.scheduler.Scheduler`; nothing here waits for a suggestion."""

    def ask(self, worker: str, lease_seconds: float, *, again: bool) -> Assignment | Wait | Finish | None:
        """Hand out the next trial to a worker that works on one only; with ``again`` it may have asked before, and gets the same attempt.

        It never waits: None if params must be chosen first, which is up to :meth:`suggest_ahead`.
        """
        suggester = self._turns.suggester
        unsure: list[Assignment] = []  # of all tries: the answer to a COMMIT may have been lost
        return self._retrying(lambda: self._next_work(worker, suggester, unsure, lease_seconds=lease_seconds, once=again))

    def given_to(self, worker: str) -> Assignment | None:
        """What :meth:`ask` has given to this worker, whatever has become of it."""
        with self._transactions.reading() as connection:
            given = connection.execute(statements.GIVEN_TO, {"of_sweep": self.id, "of_worker": worker}).first()
            return self._as_given(given) if given else None

    def assignment(self, trial: int, attempt: int | None = None) -> Assignment:
        """A trial's current attempt; with ``attempt`` that one, whatever has become of it.

        Raises:
            NotFound: no such trial, or no such attempt yet.
        """
        with self._transactions.reading():
            if not 0 <= trial < len(self._transactions.cache.known):
                raise NotFound(f"no trial {trial} in sweep {self.id}: it has {len(self._transactions.cache.known)}, from 0")
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

    def may_be_over(self) -> bool:
        """Whether nothing was left to do as of the last transaction; also where that is not known."""
        with self._transactions.lock:
            return not self._transactions.cache.is_read or isinstance(decide(self._transactions.state, Idle())[0], Finish)

    def end_if_over(self) -> bool:
        """End the search if nothing is left to do; whether it has ended. Only needed where nobody asks for work any more."""
        return self._retrying(self._end_if_over)

    def _end_if_over(self) -> bool:
        with self._transactions.deciding():
            if isinstance(decide(self._transactions.state, Idle())[0], Finish):
                self._end_search()
                return True
        return False
