"""Sweeps that were searched, to be evaluated."""

from collections.abc import Callable
from typing import Any

import pytest

from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.execution.worker import TrialRunner, work
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec

Spec = Callable[..., SweepSpec]


@pytest.fixture
def search_sweep(backend: Backend, small_spec: Spec) -> Callable[..., str]:
    """Search a spec to its end in this process, and give the sweep."""

    def run(**changes: Any) -> str:
        spec = small_spec(**changes)
        snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        scheduler = Scheduler(
            backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
        )
        runner = TrialRunner(
            scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={}
        )
        work(scheduler, runner, lambda changed: None)
        return scheduler.id

    return run
