"""A trial's process as its worker sees it; and the one on the worker's own machine, forked from a server that has imported the trainable,
with a pipe to the worker.
"""

import os
import signal
import sys
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from halving.trial.context import TrialContext
from halving.trial.messages import Granted, Message
from halving.trial_process.main import run_trial
from resources.execution.cgroup_memory import OutOfMemory
from resources.execution.machine import visible_gpus
from resources.scheduling.assignment import Assignment
from resources.scheduling.termination import Termination
from resources.sweep_spec.requirements import Resources

_END_SECONDS = 5.0  # for a process to end whose trial has been decided on
_TERMINATED = (128 + signal.SIGTERM, -signal.SIGTERM)  # after it saved a checkpoint, or before it could


class TrialProcess(Protocol):
    """What a worker does with the process of one attempt, wherever that runs."""

    def start(self) -> None:
        """Start it; returns at once."""

    @property
    def alive(self) -> bool:
        """Whether it may still send something. What it sent before its end can be received afterwards, too."""

    @property
    def started(self) -> bool:
        """Whether it has begun to run: a pod waits for a node and its image first."""

    def receive(self, timeout: float) -> Message | None:
        """Its next message; None if none came within ``timeout`` seconds, or it has ended."""

    def answer(self, granted: Granted) -> None:
        """Answer its message at a rung; nothing happens if it has ended meanwhile."""

    def terminate(self) -> None:
        """Have it save a checkpoint, within its grace period, and end."""

    def kill(self) -> None:
        """End it at once."""

    def termination(self) -> Termination:
        """Why it ended without a last message; waits for its end."""

    def close(self) -> None:
        """End it, whatever it is doing, and clean up: its trial has been decided on."""


class TrialProcesses(Protocol):
    """Where a worker's trials run."""

    def prepare(self, assignment: Assignment, context: TrialContext) -> TrialProcess:
        """A process for an attempt, not started yet."""


class ForkServer:
    """Processes on this machine.

    Args:
        trainable: imported before the first trial is forked.
        resources: what each trial may use.
        gpus: ids of the GPUs that they see; with None CUDA decides.
    """

    def __init__(self, trainable: str, resources: Resources, gpus: list[str] | None) -> None:
        self._trainable, self._threads = trainable, resources.threads
        # Before anything numeric is imported by the fork server: BLAS and CUDA read these once.
        os.environ.update(thread_limits(resources))
        # torch.cuda.is_available() at a trainable's top level must not start CUDA in the process that trials fork from.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        if gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        # Until Python 3.13 the fork server ignores the sys.path that it is sent (python/cpython#117378), and then silently preloads
        # nothing; the variable does reach it.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._server = get_context("forkserver")
        imports = [
            "__main__",
            "resources.execution.drop_credentials",
            "halving.trial_process.main",
            trainable.partition(":")[0],
            "halving.trial_process.preload",
        ]
        self._server.set_forkserver_preload(imports)

    def prepare(self, assignment: Assignment, context: TrialContext) -> "LocalProcess":
        ours, theirs = self._server.Pipe()
        arguments = (context, self._trainable, assignment.granted, theirs, self._threads)
        # Not a daemon: those may have no children, and data loaders are children.
        process = self._server.Process(target=run_trial, args=arguments, name=assignment.key, daemon=False)
        return LocalProcess(process, ours, theirs)


class LocalProcess:
    """A child of the fork server; it ends with its worker."""

    def __init__(self, process: Any, ours: Connection, theirs: Connection) -> None:
        self._process, self._ours, self._theirs = process, ours, theirs
        self._hung_up = False
        self._memory = OutOfMemory()

    def start(self) -> None:
        self._process.start()
        self._theirs.close()

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    @property
    def started(self) -> bool:
        return self._process.pid is not None

    def receive(self, timeout: float) -> Message | None:
        if self._process.pid is None:
            return None
        # The process itself is watched, too: its children may keep the pipe open after it ended.
        wait([self._process.sentinel, *([] if self._hung_up else [self._ours])], timeout)
        try:
            return self._ours.recv() if not self._hung_up and self._ours.poll() else None
        except (EOFError, ConnectionResetError):
            self._hung_up = True
            return None

    def answer(self, granted: Granted) -> None:
        with suppress(OSError):
            self._ours.send(granted)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def termination(self) -> Termination:
        self._process.join()
        code = self._process.exitcode
        if code in _TERMINATED:
            return Termination("the trial's process was ended by SIGTERM", own_fault=False)
        if code is not None and code < 0:
            why = self._memory.reason() if code == -signal.SIGKILL else ""
            return Termination(f"the trial's process was killed by {signal.Signals(-code).name}{why}", own_fault=True)
        return Termination(f"the trial's process ended with exit code {code} and without a message", own_fault=True)

    def close(self) -> None:
        if self._process.pid and self.alive:
            self._process.terminate()
            self._process.join(_END_SECONDS)
        if self._process.pid and self.alive:
            self._process.kill()
            self._process.join()
        self._ours.close()


def gpus_of_slot(resources: Resources, slot: int) -> list[str] | None:
    """The GPUs of this machine that belong to the worker with this number; None if the machine has none."""
    gpus = visible_gpus()
    return gpus[slot * resources.gpus : (slot + 1) * resources.gpus] if gpus else None


def thread_limits(resources: Resources) -> dict[str, str]:
    """Environment variables that keep numeric libraries from using more cores than a trial has."""
    return {name: str(resources.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
