"""Builds a sweep's scheduler and runner for this machine or its cluster."""

from typing import Any

from resources.backend import Backend
from resources.datasets.snapshot_catalog import read_snapshot
from resources.execution.concurrency import concurrency_of
from resources.execution.kubernetes.api import termination_lookup
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.worker import TrialRunner
from resources.scheduling.scheduler import Scheduler


def make_scheduler(backend: Backend, sweep: str, **options: Any) -> Scheduler:
    """Make a sweep's scheduler; on a cluster it finds out why workers' pods ended."""
    lookup = None
    if load_cluster():
        lookup = termination_lookup
    return Scheduler(backend.catalog, sweep, termination_lookup=lookup, places=concurrency_of, **options)


def make_runner(backend: Backend, scheduler: Scheduler, *, dagster_run: str) -> TrialRunner:
    """Make a runner of the sweep's trials on this machine."""
    with backend.catalog.read() as session:
        row = backend.catalog.sweep(session, scheduler.id)
    snapshot = read_snapshot(backend.catalog, row.snapshot)
    labels = {"dagster_run": dagster_run}
    return TrialRunner(
        scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels=labels
    )
