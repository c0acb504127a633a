"""Trials' processes on a machine whose GPUs several workers share; each has GPUs of its own.

A process that waits for its GPUs has not started yet, like a pod that waits for a node.
"""

import logging
import random
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from halving.trial.context import TrialContext
from halving.trial.messages import Granted, Message
from resources.execution.held_gpus import HeldGpus
from resources.execution.local_processes import ForkServer, LocalProcess
from resources.execution.waiting_note import WaitingNote
from resources.scheduling.assignment import Assignment
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.termination import Termination

# Between two looks for free devices, on average. It is random, so that all that wait get them equally often.
_LOOK_SECONDS = 1.0

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class GpuProcesses:
    """Processes on this machine, each with GPUs of its own.

    Args:
        server: forks the processes.
        gpus: the GPUs of the machine.
        scheduler: records why a trial waits.
    """

    def __init__(self, server: ForkServer, gpus: HeldGpus, scheduler: Scheduler) -> None:
        self._server = server
        self._gpus = gpus
        self._scheduler = scheduler

    def prepare(self, assignment: Assignment, context: TrialContext) -> "GpuProcess":
        count = self._scheduler.spec.resources.at(assignment.granted).gpus
        note = WaitingNote(f"trial {assignment.key}", partial(self._scheduler.note_waiting, assignment))
        return GpuProcess(
            partial(self._server.prepare, assignment, context), self._gpus, assignment, count, note
        )


class GpuProcess:
    """A process that starts once it has its GPUs, and gives them back when it is closed.

    All waiting is done step by step in :meth:`receive`.

    Args:
        prepare: makes the process, which sees the given GPUs.
        gpus: the GPUs of the machine.
        assignment: the attempt that holds the GPUs.
        count: how many it needs.
        waiting: records why it has not started.
    """

    def __init__(
        self,
        prepare: Callable[[list[str]], LocalProcess],
        gpus: HeldGpus,
        assignment: Assignment,
        count: int,
        waiting: WaitingNote,
    ) -> None:
        self._prepare = prepare
        self._gpus = gpus
        self._assignment = assignment
        self._count = count
        self._waiting = waiting
        self._process: LocalProcess | None = None
        self._given_back = False  # whether it was given back before it had its GPUs
        self._next_look = 0.0

    def start(self) -> None:
        # A worker that goes from trial to trial would always come before the others, which look once a
        # second.
        if self._ask_catalog(self._gpus.somebody_waits):
            self._look_later()
        else:
            self._look()

    @property
    def alive(self) -> bool:
        if self._process is None:
            return not self._given_back
        return self._process.alive

    @property
    def started(self) -> bool:
        return self._process is not None and self._process.started

    @property
    def nodes(self) -> int:
        return 1

    @property
    def outgrown(self) -> bool:
        return False

    def receive(self, timeout: float) -> Message | None:
        if self._process is not None:
            self._waiting.note(None)  # This repeats the note if it could not be recorded.
            return self._process.receive(timeout)
        if self.alive:
            time.sleep(min(timeout, max(0.0, self._next_look - time.monotonic())))
            if time.monotonic() >= self._next_look:
                self._look()
        return None

    def answer(self, granted: Granted) -> None:
        if self._process is not None:
            self._process.answer(granted)

    def ask_back(self) -> None:
        if self._process is None:
            self._given_back = True
        else:
            self._process.ask_back()

    def terminate(self) -> None:
        if self._process is None:
            self._given_back = True
        else:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is None:
            self._given_back = True
        else:
            self._process.kill()

    def termination(self) -> Termination:
        if self._process is None:
            return Termination("the trial was to end before it had its GPUs", own_fault=False)
        return self._process.termination()

    def close(self) -> None:
        try:
            if self._process is not None:
                self._process.close()
        finally:
            self._gpus.give(self._assignment)

    def _look(self) -> None:
        """Start the process if enough devices are free."""
        self._look_later()
        gpus = self._ask_catalog(lambda: self._gpus.take(self._assignment, self._count))
        if gpus is None:
            free = self._ask_catalog(self._gpus.free)
            if free is not None:
                self._waiting.note(
                    f"for {self._count} GPUs of {self._gpus.machine}: {free} of {len(self._gpus)} are free"
                )
            return
        self._waiting.note(None)
        self._process = self._prepare(gpus)
        self._process.start()

    def _look_later(self) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS * random.uniform(0.5, 1.5)

    def _ask_catalog(self, question: Callable[[], _Answer]) -> _Answer | None:
        """The catalog's answer; None while the database is unavailable, and then the next look asks again."""
        try:
            return question()
        except DBAPIError as error:
            _log.warning(
                "%s waits for GPUs, and the catalog does not answer: %s", self._assignment.key, error
            )
            return None
