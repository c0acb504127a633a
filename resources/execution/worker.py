"""Workers, which pull trials and run each attempt in a process of its own, on this machine or in a pod.

The worker renews the lease, asks the scheduler for decisions on the trial's behalf, and finds out why its
process ended. So a trainable may leak memory, crash or be killed without harm to the worker. It has no
credentials but the store's.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from halving import Store
from halving.errors import NotFound
from halving.records import provenance
from halving.records.run_record import RunRecords
from halving.trial.context import ObjectiveRule, TrialContext
from halving.trial.import_string import add_working_folder, source_digest
from resources.execution.attempt_loop import AttemptLoop
from resources.execution.gpu_processes import GpuProcesses
from resources.execution.held_gpus import HeldGpus
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pod_processes import PodProcesses
from resources.execution.local_processes import ForkServer, TrialProcesses
from resources.execution.machine import needs_cluster, too_few, visible_gpus
from resources.execution.signals import Sigterm
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.scheduler import HeldBack, Scheduler
from resources.scheduling.suggestion_prefetch import Prefetch
from resources.search.decide import Decision, Finish, Wait

_POLL_SECONDS = 0.2
_HELD_BACK_SECONDS = 1.0


def worker_name() -> str:
    """This process's name in the catalog and in logs, ``HOST:PROCESS``."""
    return f"{socket.gethostname()}:{os.getpid()}"


def work(scheduler: Scheduler, runner: "TrialRunner", on_change: Callable[[Assignment], None]) -> int:
    """Pull trials and run them until the search is over; return how many attempts ran here.

    Args:
        on_change: is called after every decision about a trial.
    """
    worker = worker_name()
    ran = 0
    with Prefetch(scheduler) as prefetch:
        while True:
            answer = scheduler.next_work(worker)
            if isinstance(answer, Finish):
                return ran
            if isinstance(answer, HeldBack):
                time.sleep(_HELD_BACK_SECONDS)
                continue
            if isinstance(answer, Wait):
                time.sleep(_POLL_SECONDS)
                continue
            with prefetch.while_training():
                runner.run(answer, on_change)
            ran += 1


class TrialRunner:
    """Runs attempts at the trials of one sweep, one at a time.

    Args:
        scheduler: makes the sweep's decisions.
        store: the one that trials write to.
        dataset_name, dataset_digest: of the snapshot that trials train on.
        labels: recorded with every run, for example Dagster's run id.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        *,
        dataset_name: str,
        dataset_digest: str,
        labels: dict[str, Any],
    ) -> None:
        add_working_folder()
        self._scheduler = scheduler
        self._store = store
        self._spec = scheduler.spec
        self._dataset = (dataset_name, dataset_digest)
        source: str | None = None
        if not self._spec.image:
            source = source_digest(self._spec.trained_by)
        self._labels = {**labels, "trainable": self._spec.trained_by, "trainable_sha256": source}
        self._processes = _processes(scheduler, store)
        self._provenance: dict[str, Any] = {"image": self._spec.image}
        if not self._spec.image:
            self._provenance = provenance.capture(store)

    def run(self, assignment: Assignment, on_change: Callable[[Assignment], None]) -> Decision | None:
        """Run one attempt until its trial pauses, ends or fails.

        Returns:
            The last decision; None if another attempt has taken the trial over.
        """
        try:
            context = self._context(assignment)
        except NotFound as error:
            # The checkpoint that the trial starts from is gone, and will be gone the next time, too.
            return self._give_up(assignment, str(error), on_change)
        with Sigterm() as sigterm:
            process = self._processes.prepare(assignment, context)
            return AttemptLoop(self._scheduler, self._store, assignment, process, on_change).run(
                worker_name(), sigterm
            )

    def _give_up(
        self, assignment: Assignment, error: str, on_change: Callable[[Assignment], None]
    ) -> Decision | None:
        with suppress(Superseded):
            decision = self._scheduler.report_failure(assignment, error, 0.0, None)
            on_change(assignment)
            return decision
        return None

    def _context(self, assignment: Assignment) -> TrialContext:
        name, digest = self._dataset
        parent = {
            **self._labels,
            "sweep": assignment.sweep,
            "trial": assignment.trial,
            "dataset": name,
            "snapshot": digest,
            "spec": self._spec.digest,
        }
        if self._spec.restored_from:
            parent["restored_from"] = self._spec.restored_from.model_dump()
        if assignment.final is not None:
            parent["final"] = assignment.final
        return TrialContext(
            root=self._store.root,
            project=self._spec.project,
            run=assignment.key,
            attempt=assignment.attempt,
            params=assignment.params,
            seed=assignment.seed,
            objectives=tuple(
                ObjectiveRule(
                    objective.metric,
                    summary=objective.summary,
                    window=objective.window or 1,
                    maximize=objective.maximize,
                )
                for objective in self._spec.objectives
            ),
            bounded=tuple(self._spec.bounds),
            divergence={metric: (bounds.min, bounds.max) for metric, bounds in self._spec.divergence.items()},
            max_epochs=assignment.ladder[-1],
            grace_seconds=self._spec.resources.grace_seconds,
            dataset_name=name,
            dataset_digest=digest,
            train_on=self._spec.train_on(assignment.final),
            deterministic=bool(self._spec.deterministic),
            parent=parent,
            provenance=self._provenance,
            start_from=self._start_from(assignment),
            resources=self._spec.resources.at(assignment.granted).model_dump(mode="json"),
        )

    def _start_from(self, assignment: Assignment) -> dict[str, Any] | None:
        """The checkpoint of another run that the trial starts from.

        Returns:
            None if the trial starts from nothing, or from a checkpoint of its own.

        Raises:
            NotFound: the other run does not have the checkpoint, or not any more.
        """
        restored = self._spec.restored_from
        if (
            restored is None
            or RunRecords(self._store, self._spec.project, assignment.key).latest_checkpoint()
        ):
            return None
        for saved in reversed(RunRecords(self._store, restored.project, restored.run).checkpoints()):
            if (saved.epoch, saved.digest) == (restored.epoch, restored.checkpoint) and self._store.has_blob(
                saved.digest
            ):
                return saved._asdict()
        raise NotFound(
            f"the checkpoint {restored.checkpoint} of epoch {restored.epoch} of "
            f"{restored.project}/{restored.run} is gone"
        )


def _processes(scheduler: Scheduler, store: Store) -> TrialProcesses:
    """The place where this worker's trials run: this machine, its shared GPUs, or pods."""
    spec = scheduler.spec
    cluster = load_cluster()
    if spec.image is not None:
        if cluster is None:
            raise needs_cluster(spec.image)
        return PodProcesses(cluster, scheduler, store)
    devices = visible_gpus()
    needed = spec.resources.largest.gpus
    visible: list[str] | None = devices or None  # A worker in a pod has all GPUs of that pod.
    if devices and cluster is None:  # On a machine that others use, a trial sees only its own.
        visible = devices[:needed]
    server = ForkServer(spec.trained_by, spec.resources, visible, deterministic=bool(spec.deterministic))
    if cluster is not None or not needed:
        return server
    if len(devices) < needed:
        raise too_few("gpus", str(spec.resources.gpus), str(len(devices)))
    return GpuProcesses(server, HeldGpus(scheduler.catalog, devices), scheduler)
