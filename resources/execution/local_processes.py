"""A trial's process as its worker sees it, and its implementation on the worker's own machine.

There it is forked from a server that has imported the trainable, and has a pipe to the worker.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any, Protocol

from halving.records.memory_kills import MemoryKills
from halving.trial.context import TrialContext
from halving.trial.messages import Granted, Message
from halving.trial_process.gang import run_gang
from halving.trial_process.guardian import Guardian
from halving.trial_process.main import run_trial
from resources.execution.chosen_gpus import run_with_gpus
from resources.execution.main_module import start_without_main
from resources.scheduling.assignment import Assignment
from resources.scheduling.termination import Termination
from resources.sweep_spec.requirements import AttemptResources, Resources

# For a trial's process to flush its points and end by itself when its worker has died.
_ORPHANED_SECONDS = 10.0
_END_SECONDS = 5.0  # for a process to end after the decision on its trial
_TERMINATED = (128 + signal.SIGTERM, -signal.SIGTERM)  # after it has saved a checkpoint, or before it could


class TrialProcess(Protocol):
    """What a worker does with the process of one attempt, wherever that runs."""

    def start(self) -> None:
        """Start the process, without waiting for it."""

    @property
    def alive(self) -> bool:
        """Whether it may still send a message; messages from before its end can be received later, too."""

    @property
    def started(self) -> bool:
        """Whether it has begun to run.

        A pod waits for a node and its image first, and a process on a shared machine for its GPUs.
        """

    @property
    def nodes(self) -> int:
        """The number of nodes on which it runs, once it has started."""

    @property
    def outgrown(self) -> bool:
        """Whether its trial could begin again with more nodes, and is to be given back for that."""

    def receive(self, timeout: float) -> Message | None:
        """Wait for its next message; None if none came within ``timeout`` seconds, or if it has ended."""

    def answer(self, granted: Granted) -> None:
        """Answer its message at a rung; this does nothing if it has ended meanwhile."""

    def ask_back(self) -> None:
        """Have it save a checkpoint at the end of its epoch, and end; call this until it has ended."""

    def terminate(self) -> None:
        """Have it save a checkpoint within its grace period, and end, also after :meth:`ask_back`."""

    def kill(self) -> None:
        """End it at once."""

    def termination(self) -> Termination:
        """Wait for its end; return why it ended without a last message."""

    def close(self) -> None:
        """End it, whatever it is doing, and clean up, after the decision on its trial."""


class TrialProcesses(Protocol):
    """Where a worker's trials run."""

    def prepare(self, assignment: Assignment, context: TrialContext) -> TrialProcess:
        """Make a process for an attempt, without starting it."""


class ForkServer:
    """Processes on this machine.

    Args:
        trainable: imported before the first trial is forked.
        resources: what trials may use.
        gpus: ids of the GPUs that the server sees, and its trials if they get no others; with None CUDA
            decides.
        deterministic: give the ``hash`` of the processes a fixed seed.
    """

    def __init__(
        self, trainable: str, resources: Resources, gpus: list[str] | None, *, deterministic: bool = False
    ) -> None:
        self._trainable = trainable
        self._resources = resources
        self._gpus = gpus
        # This comes before the fork server imports anything numeric, because BLAS and CUDA read the variables
        # once. So the rung with the most threads counts.
        widest = max(resources.by_rung.values(), key=lambda attempt: attempt.threads)
        os.environ.update(thread_limits(widest) | hash_seed(deterministic))
        # torch.cuda.is_available() at a trainable's top level must not start CUDA in the process that trials
        # fork from.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        # Until Python 3.13 the fork server ignores the sys.path that it is sent (python/cpython#117378), and
        # then silently preloads nothing; the variable does reach it.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._server = get_context("forkserver")
        imports = [
            "resources.execution.drop_credentials",
            "resources.execution.chosen_gpus",
            "halving.trial_process.main",
            trainable.partition(":")[0],
        ]
        if resources.largest.processes > 1:
            imports.append("halving.trial_process.preload_gang")
        imports.append("halving.trial_process.preload")  # It has to come after the modules that import torch.
        self._server.set_forkserver_preload(imports)

    def prepare(
        self, assignment: Assignment, context: TrialContext, gpus: list[str] | None = None
    ) -> "LocalProcess":
        """Make a process for an attempt, without starting it.

        Args:
            gpus: those that it sees; by default as many of the server's as its rung has.
        """
        ours, theirs = self._server.Pipe()
        attempt = self._resources.at(assignment.granted)
        if gpus is None and self._gpus is not None:
            gpus = self._gpus
            if attempt.gpus < self._resources.largest.gpus:
                gpus = gpus[: attempt.gpus]
        if gpus is not None:
            context = replace(context, provenance=_with_visible_gpus(gpus, context.provenance))
        main: Callable[..., None] = run_trial
        arguments: tuple[Any, ...] = (context, self._trainable, assignment.granted, theirs, attempt.threads)
        if attempt.processes > 1:
            main = run_gang
            arguments = (*arguments, attempt.processes)
        if gpus is not None:
            arguments = (gpus, main, *arguments)
            main = run_with_gpus
        # Not a daemon: those may have no children, and ranks and data loaders are children.
        process = self._server.Process(target=main, args=arguments, name=assignment.key, daemon=False)
        return LocalProcess(process, ours, theirs, self._gpus)


class LocalProcess:
    """A child of the fork server; it ends with its worker.

    Args:
        gpus_of_server: those that the fork server sees if it starts with this process, its first child.
    """

    def __init__(
        self, process: Any, ours: Connection, theirs: Connection, gpus_of_server: list[str] | None
    ) -> None:
        self._process = process
        self._ours = ours
        self._theirs = theirs
        self._gpus_of_server = gpus_of_server
        self._hung_up = self._is_asked_to_end = False
        self._memory = MemoryKills()

    def start(self) -> None:
        with _visible(self._gpus_of_server):
            start_without_main(self._process)
        _guardian().watch(self._process.pid)
        self._theirs.close()

    @property
    def alive(self) -> bool:
        return bool(self._process.is_alive())

    @property
    def started(self) -> bool:
        return self._process.pid is not None

    @property
    def nodes(self) -> int:
        return 1

    @property
    def outgrown(self) -> bool:
        return False

    def receive(self, timeout: float) -> Message | None:
        if self._process.pid is None:
            return None
        # The process itself is watched, too, because its children may keep the pipe open after its end.
        if self._hung_up:
            wait([self._process.sentinel], timeout)
            return None
        wait([self._process.sentinel, self._ours], timeout)
        try:
            if self._ours.poll():
                return self._ours.recv()
        except (EOFError, ConnectionResetError):
            self._hung_up = True
        return None

    def answer(self, granted: Granted) -> None:
        with suppress(OSError):
            self._ours.send(granted)

    def ask_back(self) -> None:
        self.terminate()  # The caller does not kill it after its grace period.

    def terminate(self) -> None:
        if not self._is_asked_to_end:
            # A second SIGTERM would keep it from ending its epoch.
            self._is_asked_to_end = True
            self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def termination(self) -> Termination:
        self._process.join()
        code = self._process.exitcode
        if code in _TERMINATED:
            return Termination("the trial's process was ended by SIGTERM", own_fault=False)
        if code is not None and code < 0:
            why = ""
            if code == -signal.SIGKILL:
                why = self._memory.reason()
            return Termination(
                f"the trial's process was killed by {signal.Signals(-code).name}{why}", own_fault=True
            )
        return Termination(
            f"the trial's process ended with exit code {code} and without a message", own_fault=True
        )

    def close(self) -> None:
        if self._process.pid and self.alive:
            self._process.terminate()
            self._process.join(_END_SECONDS)
        if self._process.pid and self.alive:
            self._process.kill()
            self._process.join()
        self._ours.close()


def thread_limits(resources: AttemptResources) -> dict[str, str]:
    """Environment variables that keep numeric libraries from using more cores than a rank has."""
    return {
        name: str(resources.threads)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }


def hash_seed(deterministic: bool) -> dict[str, str]:
    """The environment variable that gives sets of strings the same order in every process.

    Python reads it when it starts.
    """
    return {"PYTHONHASHSEED": "0"} if deterministic else {}


@cache
def _guardian() -> Guardian:
    """The guardian of this process, for as long as the process lives."""
    guardian = Guardian(_ORPHANED_SECONDS)
    Finalize(None, guardian.end, exitpriority=-1)  # once this process has waited for its trials
    return guardian


@contextmanager
def _visible(gpus: list[str] | None) -> Iterator[None]:
    """Let new processes see these GPUs while the block runs.

    Afterwards this process sees the machine's GPUs again, because they say how much room there is.
    """
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
        else:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def _with_visible_gpus(gpus: list[str], provenance: dict[str, Any]) -> dict[str, Any]:
    """A worker's provenance, with the GPUs that its trial sees."""
    hardware = provenance.get("hardware", {})
    visible = {**hardware.get("visible_gpus", {}), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    return {**provenance, "hardware": {**hardware, "visible_gpus": visible}}
