"""The search's decisions carried out on the catalog.

Every call is one short transaction: lock the sweep, read, decide, write.

Workers hold a lease on the trial that they run and renew it by heartbeats. When a lease ran out the trial is
given to another worker under the next attempt number, and later reports of the old attempt are refused.

While the database is unavailable a call is tried again. It may then be done twice as a whole: what the first
try recorded is recognised.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Connection

from halving.trial.messages import ReachedRung, ReturnedEarly
from resources.catalog import Catalog, statements, utcnow
from resources.catalog.pipelined import Asked
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
from resources.search.suggest import Suggester, load_optuna
from resources.sweep_spec import SweepSpec, stored_spec
from resources.tenancy.usage import ASKS_NO_MORE, ask_for_place

_POLL_SECONDS = 0.05

_Done = TypeVar("_Done")


class HeldBack(Wait):
    """It is not the sweep's turn; asking costs all who share the machines a moment, so ask more rarely than
    for work.
    """


class Scheduler:
    """All decisions about one sweep; threads may share it.

    Args:
        catalog: where its state is; what the scheduler keeps between calls is a cache of it.
        sweep: its id.
        clock: seconds since the epoch, for leases; by default the database's.
        termination_lookup: gives the reason why a worker whose heartbeats have stopped has ended.
        retry_seconds: how long a call is tried again while the database is unavailable.
        places: how many trials of a spec may run at a time here; by default any number. It says how much a
            sweep asks for, where projects share the machines.
    """

    takes_places: ClassVar[bool] = True
    """Whether its trials run on the machines that the projects share."""
    longest_lease: ClassVar[float] = LEASE_SECONDS
    """Seconds for which a worker may have a trial without a heartbeat, at most."""

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

        With ``worker`` that worker has it at once; with None a run has to :meth:`claim` it.
        """
        suggester = self._turns.suggester
        unsure = list[Assignment]()
        if suggester.needs_history:
            load_optuna()  # takes long the first time, so not in a transaction
        while (given := self._retrying(lambda: self._next_work(worker, suggester, unsure))) is None:
            if not self.suggest_ahead(1):
                time.sleep(_POLL_SECONDS)  # another process is choosing
        return given

    @property
    def chooses_ahead(self) -> bool:
        """Whether params are chosen ahead of time, because choosing takes long; if not, :meth:`suggest_ahead`
        does nothing.
        """
        return self._turns.suggester.takes_long

    def suggest_ahead(self, wanted: int) -> int:
        """Choose params ahead of time until ``wanted`` trials wait to be started; give how many were added.

        The sampler works outside of any transaction, on what was known when it began: other processes decide
        meanwhile.
        """
        return self._turns.take(wanted)

    def claim(self, trial: int, worker: str, attempt: int | None = None) -> Assignment:
        """Take a trial that was handed out without a worker; with ``attempt`` only if that is its current
        attempt.

        Raises:
            Superseded: it does not wait for a worker: another run has it, or it was given up.
        """
        unsure: list[Assignment] = []
        return self._retrying(lambda: self._claim(trial, worker, attempt, unsure))

    def handed_out(self) -> list[Assignment]:
        """Attempts that wait for a run to claim them."""
        return self._running(claimed=False)

    def claimed(self) -> list[Assignment]:
        """Attempts that a worker has."""
        return self._running(claimed=True)

    def begin_holding(self, assignment: Assignment, nodes: int) -> None:
        """Record that an attempt has its resources only now, because its pods had to start, and on how many
        nodes it has them.
        """
        of = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
        began = datetime.fromtimestamp(self.catalog.now(), UTC)
        self._retrying(
            lambda: self.catalog.at_once(
                statements.BEGIN_HOLDING, {**of, "held_since": began, "nodes": nodes}
            )
        )

    def note_waiting(self, assignment: Assignment, reason: str | None, *, unclaimed: bool = False) -> None:
        """Record why the attempt's pod has not started, in the cluster's words; None once it has.

        Nothing is written if the trial has another attempt now, or with ``unclaimed`` if a worker has it.
        """
        given = {
            "of_sweep": self.id,
            "of_trial": assignment.trial,
            "of_attempt": assignment.attempt,
            "waiting": reason,
        }
        statement = statements.NOTE_UNCLAIMED_WAITING if unclaimed else statements.NOTE_WAITING
        self.catalog.at_once(statement, given)

    def heartbeat(self, assignment: Assignment, lease_seconds: float | None = None) -> Control:
        """Renew the lease, and give what the sweep's user wants: on a pause or a stop the trial is to be
        released.

        Raises:
            Superseded: the lease was lost.
        """
        given = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
        lightly = self.catalog.engine.dialect.name == "postgresql"
        statement = statements.RENEW_LEASE_LIGHTLY if lightly else statements.RENEW_LEASE
        renewed = self.catalog.at_once(
            statement, {**given, "lease_until": self._leases.next_end(lease_seconds)}
        )
        if not renewed:
            found = self.catalog.at_once(statements.STATUS, given)
            raise _superseded(
                assignment,
                f"attempt {found[0].attempt} is {found[0].status}" if found else "the trial is gone",
            )
        self._gpu_hours.look_if_due(renewed[0].looked_at)
        return Control(renewed[0].control)

    def reached(
        self, assignment: Assignment, report: ReachedRung, seconds: float, lease_seconds: float | None = None
    ) -> Decision:
        """A trial reports at its rung; decide whether it goes on, pauses or ends.

        ``seconds`` it has trained since its last report.

        With ``lease_seconds`` this is a heartbeat, too: if it goes on, its lease lasts so much longer.
        """
        event = Reached(assignment.trial, self._result(report))
        return self._report(assignment, event, seconds, report=report, lease_seconds=lease_seconds)

    def returned(self, assignment: Assignment, report: ReturnedEarly, seconds: float) -> Decision:
        """A trainable returned before its rung, with its last result."""
        return self._report(
            assignment, Returned(assignment.trial, self._result(report)), seconds, report=report
        )

    def crashed(
        self, assignment: Assignment, error: str, seconds: float, also: Sequence[Asked] = ()
    ) -> Decision:
        """A trial's process died or its trainable raised: queued again, or given up after ``max_retries``.

        ``also`` is what else is written in the transaction that decides; nothing where it was decided before.
        """
        return self._report(assignment, Crashed(assignment.trial), seconds, error=error, also=also)

    def preempted(self, assignment: Assignment, error: str, seconds: float) -> Decision:
        """A trial's process or worker was ended from outside: queued again, at most ``max_preemptions``
        times.
        """
        return self._report(assignment, Preempted(assignment.trial), seconds, error=error)

    def failed(
        self,
        assignment: Assignment,
        error: str,
        seconds: float | None,
        checkpoint: str | None,
        also: Sequence[Asked] = (),
    ) -> Decision:
        """A trial failed in a way that would happen again; ``checkpoint`` is its last good one, ``also`` as
        of :meth:`crashed`.

        ``seconds`` is None where it is not its worker that ends it.
        """
        return self._report(
            assignment, Failed(assignment.trial), seconds, error=error, checkpoint=checkpoint, also=also
        )

    def released(self, assignment: Assignment, seconds: float, also: Sequence[Asked] = ()) -> Decision:
        """A worker gives its trial back, because its user ends the worker or the sweep; the trial may go on
        from its checkpoint.

        ``also`` as of :meth:`crashed`.
        """
        return self._report(assignment, Released(assignment.trial), seconds, also=also)

    def resized(self, assignment: Assignment, seconds: float) -> Decision:
        """A trial that goes on after its rung has saved there and ended: its next attempt begins with the
        resources of the next rung.
        """
        return self._report(assignment, Resized(assignment.trial), seconds)

    def halved(self, assignment: Assignment, error: str, seconds: float) -> Decision:
        """A rank ran out of memory, and the trial is tried once more with half the micro-batch; that counts
        as no failure.
        """
        return self._report(assignment, Halved(assignment.trial), seconds, error=error)

    def take_back_unclaimed(self) -> None:
        """Release what no run has claimed: all that a paused or stopped sweep has handed out, and what a more
        important sweep wants.
        """
        self._retrying(self._taken_back)

    def launch_failed(self, assignment: Assignment, error: str) -> bool:
        """Queue again, or give up, a trial whose run ended before it claimed it; False if the attempt was
        claimed or is over.

        It is no fault of the trial's where the sweep is paused or stopped: its run was refused.
        """
        return self._retrying(lambda: self._launch_failed(assignment, error))

    def requeue_lost(self) -> list[Assignment]:
        """Queue again, or give up, trials whose lease ran out and was not renewed while it was doubted; give
        those attempts.
        """
        return self._retrying(self._leases.requeue_lost)

    def state(self) -> SearchState:
        """The sweep as the search sees it now; a copy that belongs to the caller."""
        with self._transactions.reading():
            state = self._transactions.state
            return SearchState(self.rules, state.max_trials, [*state.trials, *state.finals], state.control)

    def running(self) -> int:
        """Trials that are handed out or running."""
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
        """One try; None if params must be chosen first.

        ``unsure`` keeps what was handed out, in case the COMMIT gets no answer.
        """
        self._gpu_hours.look_if_due()
        with self._transactions.deciding(self._leases.look_if_due()) as connection:
            if not self._transactions.cache.overdue:
                return self._hand_out(connection, worker, suggester, unsure, **options)
        self._leases.requeue_lost()  # these are handed out before new trials
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
        if unsure and worker and self._has(connection, unsure[0], worker):
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
        lease_until = self._leases.next_end(lease_seconds) if worker else None
        if trial.number < len(transactions.cache.known):
            unsure[:] = [transactions.hand_out(trial, worker, lease_until)]
        elif isinstance(decision, StartFinal):
            unsure[:] = [transactions.start_final(trial, decision.winner, worker, lease_until)]
        elif suggester.takes_long:
            return None
        else:
            unsure[:] = [transactions.start(suggester.suggest(trial.number), worker, lease_until)]
        return unsure[0]

    def _has_turn(self, connection: Connection, trial: TrialState, worker: str | None) -> bool:
        """Whether a trial may be started now, where projects share the machines; if not, why is noted, and
        less important trials may be asked to give their places back.
        """
        places = self._places(self.spec) if self._places else None
        needs = self._transactions.gpus_of(trial)
        waits = self._transactions.cache.waits
        granted, notes = ask_for_place(connection, self.id, places, needs, self._clock(), worker, waits=waits)
        for statement, values in notes:
            self._transactions.note(statement, values)
        return granted

    def _claim(self, trial: int, worker: str, attempt: int | None, unsure: list[Assignment]) -> Assignment:
        transactions = self._transactions
        given = {"of_sweep": self.id, "of_trial": trial}
        with transactions.deciding() as connection:
            if unsure and self._has(connection, unsure[0], worker):
                return unsure[0]
            status = transactions.status(trial)
            holder = connection.scalar(statements.WORKER, given)
            if (control := transactions.state.control) is not Control.RUN:
                raise Superseded(
                    f"trial {trial_key(self.id, trial)} is not to start: its sweep is to {control}, by its "
                    "user or because its project's "
                    "GPU-hours are used up: halving leaderboard says which"
                )
            if status is not Status.RUNNING or holder is not None:
                reason = f"it is {status}" if status else "there is no such trial"
                reason += f", worker {holder}" if status is Status.RUNNING else ""
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

    def _has(self, connection: Connection, assignment: Assignment, worker: str) -> bool:
        """Whether a worker has this very attempt: an earlier try was committed, and its answer was lost."""
        given = {"of_sweep": self.id, "of_trial": assignment.trial}
        return (
            self._transactions.is_current(assignment)
            and connection.scalar(statements.WORKER, given) == worker
        )

    def _running(self, *, claimed: bool) -> list[Assignment]:
        with self._transactions.reading() as connection:
            found = connection.execute(statements.RUNNING, {"of_sweep": self.id})
            return [
                self._transactions.assignment(row.number)
                for row in found
                if (row.worker is not None) is claimed
            ]

    def _report(self, assignment: Assignment, event: Any, seconds: float | None, **given: Any) -> Decision:
        return self._retrying(lambda: self._reported(assignment, event, seconds, **given))

    def _reported(
        self,
        assignment: Assignment,
        event: Any,
        seconds: float | None,
        *,
        report: RungMessage | None = None,
        error: str | None = None,
        checkpoint: str | None = None,
        lease_seconds: float | None = None,
        also: Sequence[Asked] = (),
    ) -> Decision:
        transactions = self._transactions
        with transactions.deciding() as connection:
            current = transactions.is_current(assignment)
            if not current or (isinstance(report, ReachedRung) and self._is_old(assignment, report)):
                if recorded := transactions.recorded(connection, assignment, report, error):
                    return recorded
                if not current:
                    attempt = transactions.cache.known[assignment.trial].attempt
                    status = transactions.status(assignment.trial)
                    raise _superseded(assignment, f"attempt {attempt} is {status}")
            for statement, values in also:
                transactions.note(statement, values)
            untold = transactions.untold_seconds(connection, assignment.trial) if seconds is None else 0.0
            decision = transactions.decide(
                event,
                report=report,
                error=error,
                seconds=seconds or 0.0,
                checkpoint=checkpoint,
                untold=untold,
            )
            if lease_seconds is not None and isinstance(decision, Continue):
                of = {"of_sweep": self.id, "of_trial": assignment.trial, "of_attempt": assignment.attempt}
                transactions.note(
                    statements.RENEW_LEASE, {**of, "lease_until": self._leases.next_end(lease_seconds)}
                )
            return decision

    def _is_old(self, assignment: Assignment, report: ReachedRung) -> bool:
        """Whether a report is from a rung at which the trial was decided on before."""
        state = self._transactions.state
        ladder = state.ladder(assignment.trial)
        rung = len(state.trial(assignment.trial).results)
        return rung < len(ladder) and report.epoch < ladder[rung]

    def _launch_failed(self, assignment: Assignment, error: str) -> bool:
        with self._transactions.deciding() as connection:
            given = {"of_sweep": self.id, "of_trial": assignment.trial}
            if (
                not self._transactions.is_current(assignment)
                or connection.scalar(statements.WORKER, given) is not None
            ):
                return False
            goes_on = self._transactions.state.control is Control.RUN
            self._transactions.decide((Crashed if goes_on else Released)(assignment.trial), error=error)
            return True

    def _taken_back(self) -> None:
        self._gpu_hours.look_if_due()
        with self._transactions.deciding() as connection:
            self._take_back_unclaimed(connection)

    def _take_back_unclaimed(self, connection: Connection) -> None:
        """Release what no run has claimed yet: of a sweep that goes on only what was asked back, which saves
        nothing by going on.
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
        found = bool(ranking(state))
        status = "failed" if not found else "evaluating" if self.spec.judged_by else "finished"
        ended = {"status": status, "finished_at": None if status == "evaluating" else utcnow()}
        self._transactions.note(statements.END_SEARCH, {"of_sweep": self.id, **ended})
        for trial in [state.trial(number) for _, number in state.queued]:
            # the search ended before it could go on
            self._transactions.stop(replace(trial, status=Status.STOPPED))

    def _result(self, report: RungMessage) -> Result:
        values = tuple(report.values[objective.metric] for objective in self.spec.objectives)
        return Result(values, violation(self.spec, report.values))


def _superseded(assignment: Assignment, now: str) -> Superseded:
    return Superseded(f"attempt {assignment.attempt} at trial {assignment.key} lost its lease: {now}")
