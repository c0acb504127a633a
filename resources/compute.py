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
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from halving import Store, provenance
from halving.errors import InvalidInput
from halving.execute import Granted, ReachedRung, run_trial
from halving.functions import add_working_folder
from halving.trial import ObjectiveRule, TrialContext
from resources.assignment import Assignment, Superseded
from resources.attempt import Attempt
from resources.prefetch import Prefetch
from resources.scheduler import Scheduler
from resources.search import brain
from resources.spec import Resources, SweepSpec

_POLL_SECONDS = 0.2
_END_AFTER_SECONDS = 5.0

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
    with Prefetch(scheduler) as prefetch:
        while True:
            given = scheduler.next_work(worker)
            if isinstance(given, brain.Finish):
                return ran
            if isinstance(given, brain.Wait):
                time.sleep(_POLL_SECONDS)
                continue
            with prefetch.while_training():
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
        attempt = Attempt(self._scheduler, assignment, self._store)
        try:
            process.start()
            theirs.close()
            return self._attend(attempt, ours, process, on_change)
        except Superseded:
            return None
        except BaseException:
            # This worker is being stopped: the trial goes on elsewhere, from the checkpoint that it saves now.
            with _undisturbed(), suppress(Superseded):
                attempt.withdraw()
                if process.pid and attempt.last is None:
                    self._attend(attempt, ours, process, on_change)
            raise
        finally:
            attempt.close()
            _end(process)
            ours.close()

    def _attend(self, attempt: Attempt, connection: Connection, process: Any, on_change: Callable[[Assignment], None]) -> brain.Decision:
        while True:
            message = attempt.receive(connection, process)
            if attempt.last is not None:
                # Paused or complete already: what comes after the rung's decision does not change it.
                return attempt.last
            if not isinstance(message, ReachedRung):
                decision = attempt.ended(message, process)
                _tell(on_change, attempt.assignment)
                return decision
            decision = attempt.reached(message)
            going_on = isinstance(decision, brain.Continue) and not attempt.withdrawn
            granted = attempt.next_grant(message.epoch) if going_on else message.epoch
            with suppress(OSError):  # the process died while it waited: receive() will notice
                connection.send(Granted(granted, isinstance(decision, brain.Complete)))
            _tell(on_change, attempt.assignment)

    def _context(self, assignment: Assignment) -> TrialContext:
        name, digest = self._dataset
        return TrialContext(
            root=self._store.root,
            project=self._spec.name,
            run=assignment.key,
            attempt=assignment.attempt,
            params=assignment.params,
            seed=assignment.seed,
            objectives=tuple(
                ObjectiveRule(one.metric, summary=one.summary, window=one.window or 1, maximize=one.maximize)
                for one in self._spec.objectives
            ),
            bounded=tuple(self._spec.bounds),
            divergence={metric: (bounds.min, bounds.max) for metric, bounds in self._spec.divergence.items()},
            max_epochs=assignment.ladder[-1],
            grace_seconds=self._spec.resources.grace_seconds,
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


def _end(process: Any) -> None:
    """Leave no process behind, whatever it is at: its trial has been decided on."""
    if process.pid and process.is_alive():
        process.terminate()
        process.join(_END_AFTER_SECONDS)
    if process.pid and process.is_alive():
        process.kill()
        process.join()


def _tell(on_change: Callable[[Assignment], None], assignment: Assignment) -> None:
    """Tell of a decision; what goes wrong there is logged, for the decision stands and the training goes on."""
    try:
        on_change(assignment)
    except Exception:  # noqa: BLE001  # whatever Dagster's event log may raise
        _log.exception("could not tell Dagster about %s; it is told again when the sweep is evaluated", assignment.key)


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
