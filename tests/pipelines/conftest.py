"""Fixtures: a backend, its catalog and specs, a sweep that is open, and an instance of Dagster."""

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from tests.backends import *  # noqa: F403


@pytest.fixture
def open_scheduler(backend: Backend, small: Callable[..., dict[str, Any]]) -> Scheduler:
    """The scheduler of a new sweep of four trials that the sensors drive."""
    spec = parse_spec(small(max_trials=4))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    return Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="sensors", commit=None).id
    )


@pytest.fixture
def instance() -> Any:
    """Dagster's instance of this test alone."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        ephemeral.add_dynamic_partitions("trials", [])
        yield ephemeral
