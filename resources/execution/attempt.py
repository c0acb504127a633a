"""One attempt at a trial, seen from the worker that runs it: the lease, the clock, and the reports to the scheduler."""

import logging
import threading
import time

from halving import Store
from halving.query.divergence_watch import DivergenceWatch
from halving.trial.messages import Interrupted, Message, Raised, ReachedRung, ReturnedEarly, Stopped
from resources.catalog.retry import WORKER_SECONDS
from resources.execution.divergence import ranges_of
from resources.execution.local_processes import TrialProcess
from resources.scheduling.assignment import Assignment, Report, Superseded
from resources.scheduling.leases import HEARTBEAT_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.search.decide import Continue, Decision
from resources.search.state import Control

FOLDER_LOOK_SECONDS = 3.0
"""Between two looks at the metrics that a trial streams into a folder."""
OBJECT_STORE_LOOK_SECONDS = 60.0
"""The same for an object store, where each look costs requests; what streams for long writes a segment a minute, and no more."""
UNHEARD_SECONDS = 2 * WORKER_SECONDS
"""A worker whose heartbeats have not got through for so long (10 minutes) has its trial save a checkpoint and end: by now it may run
elsewhere, too. A worker waits with a decision for less, so that the outages which that outlasts end no trial."""

_END_WITHIN_SECONDS = 120.0  # after its trial was paused or completed, a process may take this long to end
_LOOK_ENDS_SECONDS = 2.0  # a look at the metrics that is under way, when the attempt is over
_FLUSH_SECONDS = 2.0  # for a diverged trial's process to write its last points

_log = logging.getLogger(__name__)


class Attempt:
    """One attempt seen from its worker: the lease, the clock, and the reports to the scheduler.

    A thread of its own renews the lease, so that nothing which takes long (importing a trainable, Dagster's event log, a
    slow store) makes a living attempt look lost. Another looks at the metrics that the trial streams.
    """

    def __init__(self, scheduler: Scheduler, assignment: Assignment, store: Store) -> None:
        self.assignment, self._scheduler, self._store = assignment, scheduler, store
        self._grace_seconds = scheduler.spec.resources.grace_seconds
        self._streamed = DivergenceWatch(store, scheduler.spec.name, assignment.key, assignment.attempt, ranges_of(scheduler.spec))
        self._diverged: str | None = None  # what was seen in the metrics that it streams
        self.withdrawn = False  # the trial is to save a checkpoint and be given back
        self._reclaimed: str | None = None  # how it was noticed that the worker's machine is taken away
        self.last: Decision | None = None  # the decision that ended the attempt
        self._since: float | None = None  # when it began to train, or went on
        self._superseded: Superseded | None = None
        self._kill_at: float | None = None  # when the grace period ends
        self._closed = threading.Event()
        self._beating = threading.Thread(target=self._beat, name=f"halving-lease-{assignment.key}", daemon=True)
        self._looking = threading.Thread(target=self._look, name=f"halving-stream-{assignment.key}", daemon=True)

    def begin(self) -> None:
        """Begin the heartbeats, and to look at what the trial streams."""
        self._beating.start()
        self._looking.start()

    def close(self) -> None:
        """End both."""
        self._closed.set()
        if self._looking.ident is not None:
            # The interpreter's end in the middle of a file would be a crash. An S3 that is silent takes longer: that is let go.
            self._looking.join(_LOOK_ENDS_SECONDS)

    def receive(self, process: TrialProcess) -> Message | None:
        """The next message, or None when the process is gone, or does not end although its trial has.

        Raises:
            Superseded: another attempt has the trial.
        """
        give_up_at = time.monotonic() + _END_WITHIN_SECONDS
        while True:
            alive = process.alive  # asked before its messages are: a last one may arrive in between
            if self._since is None and process.started:
                self._since = time.monotonic()
            if self._superseded is not None and self.last is None:
                raise self._superseded
            if (self.withdrawn or self._diverged) and self.last is None and alive:
                self._press(process)
            message = process.receive(1.0 if alive else 0.0)
            if message is not None:
                return message
            if not alive or (self.last is not None and time.monotonic() > give_up_at):
                return None

    def reached(self, message: ReachedRung) -> Decision:
        seconds = self._lap()
        decision = self._scheduler.reached(self.assignment, _report(message), seconds)
        if not isinstance(decision, Continue):
            self.last = decision
        return decision

    def next_grant(self, epoch: int) -> int:
        return next(budget for budget in self.assignment.ladder if budget > epoch)

    def ended(self, message: Message | None, process: TrialProcess) -> Decision:
        self.last = self._ending(message, process)
        return self.last

    def _ending(self, message: Message | None, process: TrialProcess) -> Decision:
        given, seconds = self.assignment, self._lap()
        # A process that was told to end has the last word only if it had come to its end already.
        if message is None or isinstance(message, Stopped | Interrupted):
            if self._diverged:
                return self._scheduler.failed(given, self._diverged, seconds, None)
            if self.withdrawn and self._reclaimed is None:
                return self._scheduler.released(given, seconds)
            if self._reclaimed is not None:
                return self._scheduler.preempted(given, self._reclaimed, seconds)
        if isinstance(message, ReturnedEarly):
            return self._scheduler.returned(given, _report(message), seconds)
        if isinstance(message, Raised) and message.final:
            return self._scheduler.failed(given, message.error, seconds, message.checkpoint)
        if isinstance(message, Raised):
            return self._scheduler.crashed(given, message.error, seconds)
        if isinstance(message, Interrupted):
            return self._scheduler.preempted(given, message.reason, seconds)
        termination = process.termination()
        decide = self._scheduler.crashed if termination.own_fault else self._scheduler.preempted
        return decide(given, termination.reason, seconds)

    def withdraw(self, reclaimed: str | None = None) -> None:
        """Have the trial save a checkpoint, within its grace period, and give it back.

        Args:
            reclaimed: where the worker's machine is taken away, how that was noticed: the trial counts as preempted.
        """
        self.withdrawn, self._reclaimed = True, reclaimed or self._reclaimed

    def _press(self, process: TrialProcess) -> None:
        if self._kill_at is None:
            # A diverged trial has nothing worth saving: only its last points.
            self._kill_at = time.monotonic() + (_FLUSH_SECONDS if self._diverged else self._grace_seconds)
            process.terminate()
        elif time.monotonic() > self._kill_at:
            process.kill()

    def _beat(self) -> None:
        heard = time.monotonic()
        while not self._closed.wait(HEARTBEAT_SECONDS):
            try:
                control = self._scheduler.heartbeat(self.assignment)
            except Superseded as superseded:
                self._superseded = superseded
                return
            except Exception as error:  # noqa: BLE001  # the database is away for a moment: training goes on, the next beat may arrive
                _log.warning("no heartbeat for %s: %s", self.assignment.key, error)
                if not self.withdrawn and (silent := time.monotonic() - heard) > UNHEARD_SECONDS:
                    self.withdraw(f"its worker could not renew the lease for {silent:.0f} s: {error}")
                continue
            heard = time.monotonic()
            if control is not Control.RUN:
                self.withdraw()

    def _look(self) -> None:
        seconds = OBJECT_STORE_LOOK_SECONDS if self._store.folder is None else FOLDER_LOOK_SECONDS
        while not self._closed.wait(seconds) and self._diverged is None:
            try:
                self._diverged = self._streamed.check()
            except Exception as error:  # noqa: BLE001  # whatever a store may raise: the next look may see it
                _log.warning("cannot see the metrics of %s: %s", self.assignment.key, error)

    def _lap(self) -> float:
        """Seconds of training since the last lap."""
        if self._since is None:
            return 0.0
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


def _report(message: ReachedRung | ReturnedEarly) -> Report:
    return Report(message.values, message.checkpoint, message.epoch, message.best_checkpoint)
