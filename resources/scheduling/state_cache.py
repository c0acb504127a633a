"""A sweep in memory, brought up to date from the catalog's rows that changed since it was last read.

The catalog alone counts; the cache can be forgotten at any moment and is then read again. It exists because
rebuilding ten thousand trials for each decision would take longer than a decision may take.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from resources.catalog import statements
from resources.catalog.pipelined import Asked, together
from resources.search.rules import max_trials, rules_of
from resources.search.state import Control, Result, SearchState, Status, TrialState
from resources.sweep_spec import SweepSpec


@dataclass(frozen=True)
class Known:
    """What is known of a trial beside its state."""

    params: dict[str, Any]
    sampler_attrs: dict[str, Any]
    attempt: int
    checkpoint: str | None


class StateCache:
    """One sweep as the search sees it, kept equal to the catalog by :meth:`refresh`.

    ``shared`` is whether projects share the machines, ``asks`` whether the catalog says that this sweep asks
    for a place, ``waits`` that it was held back when it last asked, and ``out_of_gpu_hours`` why it is paused
    if its project's hours are used up.
    """

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        self.sweep = sweep
        self._spec = spec
        self.rules = rules_of(spec)
        self._max_trials = max_trials(spec)
        self.forget()

    def forget(self) -> None:
        """Read everything again next time: what was decided in memory may not have been committed."""
        self.state = SearchState(self.rules, self._max_trials)
        self.known: list[Known] = []
        self.revision = -1
        self.status = ""
        self.overdue = False
        self.shared = self.asks = self.waits = False
        self.out_of_gpu_hours: str | None = None
        self.sampler_attrs: dict[str, Any] = {}

    @property
    def is_read(self) -> bool:
        """Whether there is anything in it: not before the first refresh, and not after it was forgotten."""
        return self.revision >= 0

    def refresh(self, connection: Connection, *, lock: bool, look_at: dict[str, float] | None = None) -> None:
        """Read what changed. With ``lock`` nobody else decides about this sweep until the transaction ends.

        With ``look_at``, the times of :data:`resources.catalog.statements.OVERDUE`, ``overdue`` is then
        whether a running trial's lease had run out by then.
        """
        sweep = {"of_sweep": self.sweep}
        since = {"of_sweep": self.sweep, "since": self.revision}
        asked: list[Asked] = [(statements.SWEEP_LOCKED if lock else statements.SWEEP, sweep)]
        asked += [(statements.NEW_RESULTS, since), (statements.CHANGED_TRIALS, since)]
        look: list[Asked] = [(statements.OVERDUE, {**sweep, **look_at})] if look_at is not None else []
        answers = together(connection, look + asked)  # leases first, before the sweep is locked
        self.overdue = bool(look and next(answers))
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
            earlier = self.state.trial(trial.number).results if trial.number < len(self.known) else ()
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
            self.put(state, Known(trial.params, trial.sampler_attrs or {}, trial.attempt, trial.checkpoint))
        self.revision = row.revision

    def put(self, trial: TrialState, known: Known) -> None:
        """Replace a trial by its new state, or add a new one."""
        self.state.put(trial)
        self.known[trial.number : trial.number + 1] = [known]

    def _by_trial(self, rows: list[Any]) -> dict[int, list[Result | None]]:
        found: dict[int, list[Result | None]] = defaultdict(list)
        others = self._spec.objectives[1:]
        for row in rows:
            result = (
                None
                if row.value is None
                else Result((row.value, *(row.metrics[other.metric] for other in others)), row.violation)
            )
            found[row.trial].append(result)
        return found
