"""The transactions of one sweep, and what each decision writes.

While a transaction is open, nobody else decides about the sweep. All its writes are sent at its end, in the
order of the decisions, so that the sweep is locked as briefly as possible.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.catalog import Catalog, statements
from resources.catalog.held_time import resource_columns, unreported_seconds
from resources.catalog.pipelined import Statement, together
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.state_cache import StateCache, TrialDetails
from resources.search.decide import (
    Complete,
    Continue,
    Decision,
    Fail,
    Halved,
    Pause,
    Preempted,
    Requeue,
    Resized,
    Retry,
    Stop,
    decide,
)
from resources.search.state import SearchState, Status, TrialState
from resources.search.suggestions.suggester import Suggestion
from resources.sweep_spec import SweepSpec

_DECIDED: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Continue, Pause, Stop, Complete, Retry, Requeue, Fail)
}
# Outcomes of attempts, where the decision alone would not say.
_OUTCOMES: dict[type[Any], str] = {Preempted: "preempted", Resized: "resized", Halved: "halved"}

RungMessage = ReachedRung | ReturnedEarly
"""The two messages of a trial that have a result."""


class SweepTransactions:
    """Transactions about one sweep, with a cache of its state in memory; threads may share it."""

    def __init__(self, catalog: Catalog, sweep: str, spec: SweepSpec) -> None:
        self._catalog = catalog
        self.sweep = sweep
        self._seed = spec.seed
        self._resources = spec.resources
        self._gpus = dict[int, int]()
        self.cache = StateCache(sweep, spec)
        self.lock = threading.RLock()
        self._writes: list[Statement] = []
        self._changed = False

    @property
    def state(self) -> SearchState:
        """The sweep as the search sees it, as of the last transaction."""
        return self.cache.state

    @contextmanager
    def deciding(self, look_at: dict[str, float] | None = None) -> Iterator[Connection]:
        """Open a transaction in which nobody else decides about this sweep; an error drops the cache.

        Args:
            look_at: of :meth:`resources.scheduling.leases.Leases.look_if_due`. With it the cache's
                ``overdue`` becomes whether a lease has run out.
        """
        with self.lock:
            self._writes = []
            self._changed = False
            try:
                with self._catalog.transaction() as connection:
                    self.cache.refresh(connection, lock=True, look_at=look_at)
                    yield connection
                    if self._changed:
                        self.cache.revision += 1
                        self.note(
                            statements.SET_REVISION, {"of_sweep": self.sweep, "revision": self.cache.revision}
                        )
                    # All answers are read, because SQLite would not execute the statements otherwise.
                    list(together(connection, self._writes, last=True))
            except Superseded:  # It is raised before anything is written, so the cache stays right.
                raise
            except BaseException:
                self.cache.forget()
                raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads, with the cache up to date."""
        with self.lock, self._catalog.read() as session:
            connection = session.connection()
            try:
                self.cache.refresh(connection, lock=False)
            except BaseException:
                self.cache.forget()  # It may be updated in part.
                raise
            yield connection

    def status(self, trial: int) -> Status | None:
        """A trial's status; None where there is no such trial."""
        if trial < len(self.cache.details):
            return self.state.trial(trial).status
        return None

    def is_current(self, assignment: Assignment) -> bool:
        """Whether this attempt is the trial's current one, and has not ended."""
        return (
            self.status(assignment.trial) is Status.RUNNING
            and self.cache.details[assignment.trial].attempt == assignment.attempt
        )

    def assignment(self, number: int) -> Assignment:
        """The trial's current attempt, with what is needed to run it up to its next rung."""
        details = self.cache.details[number]
        ladder = self.state.ladder(number)
        trial = self.state.trial(number)
        seed_text = f"{self._seed} {number}"
        if trial.final is not None:
            # A seed of the final training depends on the spec alone, not on how many trials the search had.
            seed_text = f"{self._seed} final {trial.final}"
        return Assignment(
            sweep=self.sweep,
            trial=number,
            attempt=details.attempt,
            params=details.params,
            seed=int.from_bytes(sha256(seed_text.encode()).digest()[:4]),
            rung=len(trial.results),
            granted=self._granted_epochs(trial),
            ladder=ladder,
            final=trial.final,
        )

    def gpus_of(self, trial: TrialState) -> int:
        """How many GPUs an attempt needs on all nodes together, up to the trial's next rung."""
        budget = self._granted_epochs(trial)
        if budget not in self._gpus:
            self._gpus[budget] = self._resources.at(budget).all_gpus
        return self._gpus[budget]

    def _granted_epochs(self, trial: TrialState) -> int:
        ladder = self.state.ladder(trial.number)
        return ladder[min(len(trial.results), len(ladder) - 1)]

    # All methods below are called within :meth:`deciding`.

    def note(self, statement: Any, values: dict[str, Any]) -> None:
        """Add a statement to those that are executed at the end of the transaction."""
        self._writes.append((statement, values))

    def add(self, suggestion: Suggestion) -> None:
        """Add a trial with these params, waiting to be started."""
        self._add(TrialState(len(self.cache.details), Status.SUGGESTED), suggestion, {"attempt": 0})

    def start(self, suggestion: Suggestion, worker: str | None, lease_until: float | None) -> Assignment:
        """Add a trial with these params and begin its first attempt."""
        return self._start(
            TrialState(len(self.cache.details), Status.RUNNING), suggestion, worker, lease_until
        )

    def start_final(
        self, trial: TrialState, winner: int, worker: str | None, lease_until: float | None
    ) -> Assignment:
        """Add a trial of the final training with the winner's params, and begin its first attempt."""
        return self._start(trial, Suggestion(self.cache.details[winner].params), worker, lease_until)

    def hand_out(self, trial: TrialState, worker: str | None, lease_until: float | None) -> Assignment:
        """Begin the next attempt at an existing trial."""
        attempt = self.cache.details[trial.number].attempt + 1
        handed = {
            "status": trial.status,
            "audited": trial.audited,
            "attempt": attempt,
            "worker": worker,
            "lease_until": lease_until,
        }
        self._write(statements.HAND_OUT, trial, {**handed, "gpus": self.gpus_of(trial)})
        return self._begin(trial, worker)

    def decide(
        self,
        event: Any,
        *,
        seconds: float = 0.0,
        report: RungMessage | None = None,
        error: str | None = None,
        checkpoint: str | None = None,
        unreported: float = 0.0,
    ) -> Decision:
        """Decide on an event of a running trial, and write the decision.

        Args:
            seconds: training time since the last report.
            unreported: time for which the attempt has held its resources that no worker reports;
                :meth:`unreported_seconds`.
        """
        details = self.cache.details[event.trial]
        rung = len(self.state.trial(event.trial).results)
        decision, trial = decide(self.state, event)
        if trial is None:
            raise TypeError(f"{event} must change its trial")
        word = type(decision).__name__.lower()
        if report:
            checkpoint = report.checkpoint or None  # External loops may have none.
        decided = {
            "status": trial.status,
            "failures": trial.failures,
            "preemptions": trial.preemptions,
            "error": error,
            "more_seconds": seconds,
            "checkpoint": checkpoint,
        }
        if trial.status is Status.RUNNING:
            self._write(statements.GO_ON, trial, decided)
        else:
            self._write(statements.END_ATTEMPT, trial, decided)
            outcome = _OUTCOMES.get(type(event), word)
            ended = {
                "of_sweep": self.sweep,
                "of_trial": trial.number,
                "of_attempt": details.attempt,
                "ended_at": self._now(),
                "outcome": outcome,
                "error": error,
                "more_seconds": max(0.0, seconds) + unreported,
            }
            self.note(statements.CLOSE_ATTEMPT, ended)
        if len(trial.results) > rung:
            self.note(statements.ADD_RESULT, self._rung_result(trial, rung, word, report, seconds))
        return decision

    def claim(self, assignment: Assignment, worker: str, lease_until: float) -> None:
        """Give an attempt that was handed out without a worker to this worker."""
        of_trial = {"of_sweep": self.sweep, "of_trial": assignment.trial}
        self.note(statements.CLAIM, {**of_trial, "worker": worker, "lease_until": lease_until})
        self.note(
            statements.CLAIM_ATTEMPT,
            {**of_trial, "of_attempt": assignment.attempt, "worker": worker, "held_since": self._now()},
        )

    def unreported_seconds(self, connection: Connection, trial: int) -> float:
        """Seconds for which a trial's current attempt has held its resources beyond its worker's reports."""
        of_attempt = {
            "of_sweep": self.sweep,
            "of_trial": trial,
            "of_attempt": self.cache.details[trial].attempt,
        }
        return unreported_seconds(connection, of_attempt, self._catalog.now())

    def stop(self, trial: TrialState) -> None:
        """End a queued trial, because the search was stopped before it could go on."""
        stays = {
            "audited": trial.audited,
            "attempt": self.cache.details[trial.number].attempt,
            "worker": None,
            "lease_until": None,
        }
        self._write(statements.HAND_OUT, trial, {"status": trial.status, "gpus": 0, **stays})

    def find_decision(
        self, connection: Connection, assignment: Assignment, report: RungMessage | None, error: str | None
    ) -> Decision | None:
        """Find the decision on an earlier, equal report of this attempt; None if there was none.

        The answer to that COMMIT may have been lost.
        """
        of_attempt = {"of_sweep": self.sweep, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
        if report:
            word = connection.scalar(statements.DECISION, {**of_attempt, "of_epochs": report.epoch})
        else:
            word = connection.scalar(statements.OUTCOME, {**of_attempt, "error": error})
        if word in _OUTCOMES.values():
            word = "fail" if self.status(assignment.trial) is Status.FAILED else "requeue"
        if not word:
            return None
        return _DECIDED[word](assignment.trial)

    def _start(
        self, trial: TrialState, suggestion: Suggestion, worker: str | None, lease_until: float | None
    ) -> Assignment:
        self._add(trial, suggestion, {"attempt": 1, "worker": worker, "lease_until": lease_until})
        return self._begin(trial, worker)

    def _add(self, trial: TrialState, suggestion: Suggestion, values: dict[str, Any]) -> None:
        row = {"sweep": self.sweep, "number": trial.number, "status": trial.status, "final": trial.final}
        row |= {
            "failures": 0,
            "preemptions": 0,
            "seconds": 0.0,
            "gpus": self.gpus_of(trial),
            "asked_back": False,
        }
        attrs = {
            "params": suggestion.params,
            "sampler_attrs": suggestion.trial_attrs or None,
            "revision": self.cache.revision + 1,
        }
        self.note(statements.ADD_TRIAL, {**row, **attrs, **values})
        if suggestion.sweep_attrs:
            self.note(
                statements.SET_SAMPLER_ATTRS,
                {"of_sweep": self.sweep, "sampler_attrs": suggestion.sweep_attrs},
            )
            self.cache.sampler_attrs = suggestion.sweep_attrs
        self.cache.put(
            trial, TrialDetails(suggestion.params, suggestion.trial_attrs, values["attempt"], None)
        )
        self._changed = True

    def _begin(self, trial: TrialState, worker: str | None) -> Assignment:
        assignment = self.assignment(trial.number)
        begun = {
            "sweep": self.sweep,
            "trial": assignment.trial,
            "attempt": assignment.attempt,
            "rung": assignment.rung,
            "worker": worker,
        }
        now = self._now()
        times: dict[str, datetime | None] = {"started_at": now, "held_since": None}
        if worker:
            times["held_since"] = now
        self.note(
            statements.ADD_ATTEMPT,
            {**begun, **times, **resource_columns(self._resources, assignment.granted)},
        )
        return assignment

    def _rung_result(
        self, trial: TrialState, rung: int, decision: str, report: RungMessage | None, seconds: float
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "sweep": self.sweep,
            "trial": trial.number,
            "rung": rung,
            "epochs": 0,
            "value": None,
            "metrics": None,
            "violation": 0.0,
            "checkpoint": None,
            "best_checkpoint": None,
            "decision": decision,
            "attempt": self.cache.details[trial.number].attempt,
            "seconds": seconds,
            "reached_at": self._now(),
            "materialized": False,
            "revision": self.cache.revision + 1,
        }
        if (result := trial.results[rung]) is not None:
            row |= {"value": result.value, "violation": result.violation}
        if report is not None:
            row |= {
                "epochs": report.epoch,
                "metrics": report.values,
                "checkpoint": report.checkpoint or None,
                "best_checkpoint": report.best_checkpoint,
            }
        return row

    def _now(self) -> datetime:
        """The time by the database's clock.

        Training time is the difference of two such times, which two machines may have written.
        """
        return datetime.fromtimestamp(self._catalog.now(), UTC)

    def _write(self, statement: Any, trial: TrialState, values: dict[str, Any]) -> None:
        """Write a trial's new state, and put it into the cache."""
        self.note(
            statement,
            {"of_sweep": self.sweep, "of_trial": trial.number, "revision": self.cache.revision + 1, **values},
        )
        details = self.cache.details[trial.number]
        attempt = values.get("attempt", details.attempt)
        checkpoint = values.get("checkpoint") or details.checkpoint
        self.cache.put(trial, TrialDetails(details.params, details.sampler_attrs, attempt, checkpoint))
        self._changed = True
