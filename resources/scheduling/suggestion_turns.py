"""Turns of processes to choose params ahead of time.

They choose one after another and outside of any transaction, because a sampler may take long.
"""

import threading
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from sqlalchemy import Connection

from resources.catalog import AHEAD_SECONDS, Catalog, statements
from resources.catalog.retry import retry_transient
from resources.scheduling.leases import Leases
from resources.scheduling.transaction import SweepTransactions
from resources.scheduling.warm_start import earlier_trials
from resources.search.state import Control
from resources.search.suggest import make_suggester
from resources.search.suggestions.optuna_terms import load_optuna
from resources.search.suggestions.suggester import Suggester, Suggestion, Tried
from resources.sweep_spec import SweepSpec


class SuggestionTurns:
    """This process's turns to choose params for one sweep; threads may share it.

    Args:
        clock: seconds since the epoch, as of the sweep's leases.
        retry_seconds: how long a call is tried again while the database is unavailable.
    """

    def __init__(
        self,
        catalog: Catalog,
        transactions: SweepTransactions,
        leases: Leases,
        spec: SweepSpec,
        clock: Callable[[], float],
        retry_seconds: float,
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._leases = leases
        self._spec = spec
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()

    @cached_property
    def suggester(self) -> Suggester:
        """The sweep's suggester, with the trials of the earlier sweeps that it learns from."""
        return self._retrying(self._read_suggester)

    def take(self, wanted: int) -> int:
        """Choose params until ``wanted`` trials wait to be started; return how many were added.

        It stops when it is another process's turn.
        """
        added = 0
        if self.suggester.needs_history:
            load_optuna()
        if not self.suggester.takes_long:
            return added
        with self._lock:
            while (number := self._retrying(partial(self._begin, wanted))) is not None:
                suggestion = None
                try:
                    suggestion = self.suggester.suggest(number)
                finally:
                    added += self._retrying(partial(self._end, number, suggestion))
        return added

    def _read_suggester(self) -> Suggester:
        with self._catalog.read() as session:
            row = self._catalog.sweep(session, self._transactions.sweep)
            return make_suggester(self._spec, earlier_trials(self._catalog, session, row, self._spec))

    def _begin(self, wanted: int) -> int | None:
        """Take the turn; return the next trial's number, or None if this process is not to choose params.

        One process at a time chooses, for at most the length of a lease. Others would find the same point,
        and use cores that training needs.
        """
        with self._transactions.deciding() as connection:
            state = self._transactions.state
            if (
                len(state.suggested) >= wanted
                or len(state.trials) >= state.max_trials
                or state.control is not Control.RUN
            ):
                return None
            if not self._take_turn(connection):
                return None
        with self._transactions.lock:
            cache = self._transactions.cache
            searched = zip(cache.details[: len(cache.state.trials)], cache.state.trials, strict=True)
            tried = [Tried(details.params, trial, details.sampler_attrs) for details, trial in searched]
            self.suggester.learn(tried, cache.sampler_attrs)
            return len(tried)

    def _take_turn(self, connection: Connection) -> bool:
        """Take the turn unless another process has it; the sweep's row is locked."""
        of_sweep = {"of_sweep": self._transactions.sweep}
        until = connection.execute(statements.SUGGESTING_UNTIL, of_sweep).scalar_one()
        if until is not None:
            if until > self._leases.next_end() + AHEAD_SECONDS:
                self._catalog.read_clock(connection)
            if self._clock() <= until <= self._leases.next_end() + AHEAD_SECONDS:
                return False
        connection.execute(statements.SET_SUGGESTING, {**of_sweep, "until": self._leases.next_end()})
        return True

    def _end(self, number: int, suggestion: Suggestion | None) -> bool:
        """End the turn and add the trial; return whether it was added."""
        with self._transactions.deciding():
            self._transactions.note(statements.END_SUGGESTING, {"of_sweep": self._transactions.sweep})
            state = self._transactions.state
            wanted = len(state.trials) == number < state.max_trials and state.control is Control.RUN
            if suggestion and wanted:
                self._transactions.add(suggestion)
            return suggestion is not None and wanted

    def _retrying(self, decide: Callable[[], Any]) -> Any:
        return retry_transient(decide, self._retry_seconds)
