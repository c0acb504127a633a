"""One attempt at a trial, seen from the worker that runs it: the lease, the clock, and the reports to the scheduler."""

import logging
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from halving import Store
from halving.divergence import DivergenceWatch
from halving.execute import Raised, ReachedRung, ReturnedEarly, Stopped
from resources.assignment import Assignment, Report, Superseded
from resources.divergence import bounds_of
from resources.scheduler import HEARTBEAT_SECONDS, Scheduler
from resources.search import brain
from resources.search.state import Control

_END_WITHIN_SECONDS = 60.0  # after its trial was paused or completed, a process may take this long to end
_TERMINATED = (128 + signal.SIGTERM, -signal.SIGTERM)  # with a checkpoint saved, or before there was anything to save
_FLUSH_SECONDS = 2.0  # for a diverged trial's process to write its last points
_PATIENCE_SECONDS = 300.0  # how long a decision waits for a database that is away

_log = logging.getLogger(__name__)


class Attempt:
    """One attempt seen from its worker: the lease, the clock, and the reports to the scheduler.

    A thread of its own renews the lease, so that nothing which takes long (importing a trainable, Dagster's event log, a
    slow store) makes a living attempt look lost. Another looks at the metrics that the trial streams.
    """

    def __init__(self, scheduler: Scheduler, assignment: Assignment, store: Store) -> None:
        self.assignment, self._scheduler = assignment, scheduler
        self._grace_seconds = scheduler.spec.resources.grace_seconds
        self._streamed = DivergenceWatch(store, scheduler.spec.name, assignment.key, assignment.attempt, bounds_of(scheduler.spec))
        self._diverged: str | None = None  # what was seen in the metrics that it streams
        self.withdrawn = False  # the trial is to save a checkpoint and be given back
        self.last: brain.Decision | None = None  # the decision that ended the attempt
        self._since = time.monotonic()
        self._superseded: Superseded | None = None
        self._kill_at: float | None = None  # when the grace period ends
        self._closed = threading.Event()
        for name, target in (("lease", self._beat), ("stream", self._look)):
            threading.Thread(target=target, name=f"halving-{name}-{assignment.key}", daemon=True).start()

    def close(self) -> None:
        """End the heartbeats."""
        self._closed.set()

    def receive(self, connection: Connection, process: Any) -> Any:
        """The next message, or None when the process is gone, or does not end although its trial has.

        Raises:
            Superseded: another attempt has the trial.
        """
        patience = time.monotonic() + _END_WITHIN_SECONDS
        while True:
            # The process itself is watched too: its children may hold the pipe open after its death.
            wait([connection, process.sentinel], timeout=1.0)
            alive = process.is_alive()  # asked before the pipe is: a last message may arrive in between
            if self._superseded is not None and self.last is None:
                raise self._superseded
            if (self.withdrawn or self._diverged) and self.last is None and alive:
                self._press(process)
            try:
                if connection.poll():
                    return connection.recv()
            except (EOFError, ConnectionResetError):
                return None
            if not alive or (self.last is not None and time.monotonic() > patience):
                return None

    def reached(self, message: ReachedRung) -> brain.Decision:
        seconds = self._lap()
        decision = _patiently(self._scheduler.reached, self.assignment, _report(message), seconds)
        if not isinstance(decision, brain.Continue):
            self.last = decision
        return decision

    def next_grant(self, epoch: int) -> int:
        return next(budget for budget in self.assignment.ladder if budget > epoch)

    def ended(self, message: Any, process: Any) -> brain.Decision:
        self.last = self._ending(message, process)
        return self.last

    def _ending(self, message: Any, process: Any) -> brain.Decision:
        given, seconds = self.assignment, self._lap()
        if self._diverged and (message is None or isinstance(message, Stopped)):
            return _patiently(self._scheduler.failed, given, self._diverged, seconds, None)
        if self.withdrawn and (message is None or isinstance(message, Stopped)):
            return _patiently(self._scheduler.released, given, seconds)
        if isinstance(message, ReturnedEarly):
            return _patiently(self._scheduler.returned, given, _report(message), seconds)
        if isinstance(message, Raised) and message.final:
            return _patiently(self._scheduler.failed, given, message.error, seconds, message.checkpoint)
        if isinstance(message, Raised):
            return _patiently(self._scheduler.crashed, given, message.error, seconds)
        process.join()
        if process.exitcode in _TERMINATED:
            return _patiently(self._scheduler.preempted, given, "the trial's process was told to end by SIGTERM", seconds)
        return _patiently(self._scheduler.crashed, given, _death(process.exitcode), seconds)

    def withdraw(self) -> None:
        """Have the trial save a checkpoint, within its grace period, and give it back."""
        self.withdrawn = True

    def _press(self, process: Any) -> None:
        if self._kill_at is None:
            # A diverged trial has nothing worth saving: only its last points.
            self._kill_at = time.monotonic() + (_FLUSH_SECONDS if self._diverged else self._grace_seconds)
            process.terminate()
        elif time.monotonic() > self._kill_at:
            process.kill()

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS):
            try:
                control = self._scheduler.heartbeat(self.assignment)
            except Superseded as superseded:
                self._superseded = superseded
                return
            except Exception as error:  # noqa: BLE001  # the database is away for a moment: training goes on, the next beat may arrive
                _log.warning("no heartbeat for %s: %s", self.assignment.key, error)
                continue
            if control is not Control.RUN:
                self.withdraw()

    def _look(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS) and self._diverged is None:
            try:
                self._diverged = self._streamed.check()
            except Exception as error:  # noqa: BLE001  # whatever a store may raise: the next look may see it
                _log.warning("cannot see the metrics of %s: %s", self.assignment.key, error)

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


_Decided = TypeVar("_Decided")


def _patiently(decide: Callable[..., _Decided], *arguments: Any) -> _Decided:
    """Decide, and try again while the database is away: the trial waits at its rung rather than be lost."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return decide(*arguments)
        except DBAPIError as error:
            if time.monotonic() > until:
                raise
            _log.warning("the catalog does not answer, trying again: %s", error)
            time.sleep(1.0)


def _report(message: ReachedRung | ReturnedEarly) -> Report:
    return Report(message.values, message.checkpoint, message.epoch, message.best_checkpoint)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; often the machine ran out of memory" if name == "SIGKILL" else ""
        return f"the trial's process was killed by {name}{hint}"
    return f"the trial's process ended with exit code {code} and said nothing"
