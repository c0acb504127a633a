"""The brain at work on the catalog: every call is one short transaction: lock the sweep, look, decide, write.

Workers hold a lease on the trial they run and renew it by heartbeat. An attempt whose lease ran out is given to
another worker under the next attempt number, and whatever the old one still says is refused.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection

from resources.assignment import Assignment, Report, Superseded
from resources.catalog import Catalog, TrialRow, decisions, utcnow
from resources.mirror import Known, Mirror
from resources.search import brain
from resources.search.rules import violation
from resources.search.state import Control, Result, SearchState, Status, TrialState
from resources.search.suggest import Suggester, Suggestion, Tried, load_optuna
from resources.spec import parse_spec
from resources.sweeps import trial_key
from resources.warm_start import earlier_trials

LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 3.0
_POLL_SECONDS = 0.05


class Scheduler:
    """All decisions about one sweep; threads may share it.

    Args:
        catalog: where its state lives; what is kept between calls is a mirror of it.
        sweep: its id.
        clock: seconds since the epoch, for leases.
    """

    def __init__(self, catalog: Catalog, sweep: str, clock: Callable[[], float] = time.time) -> None:
        self.catalog, self.id, self._clock = catalog, sweep, clock
        with catalog.read() as session:
            self.spec = parse_spec(catalog.sweep(session, sweep).spec)
        self._mirror = Mirror(sweep, self.spec)
        self.rules = self._mirror.rules
        self._deciding_lock, self._suggesting_lock = threading.RLock(), threading.Lock()

    def next_work(self, worker: str | None) -> Assignment | brain.Wait | brain.Finish:
        """Hand out the next trial. With ``worker`` it is claimed at once; None leaves it to a run to :meth:`claim` it."""
        # Before the transaction, because these take long the first time.
        load_optuna()
        suggester = self._suggester
        while True:
            with self._deciding() as connection:
                self._requeue_lost(connection)
                self._take_back_unclaimed(connection)
                decision, trial = brain.decide(self._mirror.state, brain.Idle())
                if isinstance(decision, brain.Finish):
                    self._end_search(connection)
                if trial is None:
                    return decision  # type: ignore[return-value]  # to wait or to finish
                if trial.number < len(self._mirror.known):
                    return self._hand_out(connection, trial, worker)
                if not suggester.takes_long:
                    self._add(connection, suggester.suggest(trial.number))
                    return self._hand_out(connection, trial, worker)
            if not self.suggest_ahead(1):
                time.sleep(_POLL_SECONDS)  # another process is choosing

    @property
    def chooses_ahead(self) -> bool:
        """Whether params are chosen ahead of time: where that takes long. Else :meth:`suggest_ahead` has nothing to do."""
        return self._suggester.takes_long

    def suggest_ahead(self, wanted: int) -> int:
        """Choose params ahead of time until ``wanted`` trials wait to be started; give how many were added.

        The sampler works outside of the transaction, on what was known before it: others decide meanwhile.
        """
        added = 0
        with self._suggesting_lock:
            while self.chooses_ahead and (number := self._turn_to_suggest(wanted)) is not None:
                suggestion = None
                try:
                    suggestion = self._suggester.suggest(number)
                finally:
                    with self._deciding() as connection:
                        connection.execute(decisions.END_SUGGESTING, {"of_sweep": self.id})
                        state = self._mirror.state
                        if suggestion and len(state.trials) == number < state.max_trials and state.control is Control.RUN:
                            self._add(connection, suggestion)
                            added += 1
        return added

    def _turn_to_suggest(self, wanted: int) -> int | None:
        """The number of the next trial, if this process is the one to choose its params.

        One process at a time does, for as long as a lease: the others would come to the same point, on the cores that train.
        """
        now = self._clock()
        with self._deciding() as connection:
            state = self._mirror.state
            if len(state.suggested) >= wanted or len(state.trials) >= state.max_trials or state.control is not Control.RUN:
                return None
            taken = connection.execute(decisions.TAKE_SUGGESTING, {"of_sweep": self.id, "now": now, "until": now + LEASE_SECONDS})
            if taken.rowcount == 0:
                return None
        with self._deciding_lock:
            self._suggester.learn(self._tried(), self._mirror.sampler_attrs)
            return len(self._mirror.known)

    def claim(self, trial: int, worker: str) -> Assignment:
        """Take a trial that was handed out without a worker.

        Raises:
            Superseded: it is not waiting for one (another run has it, or it was given up).
        """
        with self._deciding() as connection:
            state, given = self._stands(trial), {"of_sweep": self.id, "of_trial": trial}
            if self._mirror.state.control is not Control.RUN:
                raise Superseded(f"trial {trial_key(self.id, trial)} is not to start: its sweep was told to {self._mirror.state.control}")
            if state is not Status.RUNNING or (holder := connection.scalar(decisions.WORKER, given)) is not None:
                stands = (
                    "there is no such trial"
                    if state is None
                    else f"it is {state}" + (f", worker {holder}" if state is Status.RUNNING else "")
                )
                raise Superseded(f"trial {trial_key(self.id, trial)} is not waiting for a worker: {stands}")
            connection.execute(decisions.CLAIM, {**given, "worker": worker, "lease_until": self._clock() + LEASE_SECONDS})
            connection.execute(decisions.CLAIM_ATTEMPT, {**given, "of_attempt": self._mirror.known[trial].attempt, "worker": worker})
            return self._assignment(trial)

    def handed_out(self) -> list[Assignment]:
        """Trials that wait for a run to claim them."""
        return self._running(claimed=False)

    def claimed(self) -> list[Assignment]:
        """Trials that a worker has."""
        return self._running(claimed=True)

    def heartbeat(self, assignment: Assignment) -> Control:
        """Renew the lease, and learn what the sweep's user wants: after a pause or a stop the trial is to be released.

        Raises:
            Superseded: the lease was lost.
        """
        with self.catalog.write() as session:
            given = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
            renewed = session.connection().execute(decisions.RENEW_LEASE, {**given, "lease_until": self._clock() + LEASE_SECONDS})
            if renewed.rowcount == 0:
                row = session.get(TrialRow, (self.id, assignment.trial))
                raise _superseded(assignment, f"attempt {row.attempt} is {row.status}" if row else "the trial is gone")
            return Control(session.connection().execute(decisions.CONTROL, {"of_sweep": self.id}).scalar_one())

    def reached(self, assignment: Assignment, report: Report, seconds: float) -> brain.Decision:
        """A trial reports at its rung and learns whether to go on, pause or end."""
        return self._report(assignment, brain.Reached(assignment.trial, self._result(report)), seconds, report=report)

    def returned(self, assignment: Assignment, report: Report, seconds: float) -> brain.Decision:
        """A trainable returned before its rung, with its last report."""
        return self._report(assignment, brain.Returned(assignment.trial, self._result(report)), seconds, report=report)

    def crashed(self, assignment: Assignment, error: str, seconds: float) -> brain.Decision:
        """A trial's process died or its trainable raised: queued again, or given up after ``max_retries``."""
        return self._report(assignment, brain.Crashed(assignment.trial), seconds, error=error)

    def preempted(self, assignment: Assignment, error: str, seconds: float) -> brain.Decision:
        """A trial's process was told to end by someone else: queued again, at most ``max_preemptions`` times."""
        return self._report(assignment, brain.Preempted(assignment.trial), seconds, error=error)

    def failed(self, assignment: Assignment, error: str, seconds: float, checkpoint: str | None) -> brain.Decision:
        """A trial failed in a way that would repeat itself; ``checkpoint`` is its last good one."""
        return self._report(assignment, brain.Failed(assignment.trial), seconds, error=error, checkpoint=checkpoint)

    def released(self, assignment: Assignment, seconds: float) -> brain.Decision:
        """A worker gives its trial back, because it or the sweep is stopped; it goes on from its checkpoint elsewhere."""
        return self._report(assignment, brain.Released(assignment.trial), seconds)

    def launch_failed(self, assignment: Assignment, error: str) -> bool:
        """Queue again, or give up, a trial whose run ended before it claimed it; False when that is not how it stands."""
        with self._deciding() as connection:
            known, given = self._mirror.known[assignment.trial], {"of_sweep": self.id, "of_trial": assignment.trial}
            if known.attempt != assignment.attempt or self._stands(assignment.trial) is not Status.RUNNING:
                return False
            if connection.scalar(decisions.WORKER, given) is not None:
                return False
            self._apply(connection, brain.Crashed(assignment.trial), error=error)
            return True

    def requeue_lost(self) -> list[Assignment]:
        """Queue again, or give up, trials whose lease ran out."""
        with self._deciding() as connection:
            return self._requeue_lost(connection)

    def state(self) -> SearchState:
        """The sweep as the brain sees it now; a copy of the caller's own."""
        with self._looking():
            state = self._mirror.state
            return SearchState(self.rules, state.max_trials, state.trials, state.control)

    def running(self) -> int:
        """Trials that are handed out or running."""
        with self._looking():
            return self._mirror.state.running

    @cached_property
    def _suggester(self) -> Suggester:
        with self.catalog.read() as session:
            row = self.catalog.sweep(session, self.id)
            return Suggester(self.spec, earlier_trials(self.catalog, session, row, self.spec))

    @contextmanager
    def _deciding(self) -> Iterator[Connection]:
        """A transaction in which nobody else decides about this sweep; on any error the mirror is read again."""
        with self._deciding_lock:
            try:
                with self.catalog.write() as session:
                    connection = session.connection()
                    self._mirror.refresh(connection, lock=True)
                    self._changed = False
                    yield connection
                    if self._changed:
                        connection.execute(decisions.SET_REVISION, {"of_sweep": self.id, "revision": self._mirror.revision + 1})
                        self._mirror.revision += 1
            except Superseded:  # said before anything was written
                raise
            except BaseException:
                self._mirror.forget()
                raise

    @contextmanager
    def _looking(self) -> Iterator[Connection]:
        """A consistent view, with the mirror up to date."""
        with self._deciding_lock, self.catalog.read() as session:
            connection = session.connection()
            try:
                self._mirror.refresh(connection, lock=False)
            except BaseException:
                self._mirror.forget()  # part of it may have been taken over
                raise
            yield connection

    def _running(self, *, claimed: bool) -> list[Assignment]:
        given = {"of_sweep": self.id}
        with self._looking() as connection:
            return [
                self._assignment(row.number) for row in connection.execute(decisions.RUNNING, given) if (row.worker is not None) is claimed
            ]

    def _hand_out(self, connection: Connection, trial: TrialState, worker: str | None) -> Assignment:
        attempt = self._mirror.known[trial.number].attempt + 1
        # Without a worker there is no lease: a run may wait in Dagster's queue for as long as it has to.
        lease = self._clock() + LEASE_SECONDS if worker else None
        handed = {"status": trial.status, "audited": trial.audited, "attempt": attempt, "worker": worker, "lease_until": lease}
        self._write(connection, decisions.HAND_OUT, trial, handed)
        begun = {"sweep": self.id, "trial": trial.number, "attempt": attempt, "rung": len(trial.results), "worker": worker}
        connection.execute(decisions.ADD_ATTEMPT, {**begun, "started_at": utcnow()})
        return self._assignment(trial.number)

    def _add(self, connection: Connection, suggestion: Suggestion) -> None:
        """Add a trial with these params, waiting to be started."""
        trial = TrialState(len(self._mirror.known), Status.SUGGESTED)
        given = {"sweep": self.id, "number": trial.number, "status": trial.status, "revision": self._mirror.revision + 1}
        attrs = {"params": suggestion.params, "sampler_attrs": suggestion.trial_attrs or None}
        connection.execute(decisions.ADD_TRIAL, {**given, **attrs, "failures": 0, "attempt": 0, "seconds": 0.0})
        if suggestion.sweep_attrs:
            connection.execute(decisions.SET_SAMPLER_ATTRS, {"of_sweep": self.id, "sampler_attrs": suggestion.sweep_attrs})
            self._mirror.sampler_attrs = suggestion.sweep_attrs
        self._mirror.put(trial, Known(suggestion.params, suggestion.trial_attrs, 0, None))
        self._changed = True

    def _report(
        self,
        assignment: Assignment,
        event: Any,
        seconds: float,
        *,
        report: Report | None = None,
        error: str | None = None,
        checkpoint: str | None = None,
    ) -> brain.Decision:
        with self._deciding() as connection:
            known, stands = self._mirror.known[assignment.trial], self._stands(assignment.trial)
            if known.attempt != assignment.attempt or stands is not Status.RUNNING:
                raise _superseded(assignment, f"attempt {known.attempt} is {stands}")
            return self._apply(connection, event, seconds=seconds, report=report, error=error, checkpoint=checkpoint)

    def _apply(
        self,
        connection: Connection,
        event: Any,
        *,
        seconds: float = 0.0,
        report: Report | None = None,
        error: str | None = None,
        checkpoint: str | None = None,
    ) -> brain.Decision:
        """Decide on an event of a trial and write what follows."""
        known = self._mirror.known[event.trial]
        rung = len(self._mirror.state.trials[event.trial].results)
        decision, trial = brain.decide(self._mirror.state, event)
        if trial is None:
            raise TypeError(f"{event} must change its trial")
        word = type(decision).__name__.lower()
        decided = {
            "status": trial.status,
            "failures": trial.failures,
            "preemptions": trial.preemptions,
            "error": error,
            "more_seconds": seconds,
            "checkpoint": report.checkpoint if report else checkpoint,
        }
        goes_on = trial.status is Status.RUNNING
        self._write(connection, decisions.GO_ON if goes_on else decisions.END_ATTEMPT, trial, decided)
        if not goes_on:
            ended = {"of_sweep": self.id, "of_trial": trial.number, "of_attempt": known.attempt}
            connection.execute(decisions.CLOSE_ATTEMPT, {**ended, "ended_at": utcnow(), "outcome": word, "error": error})
        if len(trial.results) > rung:
            connection.execute(decisions.ADD_RESULT, self._rung_result(trial, rung, word, report, seconds))
        return decision

    def _rung_result(self, trial: TrialState, rung: int, decision: str, report: Report | None, seconds: float) -> dict[str, Any]:
        result = trial.results[rung]
        return {
            "sweep": self.id,
            "trial": trial.number,
            "rung": rung,
            "epochs": report.epochs if report else 0,
            "value": result.value if result else None,
            "metrics": report.values if report else None,
            "violation": result.violation if result else 0.0,
            "checkpoint": report.checkpoint if report else None,
            "best_checkpoint": report.best_checkpoint if report else None,
            "decision": decision,
            "attempt": self._mirror.known[trial.number].attempt,
            "seconds": seconds,
            "reached_at": utcnow(),
            "materialized": False,
            "revision": self._mirror.revision + 1,
        }

    def _write(self, connection: Connection, statement: Any, trial: TrialState, values: dict[str, Any]) -> None:
        """Write a trial's new state, in the catalog and in the mirror."""
        given = {"of_sweep": self.id, "of_trial": trial.number, "revision": self._mirror.revision + 1}
        connection.execute(statement, {**given, **values})
        known = self._mirror.known[trial.number]
        attempt, checkpoint = values.get("attempt", known.attempt), values.get("checkpoint") or known.checkpoint
        self._mirror.put(trial, Known(known.params, known.sampler_attrs, attempt, checkpoint))
        self._changed = True

    def _requeue_lost(self, connection: Connection) -> list[Assignment]:
        assignments = []
        for number, worker in connection.execute(decisions.LOST_TRIALS, {"of_sweep": self.id, "now": self._clock()}).all():
            assignment = self._assignment(number)
            assignments.append(assignment)
            error = f"attempt {assignment.attempt} was lost: worker {worker} stopped sending heartbeats"
            self._apply(connection, brain.Preempted(number), error=error)
        return assignments

    def _take_back_unclaimed(self, connection: Connection) -> None:
        """A sweep that is paused or stopped does not wait for runs that have not begun."""
        if self._mirror.state.control is Control.RUN:
            return
        for number, worker in connection.execute(decisions.RUNNING, {"of_sweep": self.id}).all():
            if worker is None:
                self._apply(connection, brain.Released(number))

    def _end_search(self, connection: Connection) -> None:
        if self._mirror.status != "searching":
            return
        found = bool(brain.ranking(self._mirror.state))
        ended = {"status": "evaluating" if found else "failed", "finished_at": None if found else utcnow()}
        connection.execute(decisions.END_SEARCH, {"of_sweep": self.id, **ended})
        for trial in [trial for trial in self._mirror.state.trials if trial.status is Status.QUEUED]:
            stopped = replace(trial, status=Status.STOPPED)  # the search was stopped before it could go on
            stays = {"audited": trial.audited, "attempt": self._mirror.known[trial.number].attempt, "worker": None, "lease_until": None}
            self._write(connection, decisions.HAND_OUT, stopped, {"status": stopped.status, **stays})

    def _result(self, report: Report) -> Result:
        values = tuple(report.values[objective.metric] for objective in self.spec.objectives)
        return Result(values, violation(self.spec, report.values))

    def _tried(self) -> list[Tried]:
        return [
            Tried(known.params, trial, known.sampler_attrs)
            for known, trial in zip(self._mirror.known, self._mirror.state.trials, strict=True)
        ]

    def _assignment(self, number: int) -> Assignment:
        known, ladder = self._mirror.known[number], self.rules.ladder(number)
        rung = len(self._mirror.state.trials[number].results)
        return Assignment(
            sweep=self.id,
            trial=number,
            attempt=known.attempt,
            params=known.params,
            seed=int.from_bytes(sha256(f"{self.spec.seed} {number}".encode()).digest()[:4]),
            rung=rung,
            granted=ladder[min(rung, len(ladder) - 1)],
            ladder=ladder,
        )

    def _stands(self, trial: int) -> Status | None:
        return self._mirror.state.trials[trial].status if trial < len(self._mirror.known) else None


def _superseded(assignment: Assignment, stands: str) -> Superseded:
    return Superseded(f"attempt {assignment.attempt} at trial {assignment.key} lost its lease: {stands}")
