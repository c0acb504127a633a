"""The scheduler of a sweep: it carries out the search's decisions on the catalog.

Every call is one short transaction: lock the sweep, read, decide, write.

Workers hold a lease on the trial that they run and renew it by heartbeats. When a lease has run out, another
worker gets the trial under the next attempt number, and later reports of the old attempt are refused.

While the database is unavailable, a call is tried again. The first try may have been committed all the same,
so every call recognises what an earlier try has recorded.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Connection

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.catalog import Catalog, statements, utcnow
from resources.catalog.pipelined import Statement
from resources.catalog.retry import WORKER_SECONDS, retry_transient
from resources.catalog.trial_key import trial_key
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.gpu_hours import GpuHoursWatch
from resources.scheduling.leases import LEASE_SECONDS, Leases
from resources.scheduling.suggestion_turns import SuggestionTurns
from resources.scheduling.termination import TerminationLookup
from resources.scheduling.transaction import RungMessage, SweepTransactions
from resources.search.decide import (
    Continue,
    Crashed,
    Decision,
    Failed,
    Finish,
    Halved,
    Idle,
    Preempted,
    Reached,
    Released,
    Resized,
    Returned,
    StartFinal,
    Wait,
    decide,
    ranking,
)
from resources.search.rules import violation
from resources.search.state import Control, Result, SearchState, Status, TrialState
from resources.search.suggestions.optuna_terms import load_optuna
from resources.search.suggestions.suggester import Suggester
from resources.sweep_spec import SweepSpec, stored_spec
from resources.tenancy.usage import ASKS_NO_MORE, ask_for_place

_POLL_SECONDS = 0.05

_Done = TypeVar("_Done")


class HeldBack(Wait):
    """There is work, but it is not the sweep's turn.

    Each ask delays all sweeps that share the machines, so ask more rarely than after a plain :class:`Wait`.
    """


class Scheduler:
    """Makes all decisions about one sweep; threads may share it.

    Args:
        catalog: holds the sweep's state; the scheduler only caches it between calls.
        sweep: its id.
        clock: seconds since the epoch, for leases; by default the database's clock.
        termination_lookup: finds out why a worker whose heartbeats have stopped has ended.
        retry_seconds: how long a call is tried again while the database is unavailable.
        places: how many trials of a spec may run here at a time; by default any number. Where projects share
            the machines, it limits how many places the sweep asks for.
    """

    takes_places: ClassVar[bool] = True
    """Whether its trials run on the machines that the projects share."""
    longest_lease: ClassVar[float] = LEASE_SECONDS
    """The longest time in seconds that a worker may keep a trial without a heartbeat."""

    def __init__(
        self,
        catalog: Catalog,
        sweep: str,
        clock: Callable[[], float] | None = None,
        termination_lookup: TerminationLookup | None = None,
        retry_seconds: float = WORKER_SECONDS,
        places: Callable[[SweepSpec], int] | None = None,
    ) -> None:
        self._places = places
        self.catalog = catalog
        self.id = sweep
        self._clock = clock or catalog.now
        self._retry_seconds = retry_seconds
        self.spec = self._retrying(self._read_spec)
        self._transactions = SweepTransactions(catalog, sweep, self.spec)
        self.rules = self._transactions.cache.rules
        self._leases = Leases(
            catalog, self._transactions, self._clock, termination_lookup, self.longest_lease
        )
        self._gpu_hours = GpuHoursWatch(catalog, sweep, self.spec)
        self._turns = SuggestionTurns(
            catalog, self._transactions, self._leases, self.spec, self._clock, retry_seconds
        )

    def next_work(self, worker: str | None) -> Assignment | Wait | Finish:
        """Hand out the next trial.

        Args:
            worker: gets it at once; with None a run has to :meth:`claim` it.
        """
        suggester = self._turns.suggester
        unsure = list[Assignment]()
        if suggester.needs_history:
            load_optuna()  # It takes long the first time, so it is not done in a transaction.
        while (work := self._retrying(lambda: self._next_work(worker, suggester, unsure))) is None:
            if not self.suggest_ahead(1):
                time.sleep(_POLL_SECONDS)  # Another process is choosing params.
        return work

    @property
    def chooses_ahead(self) -> bool:
        """Whether params are chosen ahead of time, because the sampler takes long.

        Otherwise :meth:`suggest_ahead` does nothing.
        """
        return self._turns.suggester.takes_long

    def suggest_ahead(self, wanted: int) -> int:
        """Choose params until ``wanted`` trials wait to be started; return how many were added.

        The sampler works outside of any transaction, on the results that there were when it began. Other
        processes go on deciding meanwhile.
        """
        return self._turns.take(wanted)

    def claim(self, trial: int, worker: str, attempt: int | None = None) -> Assignment:
        """Take a trial that was handed out without a worker.

        Args:
            attempt: the attempt that the trial has to be at; with None any.

        Raises:
            Superseded: the trial does not wait for a worker: another run has it, or it was given up.
        """
        unsure: list[Assignment] = []
        return self._retrying(lambda: self._claim(trial, worker, attempt, unsure))

    def unclaimed_attempts(self) -> list[Assignment]:
        """Attempts that wait for a run to claim them."""
        return self._attempts(claimed=False)

    def claimed_attempts(self) -> list[Assignment]:
        """Attempts that a worker has."""
        return self._attempts(claimed=True)

    def begin_holding(self, assignment: Assignment, nodes: int) -> None:
        """Record that an attempt has its resources from now on, and on how many nodes.

        Until now its pods had to start.
        """
        of_attempt = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
        began = datetime.fromtimestamp(self.catalog.now(), UTC)
        self._retrying(
            lambda: self.catalog.at_once(
                statements.BEGIN_HOLDING, {**of_attempt, "held_since": began, "nodes": nodes}
            )
        )

    def note_waiting(self, assignment: Assignment, reason: str | None, *, unclaimed: bool = False) -> None:
        """Record why the attempt's pod has not started, in the cluster's words; None once it has.

        Nothing is written if the trial has another attempt now.

        Args:
            unclaimed: write nothing if a worker has the attempt, either.
        """
        values = {
            "of_sweep": self.id,
            "of_trial": assignment.trial,
            "of_attempt": assignment.attempt,
            "waiting": reason,
        }
        statement = statements.NOTE_WAITING
        if unclaimed:
            statement = statements.NOTE_UNCLAIMED_WAITING
        self.catalog.at_once(statement, values)

    def heartbeat(self, assignment: Assignment, lease_seconds: float | None = None) -> Control:
        """Renew the lease; return what the sweep is to do now.

        Unless that is to run, the trial is to be released.

        Raises:
            Superseded: the lease was lost.
        """
        of_attempt = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
        statement = statements.RENEW_LEASE
        if self.catalog.engine.dialect.name == "postgresql":
            statement = statements.RENEW_LEASE_LIGHTLY
        renewed = self.catalog.at_once(
            statement, {**of_attempt, "lease_until": self._leases.next_end(lease_seconds)}
        )
        if not renewed:
            rows = self.catalog.at_once(statements.STATUS, of_attempt)
            now = "the trial is gone"
            if rows:
                now = f"attempt {rows[0].attempt} is {rows[0].status}"
            raise _superseded_error(assignment, now)
        self._gpu_hours.look_if_due(renewed[0].looked_at)
        return Control(renewed[0].control)

    def report_rung(
        self, assignment: Assignment, report: ReachedRung, seconds: float, lease_seconds: float | None = None
    ) -> Decision:
        """Report a trial's result at its rung, and decide whether it goes on, pauses or ends.

        Args:
            seconds: training time since the last report.
            lease_seconds: renew the lease for this time if the trial goes on; with None it is not renewed.
        """
        event = Reached(assignment.trial, self._result(report))
        return self._report(assignment, event, seconds, report=report, lease_seconds=lease_seconds)

    def report_return(self, assignment: Assignment, report: ReturnedEarly, seconds: float) -> Decision:
        """Report that a trainable returned before its rung, with its last result."""
        return self._report(
            assignment, Returned(assignment.trial, self._result(report)), seconds, report=report
        )

    def report_crash(
        self, assignment: Assignment, error: str, seconds: float, also: Sequence[Statement] = ()
    ) -> Decision:
        """Queue a crashed trial again, or give it up after ``max_retries``.

        It crashed if its process died or its trainable raised an error.

        Args:
            also: statements for the same transaction; they are skipped if the crash was recorded before.
        """
        return self._report(assignment, Crashed(assignment.trial), seconds, error=error, also=also)

    def report_preemption(self, assignment: Assignment, error: str, seconds: float) -> Decision:
        """Queue a trial whose process or worker was ended from outside, at most ``max_preemptions`` times."""
        return self._report(assignment, Preempted(assignment.trial), seconds, error=error)

    def report_failure(
        self,
        assignment: Assignment,
        error: str,
        seconds: float | None,
        checkpoint: str | None,
        also: Sequence[Statement] = (),
    ) -> Decision:
        """Give up a trial that failed in a way that would happen again.

        Args:
            seconds: training time since the last report; None if it is not the worker that reports.
            checkpoint: the trial's last good one.
            also: as in :meth:`report_crash`.
        """
        return self._report(
            assignment, Failed(assignment.trial), seconds, error=error, checkpoint=checkpoint, also=also
        )

    def release(self, assignment: Assignment, seconds: float, also: Sequence[Statement] = ()) -> Decision:
        """Give a trial back, because the worker or the sweep ends; it may go on from its checkpoint.

        Args:
            also: as in :meth:`report_crash`.
        """
        return self._report(assignment, Released(assignment.trial), seconds, also=also)

    def report_resize(self, assignment: Assignment, seconds: float) -> Decision:
        """Queue a trial that goes on after its rung with other resources, in another attempt."""
        return self._report(assignment, Resized(assignment.trial), seconds)

    def report_out_of_memory(self, assignment: Assignment, error: str, seconds: float) -> Decision:
        """Queue a trial that ran out of memory once more, with half the micro-batch; it is no failure."""
        return self._report(assignment, Halved(assignment.trial), seconds, error=error)

    def take_back_unclaimed(self) -> None:
        """Release attempts that no run has claimed, if they are not to start.

        Of a paused or stopped sweep these are all, otherwise those whose places a more important sweep wants.
        """
        self._retrying(self._take_back_once)

    def report_failed_launch(self, assignment: Assignment, error: str) -> bool:
        """Queue again, or give up, a trial whose run ended before it claimed the trial.

        If the sweep is paused or stopped, the run was refused, and the trial is not at fault.

        Returns:
            False if the attempt was claimed or is over.
        """
        return self._retrying(lambda: self._launch_failed(assignment, error))

    def requeue_lost(self) -> list[Assignment]:
        """Queue again, or give up, the trials of lost workers; return their attempts.

        A worker is lost if its lease ran out and was not renewed while it was doubted.
        """
        return self._retrying(self._leases.requeue_lost)

    def state(self) -> SearchState:
        """A copy of the sweep's present state, which belongs to the caller."""
        with self._transactions.reading():
            state = self._transactions.state
            return SearchState(self.rules, state.max_trials, [*state.trials, *state.finals], state.control)

    def running(self) -> int:
        """How many trials are handed out or running."""
        with self._transactions.reading():
            return self._transactions.state.running

    def searching(self) -> bool:
        """Whether the search is still going on, paused or not."""
        with self._transactions.reading():
            return self._transactions.cache.status == "searching"

    def _read_spec(self) -> SweepSpec:
        with self.catalog.read() as session:
            return stored_spec(self.catalog.sweep(session, self.id).spec)

    def _retrying(self, decide: Callable[[], _Done]) -> _Done:
        return retry_transient(decide, self._retry_seconds)

    def _next_work(
        self, worker: str | None, suggester: Suggester, unsure: list[Assignment], **options: Any
    ) -> Assignment | Wait | Finish | None:
        """Try to hand out a trial; None if params must be chosen first.

        Args:
            unsure: keeps what was handed out for the next try, because the answer to the COMMIT may be lost.
        """
        self._gpu_hours.look_if_due()
        with self._transactions.deciding(self._leases.look_if_due()) as connection:
            if not self._transactions.cache.overdue:
                return self._hand_out(connection, worker, suggester, unsure, **options)
        self._leases.requeue_lost()  # Lost trials are handed out before new ones.
        with self._transactions.deciding() as connection:
            return self._hand_out(connection, worker, suggester, unsure, **options)

    def _hand_out(
        self,
        connection: Connection,
        worker: str | None,
        suggester: Suggester,
        unsure: list[Assignment],
        *,
        lease_seconds: float | None = None,
    ) -> Assignment | Wait | Finish | None:
        transactions = self._transactions
        if unsure and worker and self._is_held_by(connection, unsure[0], worker):
            return unsure[0]
        self._take_back_unclaimed(connection)
        decision, trial = decide(transactions.state, Idle())
        if isinstance(decision, Finish):
            self._end_search()
        if trial is None:
            if transactions.cache.asks:
                transactions.note(ASKS_NO_MORE, {"of_sweep": self.id})
            return decision  # type: ignore[return-value]  # Wait or Finish
        if transactions.cache.shared and self.takes_places and not self._has_turn(connection, trial, worker):
            return HeldBack()
        # Without a worker there is no lease: a run may wait in Dagster's queue for as long as it has to.
        lease_until = None
        if worker:
            lease_until = self._leases.next_end(lease_seconds)
        if trial.number < len(transactions.cache.details):
            unsure[:] = [transactions.hand_out(trial, worker, lease_until)]
        elif isinstance(decision, StartFinal):
            unsure[:] = [transactions.start_final(trial, decision.winner, worker, lease_until)]
        elif suggester.takes_long:
            return None
        else:
            unsure[:] = [transactions.start(suggester.suggest(trial.number), worker, lease_until)]
        return unsure[0]

    def _has_turn(self, connection: Connection, trial: TrialState, worker: str | None) -> bool:
        """Ask for a place for a trial where projects share the machines; return whether it may start now.

        If not, the reason is noted, and less important trials may be asked to give their places back.
        """
        places = None
        if self._places:
            places = self._places(self.spec)
        needs = self._transactions.gpus_of(trial)
        waits = self._transactions.cache.waits
        granted, notes = ask_for_place(connection, self.id, places, needs, self._clock(), worker, waits=waits)
        for statement, values in notes:
            self._transactions.note(statement, values)
        return granted

    def _claim(self, trial: int, worker: str, attempt: int | None, unsure: list[Assignment]) -> Assignment:
        transactions = self._transactions
        of_trial = {"of_sweep": self.id, "of_trial": trial}
        with transactions.deciding() as connection:
            if unsure and self._is_held_by(connection, unsure[0], worker):
                return unsure[0]
            status = transactions.status(trial)
            holder = connection.scalar(statements.WORKER, of_trial)
            if (control := transactions.state.control) is not Control.RUN:
                raise Superseded(
                    f"trial {trial_key(self.id, trial)} is not to start: its sweep is to {control}, by its "
                    "user or because its project's GPU-hours are used up: halving leaderboard says which"
                )
            if status is not Status.RUNNING or holder is not None:
                reason = "there is no such trial"
                if status:
                    reason = f"it is {status}"
                if status is Status.RUNNING:
                    reason += f", worker {holder}"
                raise Superseded(f"trial {trial_key(self.id, trial)} is not waiting for a worker: {reason}")
            claimed = transactions.assignment(trial)
            if attempt not in (None, claimed.attempt):
                raise Superseded(
                    f"attempt {attempt} at trial {claimed.key} was given up: attempt {claimed.attempt} "
                    "waits for a run of its own"
                )
            transactions.claim(claimed, worker, self._leases.next_end())
            unsure[:] = [claimed]
            return claimed

    def _is_held_by(self, connection: Connection, assignment: Assignment, worker: str) -> bool:
        """Whether a worker has this very attempt, because an earlier try was committed without an answer."""
        of_trial = {"of_sweep": self.id, "of_trial": assignment.trial}
        return (
            self._transactions.is_current(assignment)
            and connection.scalar(statements.WORKER, of_trial) == worker
        )

    def _attempts(self, *, claimed: bool) -> list[Assignment]:
        with self._transactions.reading() as connection:
            rows = connection.execute(statements.RUNNING, {"of_sweep": self.id})
            return [
                self._transactions.assignment(row.number)
                for row in rows
                if (row.worker is not None) is claimed
            ]

    def _report(self, assignment: Assignment, event: Any, seconds: float | None, **details: Any) -> Decision:
        return self._retrying(lambda: self._report_once(assignment, event, seconds, **details))

    def _report_once(
        self,
        assignment: Assignment,
        event: Any,
        seconds: float | None,
        *,
        report: RungMessage | None = None,
        error: str | None = None,
        checkpoint: str | None = None,
        lease_seconds: float | None = None,
        also: Sequence[Statement] = (),
    ) -> Decision:
        transactions = self._transactions
        with transactions.deciding() as connection:
            current = transactions.is_current(assignment)
            if not current or (isinstance(report, ReachedRung) and self._is_old(assignment, report)):
                if recorded := transactions.find_decision(connection, assignment, report, error):
                    return recorded
                if not current:
                    attempt = transactions.cache.details[assignment.trial].attempt
                    status = transactions.status(assignment.trial)
                    raise _superseded_error(assignment, f"attempt {attempt} is {status}")
            for statement, values in also:
                transactions.note(statement, values)
            unreported = 0.0
            if seconds is None:
                unreported = transactions.unreported_seconds(connection, assignment.trial)
            decision = transactions.decide(
                event,
                report=report,
                error=error,
                seconds=seconds or 0.0,
                checkpoint=checkpoint,
                unreported=unreported,
            )
            if lease_seconds is not None and isinstance(decision, Continue):
                of_attempt = {
                    "of_sweep": self.id,
                    "of_trial": assignment.trial,
                    "of_attempt": assignment.attempt,
                }
                transactions.note(
                    statements.RENEW_LEASE,
                    {**of_attempt, "lease_until": self._leases.next_end(lease_seconds)},
                )
            return decision

    def _is_old(self, assignment: Assignment, report: ReachedRung) -> bool:
        """Whether a report is from a rung at which a decision on the trial was made before."""
        state = self._transactions.state
        ladder = state.ladder(assignment.trial)
        rung = len(state.trial(assignment.trial).results)
        return rung < len(ladder) and report.epoch < ladder[rung]

    def _launch_failed(self, assignment: Assignment, error: str) -> bool:
        with self._transactions.deciding() as connection:
            of_trial = {"of_sweep": self.id, "of_trial": assignment.trial}
            if (
                not self._transactions.is_current(assignment)
                or connection.scalar(statements.WORKER, of_trial) is not None
            ):
                return False
            goes_on = self._transactions.state.control is Control.RUN
            event = Crashed(assignment.trial) if goes_on else Released(assignment.trial)
            self._transactions.decide(event, error=error)
            return True

    def _take_back_once(self) -> None:
        self._gpu_hours.look_if_due()
        with self._transactions.deciding() as connection:
            self._take_back_unclaimed(connection)

    def _take_back_unclaimed(self, connection: Connection) -> None:
        """As :meth:`take_back_unclaimed`, within a transaction.

        An unclaimed attempt has nothing to save, so it is released as soon as its place is asked back.
        """
        goes_on = self._transactions.state.control is Control.RUN
        if goes_on and not (self._transactions.cache.shared and self.takes_places):
            return
        for number, worker, asked_back in connection.execute(statements.RUNNING, {"of_sweep": self.id}).all():
            if worker is None and (asked_back or not goes_on):
                self._transactions.decide(Released(number))

    def _end_search(self) -> None:
        if self._transactions.cache.status != "searching":
            return
        state = self._transactions.state
        has_result = bool(ranking(state))
        status = "finished"
        if not has_result:
            status = "failed"
        elif self.spec.judged_by:
            status = "evaluating"
        finished_at: datetime | None = utcnow()
        if status == "evaluating":
            finished_at = None
        ended = {"status": status, "finished_at": finished_at}
        self._transactions.note(statements.END_SEARCH, {"of_sweep": self.id, **ended})
        for trial in [state.trial(number) for _, number in state.queued]:
            # The search ended before the trial could go on.
            self._transactions.stop(replace(trial, status=Status.STOPPED))

    def _result(self, report: RungMessage) -> Result:
        values = tuple(report.values[objective.metric] for objective in self.spec.objectives)
        return Result(values, violation(self.spec, report.values))


def _superseded_error(assignment: Assignment, now: str) -> Superseded:
    return Superseded(f"attempt {assignment.attempt} at trial {assignment.key} lost its lease: {now}")
