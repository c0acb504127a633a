"""The loop of one attempt at a trial: receive a message, have the scheduler decide, answer."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.exc import DBAPIError

from halving import Store
from halving.distributed.out_of_memory import MemoryNotes
from halving.errors import StoreError
from halving.records.run_record import RunRecords
from halving.store.deadline import Deadline
from halving.trial.messages import Granted, Interrupted, Message, Raised, ReachedRung, ReturnedEarly, Stopped
from resources.execution.local_processes import TrialProcess
from resources.execution.signals import Sigterm, ignore_signals
from resources.execution.watches import Heartbeat, StreamWatch
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import Complete, Continue, Decision

_END_WITHIN_SECONDS = 120.0  # for a process to end once its trial was paused or completed
_AT_ONCE_SECONDS = 2.0  # A process that takes longer to start had to wait for its resources.
# Between two notes that an attempt still waits. At most this much of the wait counts as GPU-hours.
_WAITS_SECONDS = 15.0
_FLUSH_SECONDS = 2.0  # for a diverged trial's process to write its last points

_log = logging.getLogger(__name__)


class AttemptLoop:
    """Runs one attempt, from the start of its process to the decision that ends it.

    Args:
        on_change: is called after every decision about the trial.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        assignment: Assignment,
        process: TrialProcess,
        on_change: Callable[[Assignment], None],
    ) -> None:
        self._scheduler = scheduler
        self._assignment = assignment
        self._process = process
        self._on_change = on_change
        self._heartbeat = Heartbeat(scheduler, assignment, self._withdraw)
        self._stream = StreamWatch(store, scheduler.spec, assignment)
        self._records = RunRecords(store, scheduler.spec.project, assignment.key)
        self._notes = MemoryNotes(self._records, assignment.attempt)
        self._withdrawn = False  # whether the trial is to save a checkpoint and be given back
        self._patient = False  # whether it may take as long for that as it needs
        self._reclaimed: str | None = None  # why the worker has to end; the trial then counts as preempted
        self._resizing = False  # whether the trial goes on with other resources, in another attempt
        self._last: Decision | None = None  # the decision that ended the attempt
        self._created = self._waiting_noted_at = time.monotonic()
        self._since: float | None = None  # when training began, or when its time was last recorded
        self._kill_at: float | None = None  # when the grace period ends

    def run(self, worker: str, sigterm: Sigterm) -> Decision | None:
        """Run the attempt until its trial pauses, ends or fails.

        Args:
            worker: this worker's name, for the error message if SIGTERM ends it.
            sigterm: says whether SIGTERM has come.

        Returns:
            The last decision; None if another attempt has taken the trial over.
        """
        try:
            self._heartbeat.start()
            self._stream.start()
            self._process.start()
            return self._attend()
        except Superseded:
            return None
        except BaseException:
            # This worker is being stopped. The trial saves a checkpoint now and goes on from it elsewhere.
            with ignore_signals(), suppress(Superseded):
                self._withdrawn = True
                self._patient = False
                if sigterm.came:
                    self._reclaimed = f"worker {worker} was ended by SIGTERM"
                if self._last is None:
                    self._attend()
            raise
        finally:
            try:
                self._heartbeat.close()
                self._stream.close()
            finally:
                self._process.close()

    def _attend(self) -> Decision:
        while True:
            message = self._receive()
            if self._last is not None:
                # The trial is paused or complete. Nothing that comes after that decision changes it.
                return self._last
            if not isinstance(message, ReachedRung):
                self._last = self._end(message)
                self._notify()
                return self._last
            self._reach(message)
            self._notify()

    def _receive(self) -> Message | None:
        """Wait for the next message; None if the process has ended, or does not end although it should.

        Raises:
            Superseded: another attempt has the trial.
        """
        deadline = Deadline.after(_END_WITHIN_SECONDS)
        while True:
            # This is read before the messages, because the last message may arrive in between.
            alive = self._process.alive
            if self._since is None:
                if self._process.started:
                    self._since = time.monotonic()
                if self._since is not None or time.monotonic() - self._waiting_noted_at > _WAITS_SECONDS:
                    self._begin_holding()
            if self._last is None:
                if self._heartbeat.superseded is not None:
                    raise self._heartbeat.superseded
                if self._process.outgrown:
                    self._withdraw(None)
                if alive and (self._withdrawn or self._stream.diverged):
                    self._terminate()
            seconds = 0.0
            if alive:
                seconds = 1.0
            message = self._process.receive(seconds)
            if message is not None:
                return message
            should_end = self._last is not None or self._resizing
            if not alive or (should_end and deadline.is_over()):
                return None

    def _begin_holding(self) -> None:
        """Record since when the attempt has its resources, and on how many nodes.

        While it still waits for them, this records that it has held nothing until now.
        """
        self._waiting_noted_at = time.monotonic()
        wanted = self._scheduler.spec.resources.at(self._assignment.granted).nodes
        nodes = wanted
        if self._since is not None:
            nodes = self._process.nodes
        if nodes == wanted and time.monotonic() - self._created < _AT_ONCE_SECONDS:
            return
        try:
            self._scheduler.begin_holding(self._assignment, nodes)
        except DBAPIError as error:
            # Training does not wait for the ledger, which then has what the spec says.
            _log.warning(
                "could not record since when %s trains, and on how many nodes: %s",
                self._assignment.key,
                error,
            )

    def _reach(self, message: ReachedRung) -> None:
        """Ask the scheduler whether the trial goes on after its rung, and answer the process."""
        decision = self._scheduler.report_rung(self._assignment, message, self._lap())
        if not isinstance(decision, Continue):
            self._last = decision
        granted = message.epoch
        if isinstance(decision, Continue) and not self._withdrawn:
            resources = self._scheduler.spec.resources
            budget = next(budget for budget in self._assignment.ladder if budget > message.epoch)
            self._resizing = resources.at(budget) != resources.at(message.epoch)
            if not self._resizing:
                granted = budget
        self._process.answer(Granted(granted, isinstance(decision, Complete)))

    def _end(self, message: Message | None) -> Decision:
        """Report to the scheduler how the process has ended.

        Args:
            message: the last one of the process, if any.
        """
        scheduler = self._scheduler
        assignment = self._assignment
        seconds = self._lap()
        # The last message of a terminated process counts only if its training had ended by itself before.
        if message is None or isinstance(message, Stopped | Interrupted):
            if self._stream.diverged:
                return scheduler.report_failure(assignment, self._stream.diverged, seconds, None)
            if self._resizing:  # Nothing is lost, whatever has ended the worker meanwhile.
                return scheduler.report_resize(assignment, seconds)
            if self._reclaimed:
                return scheduler.report_preemption(assignment, self._reclaimed, seconds)
            if self._withdrawn:
                return scheduler.release(assignment, seconds)
        match message:
            case ReturnedEarly():
                return scheduler.report_return(assignment, message, seconds)
            case Raised(error, final=True, checkpoint=checkpoint):
                return scheduler.report_failure(assignment, error, seconds, self._last_checkpoint(checkpoint))
            case Raised(error) if self._is_to_be_halved():
                return scheduler.report_out_of_memory(assignment, error, seconds)
            case Raised(error):
                return scheduler.report_crash(assignment, error, seconds)
            case Interrupted(reason):
                return scheduler.report_preemption(assignment, reason, seconds)
        termination = self._process.termination()
        decide = scheduler.report_preemption
        if termination.own_fault:
            decide = scheduler.report_crash
        return decide(assignment, termination.reason, seconds)

    def _last_checkpoint(self, reported: str | None) -> str | None:
        """The digest of the trial's last checkpoint by its record, else the reported one.

        A checkpoint that was still being written when the training ended is newer than the reported one.
        """
        try:
            last = self._records.latest_checkpoint()
        except (StoreError, ValueError, TypeError, KeyError) as error:
            # A trial's image may have written anything in place of a record.
            _log.warning("could not look for the last checkpoint of %s: %s", self._assignment.key, error)
            return reported
        if last is None:
            return reported
        return last.digest

    def _is_to_be_halved(self) -> bool:
        """Whether a rank ran out of memory and may try once more with half the micro-batch."""
        try:
            return self._notes.is_retry_due()
        except StoreError as error:
            _log.warning(
                "could not look whether %s ran out of memory, so it counts as crashed: %s",
                self._assignment.key,
                error,
            )
            return False

    def _withdraw(self, reclaimed: str | None, *, patiently: bool = False) -> None:
        """Have the trial save a checkpoint, and give it back.

        Args:
            reclaimed: why the worker has to end; the trial then counts as preempted.
            patiently: let the trial save at the end of its epoch, however long that takes, and not within
                its grace period. A call without it has precedence.
        """
        if not self._withdrawn or (self._patient and not patiently):
            self._withdrawn = True
            self._reclaimed = reclaimed
            self._patient = patiently

    def _terminate(self) -> None:
        """Ask the process to end, and kill it when its grace period is over.

        There is no such period if only its place is wanted.
        """
        if self._patient and not self._stream.diverged:
            self._process.ask_back()
        elif self._kill_at is None:
            grace = self._scheduler.spec.resources.grace_seconds
            if self._stream.diverged:  # It has nothing worth saving but its last points.
                grace = _FLUSH_SECONDS
            self._kill_at = time.monotonic() + grace
            self._process.terminate()
        elif time.monotonic() > self._kill_at:
            self._process.kill()

    def _lap(self) -> float:
        """Seconds of training since the last call."""
        if self._since is None:
            return 0.0
        before = self._since
        self._since = time.monotonic()
        return self._since - before

    def _notify(self) -> None:
        """Call ``on_change``; an error there is only logged, because the decision stands."""
        try:
            self._on_change(self._assignment)
        except Exception:  # noqa: BLE001  # whatever Dagster's event log may raise
            _log.exception(
                "could not report %s to Dagster; that is done again when the sweep is evaluated",
                self._assignment.key,
            )
