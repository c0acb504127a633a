"""A cache of a sweep's state, updated from the catalog's rows that have changed since the last read.

The catalog alone counts: the cache can be dropped at any time, and is then read again. It exists because
rebuilding ten thousand trials would take longer than a decision may take.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from resources.catalog import statements
from resources.catalog.pipelined import Statement, together
from resources.search.rules import max_trials, rules_of
from resources.search.state import Control, Result, SearchState, Status, TrialState
from resources.sweep_spec import SweepSpec


@dataclass(frozen=True)
class TrialDetails:
    """A trial's columns that the search does not need: params, the sampler's notes, attempt, checkpoint."""

    params: dict[str, Any]
    sampler_attrs: dict[str, Any]
    attempt: int
    checkpoint: str | None


class StateCache:
    """One sweep as the search sees it, kept equal to the catalog by :meth:`refresh`.

    Attributes:
        shared: whether projects share the machines.
        asks: whether the catalog says that this sweep asks for a place.
        waits: whether the sweep was held back when it last asked.
        out_of_gpu_hours: why the sweep is paused if its project's hours are used up; else None.
    """

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        self.sweep = sweep
        self._spec = spec
        self.rules = rules_of(spec)
        self._max_trials = max_trials(spec)
        self.forget()

    def forget(self) -> None:
        """Drop the cache, because decisions in memory may not have been committed; the next read is whole."""
        self.state = SearchState(self.rules, self._max_trials)
        self.details: list[TrialDetails] = []
        self.revision = -1
        self.status = ""
        self.overdue = False
        self.shared = self.asks = self.waits = False
        self.out_of_gpu_hours: str | None = None
        self.sampler_attrs: dict[str, Any] = {}

    @property
    def is_read(self) -> bool:
        """Whether the cache has been read since it was created or dropped."""
        return self.revision >= 0

    def refresh(self, connection: Connection, *, lock: bool, look_at: dict[str, float] | None = None) -> None:
        """Read what has changed.

        Args:
            lock: nobody else decides about this sweep until the transaction ends.
            look_at: the times of :data:`resources.catalog.statements.OVERDUE`. With them ``overdue`` becomes
                whether a running trial's lease has run out.
        """
        sweep = {"of_sweep": self.sweep}
        since = {"of_sweep": self.sweep, "since": self.revision}
        questions: list[Statement] = []
        if look_at is not None:
            # Leases come first, before the sweep is locked.
            questions.append((statements.OVERDUE, {**sweep, **look_at}))
        sweep_statement = statements.SWEEP
        if lock:
            sweep_statement = statements.SWEEP_LOCKED
        questions.append((sweep_statement, sweep))
        questions += [(statements.NEW_RESULTS, since), (statements.CHANGED_TRIALS, since)]
        answers = together(connection, questions)
        self.overdue = look_at is not None and bool(next(answers))
        (row,) = next(answers)
        self.state.control = Control(row.control)
        self.state.max_trials = row.max_trials or self._max_trials
        self.status = row.status
        self.sampler_attrs = row.sampler_attrs or {}
        self.shared = row.projects > 0
        self.asks = row.asked_at is not None or row.waiting is not None
        self.waits = row.waiting is not None
        self.out_of_gpu_hours = row.out_of_gpu_hours
        if row.revision == self.revision:
            return
        new_results = self._by_trial(next(answers))
        for trial in next(answers):
            earlier: tuple[Result | None, ...] = ()
            if trial.number < len(self.details):
                earlier = self.state.trial(trial.number).results
            results = (*earlier, *new_results.get(trial.number, ()))
            state = TrialState(
                trial.number,
                Status(trial.status),
                results,
                trial.failures,
                trial.preemptions,
                trial.audited,
                trial.final,
            )
            self.put(
                state, TrialDetails(trial.params, trial.sampler_attrs or {}, trial.attempt, trial.checkpoint)
            )
        self.revision = row.revision

    def put(self, trial: TrialState, details: TrialDetails) -> None:
        """Replace a trial by its new state, or add a new one."""
        self.state.put(trial)
        self.details[trial.number : trial.number + 1] = [details]

    def _by_trial(self, rows: list[Any]) -> dict[int, list[Result | None]]:
        results: dict[int, list[Result | None]] = defaultdict(list)
        others = self._spec.objectives[1:]
        for row in rows:
            result = None
            if row.value is not None:
                values = (row.value, *(row.metrics[other.metric] for other in others))
                result = Result(values, row.violation)
            results[row.trial].append(result)
        return results
