"""Where trials run: each attempt in a process of its own, forked from one that has imported the trainable already.

The worker that owns the process keeps the lease alive, asks the scheduler for decisions on the trial's behalf, and
notices its death. So a trainable may leak, crash or be killed without touching the worker, and holds no credential
but the store's.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from halving import Store, provenance
from halving.errors import InvalidInput
from halving.execute import Granted, Raised, ReachedRung, ReturnedEarly, run_trial
from halving.functions import add_working_folder
from halving.trial import TrialContext
from resources.scheduler import HEARTBEAT_SECONDS, Assignment, Scheduler, Superseded
from resources.search import brain
from resources.spec import Resources, SweepSpec

_POLL_SECONDS = 0.2
_KILL_AFTER_SECONDS = 5.0
_END_WITHIN_SECONDS = 60.0  # after its trial was paused or completed, a process may take this long to end
_PATIENCE_SECONDS = 300.0  # how long a decision waits for a database that is away

_log = logging.getLogger(__name__)


def local_concurrency(spec: SweepSpec) -> int:
    """How many trials this machine runs at a time: what the spec asks for, within its cores and GPUs.

    Raises:
        InvalidInput: one trial alone needs more than the machine has.
    """
    cpus, gpus = os.cpu_count() or 1, len(visible_gpus())
    if spec.resources.gpus > gpus:
        raise InvalidInput(f"resources.gpus = {spec.resources.gpus} is not accepted here: this machine has {gpus}")
    if spec.resources.cpus > cpus:
        raise InvalidInput(f"resources.cpus = {spec.resources.cpus} is not accepted here: this machine has {cpus}")
    room = cpus // spec.resources.cpus
    if spec.resources.gpus:
        room = min(room, gpus // spec.resources.gpus)
    return min(spec.concurrency, room) if spec.concurrency else room


def visible_gpus() -> list[str]:
    """Ids of the GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode().split() if done.returncode == 0 else []


def worker_name() -> str:
    """This process, as the catalog and the logs name it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def work(scheduler: Scheduler, runner: "TrialRunner", on_change: Callable[[Assignment], None]) -> int:
    """Pull trials and run them until the search is over; give how many attempts were run here.

    ``on_change`` is called after every decision about a trial.
    """
    worker, ran = worker_name(), 0
    while True:
        given = scheduler.next_work(worker)
        if isinstance(given, brain.Finish):
            return ran
        if isinstance(given, brain.Wait):
            time.sleep(_POLL_SECONDS)
            continue
        runner.run(given, on_change)
        ran += 1


class TrialRunner:
    """Runs attempts at the trials of one sweep, one at a time.

    Args:
        scheduler: the sweep's decisions.
        store: where trials write.
        dataset_name, dataset_digest: the snapshot that trials train on.
        labels: recorded with every run, for example Dagster's run id.
        slot: this worker's place on the machine, from 0: decides which GPUs its trials see.
    """

    def __init__(
        self, scheduler: Scheduler, store: Store, *, dataset_name: str, dataset_digest: str, labels: dict[str, Any], slot: int = 0
    ) -> None:
        add_working_folder()
        self._scheduler, self._store, self._spec = scheduler, store, scheduler.spec
        self._dataset = (dataset_name, dataset_digest)
        self._labels = {**labels, "trainable": self._spec.trainable, "trainable_sha256": _source_digest(self._spec.trainable)}
        # Before anything numeric is imported by the fork server: BLAS and CUDA read these once.
        os.environ.update(_environment(self._spec.resources, slot))
        self._provenance = provenance.capture(store)
        self._processes = _warm_processes(self._spec.trainable)

    def run(self, assignment: Assignment, on_change: Callable[[Assignment], None]) -> brain.Decision | None:
        """Run one attempt until its trial pauses, ends or fails; None when another attempt took the trial over."""
        ours, theirs = self._processes.Pipe()
        arguments = (self._context(assignment), self._spec.trainable, assignment.granted, theirs, self._spec.resources.cpus)
        # Not a daemon: those may have no children, and data loaders are children.
        process = self._processes.Process(target=run_trial, args=arguments, name=assignment.key, daemon=False)
        watch = _Watch(self._scheduler, assignment)
        try:
            process.start()
            theirs.close()
            return self._attend(watch, ours, process, on_change)
        except Superseded:
            return None
        except BaseException:
            # This worker is being stopped: the trial goes on elsewhere, from its checkpoint.
            with _undisturbed():
                self._stop(process)
                watch.released()
            raise
        finally:
            watch.close()
            self._stop(process)
            ours.close()

    def _attend(self, watch: "_Watch", connection: Connection, process: Any, on_change: Callable[[Assignment], None]) -> brain.Decision:
        while True:
            message = watch.receive(connection, process)
            if watch.last is not None:
                # Paused or complete already: what comes after the rung's decision does not change it.
                return watch.last
            if not isinstance(message, ReachedRung):
                decision = watch.ended(message, process)
                _tell(on_change, watch.assignment)
                return decision
            decision = watch.reached(message)
            going_on = isinstance(decision, brain.Continue)
            granted = watch.next_grant(message.epoch) if going_on else message.epoch
            with suppress(OSError):  # the process died while it waited: receive() will notice
                connection.send(Granted(granted, isinstance(decision, brain.Complete)))
            _tell(on_change, watch.assignment)

    def _context(self, assignment: Assignment) -> TrialContext:
        name, digest = self._dataset
        return TrialContext(
            root=self._store.root,
            project=self._spec.name,
            run=assignment.key,
            attempt=assignment.attempt,
            params=assignment.params,
            seed=assignment.seed,
            objective=self._spec.objective.metric,
            dataset_name=name,
            dataset_digest=digest,
            parent={
                **self._labels,
                "sweep": assignment.sweep,
                "trial": assignment.trial,
                "dataset": name,
                "snapshot": digest,
                "spec": self._spec.digest,
            },
            provenance=self._provenance,
        )

    @staticmethod
    def _stop(process: Any) -> None:
        if process.pid and process.is_alive():
            process.terminate()
            process.join(_KILL_AFTER_SECONDS)
        if process.pid and process.is_alive():
            process.kill()
            process.join()


class _Watch:
    """One attempt seen from its worker: the lease, the clock, and the reports to the scheduler.

    A thread of its own renews the lease, so that nothing which takes long (importing a trainable, Dagster's event log)
    makes a living attempt look lost.
    """

    def __init__(self, scheduler: Scheduler, assignment: Assignment) -> None:
        self.assignment, self._scheduler = assignment, scheduler
        self.last: brain.Decision | None = None  # the decision that ended the attempt
        self._since = time.monotonic()
        self._superseded: Superseded | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._beat, name=f"halving-lease-{assignment.key}", daemon=True).start()

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
            try:
                if connection.poll():
                    return connection.recv()
            except (EOFError, ConnectionResetError):
                return None
            if not alive or (self.last is not None and time.monotonic() > patience):
                return None

    def reached(self, message: ReachedRung) -> brain.Decision:
        seconds = self._lap()
        decision = _patiently(self._scheduler.reached, self.assignment, message.value, message.checkpoint, seconds, message.epoch)
        if not isinstance(decision, brain.Continue):
            self.last = decision
        return decision

    def next_grant(self, epoch: int) -> int:
        return next(budget for budget in self._scheduler.rules.budgets if budget > epoch)

    def ended(self, message: Any, process: Any) -> brain.Decision:
        self.last = self._ending(message, process)
        return self.last

    def _ending(self, message: Any, process: Any) -> brain.Decision:
        given, seconds = self.assignment, self._lap()
        if isinstance(message, ReturnedEarly):
            return _patiently(self._scheduler.returned, given, message.value, message.checkpoint, seconds, message.epoch)
        if isinstance(message, Raised) and message.final:
            return _patiently(self._scheduler.failed, given, message.error, seconds, message.checkpoint)
        if isinstance(message, Raised):
            return _patiently(self._scheduler.crashed, given, message.error, seconds)
        process.join()
        return _patiently(self._scheduler.crashed, given, _death(process.exitcode), seconds)

    def released(self) -> None:
        if self.last is None and self._superseded is None:
            with suppress(Superseded):
                self._scheduler.released(self.assignment, self._lap())

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS):
            try:
                self._scheduler.heartbeat(self.assignment)
            except Superseded as superseded:
                self._superseded = superseded
                return
            except DBAPIError as error:  # the database is away for a moment: training goes on, the next beat may arrive
                _log.warning("no heartbeat for %s: %s", self.assignment.key, error)

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        return seconds


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let nothing interrupt what must still be done: Ctrl-C comes twice, from the terminal and from Dagster."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _tell(on_change: Callable[[Assignment], None], assignment: Assignment) -> None:
    """Tell of a decision; what goes wrong there is logged, for the decision stands and the training goes on."""
    try:
        on_change(assignment)
    except Exception:  # noqa: BLE001  # whatever Dagster's event log may raise
        _log.exception("could not tell Dagster about %s; it is told again when the sweep is evaluated", assignment.key)


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


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = "; often the machine ran out of memory" if name == "SIGKILL" else ""
        return f"the trial's process was killed by {name}{hint}"
    return f"the trial's process ended with exit code {code} and said nothing"


def _environment(resources: Resources, slot: int) -> dict[str, str]:
    environment = {name: str(resources.cpus) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    # torch.cuda.is_available() at a trainable's top level must not start CUDA in the process that trials fork from.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    gpus = visible_gpus()
    mine = gpus[slot * resources.gpus : (slot + 1) * resources.gpus]
    return {**environment, "CUDA_VISIBLE_DEVICES": ",".join(mine)} if gpus else environment


def _warm_processes(trainable: str) -> ForkServerContext:
    """A fork server that has imported the trainable's module, so that a trial starts in milliseconds."""
    # Until Python 3.13 the fork server ignores the sys.path that it is sent (python/cpython#117378), and then silently
    # imports nothing ahead; the variable does reach it.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", "halving.execute", trainable.partition(":")[0], "halving.preload"])
    return context


def _source_digest(trainable: str) -> str | None:
    found = find_spec(trainable.partition(":")[0])
    return sha256(Path(found.origin).read_bytes()).hexdigest() if found and found.origin else None
