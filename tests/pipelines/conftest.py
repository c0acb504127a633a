"""Fixtures: a backend, its catalog and specs, and one small sweep for all tests that only read one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from tests.backends import *  # noqa: F403
from tests.backends import SMALL
from tests.pipelines.shell import Shell, Swept


@pytest.fixture(scope="session")
def swept_lab(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """The small sweep, run once; a test that changes its store works on a copy."""
    shell = Shell(tmp_path_factory.mktemp("swept"))
    spec = Path(shell.spec(SMALL))
    spec.write_text(spec.read_text().replace("low: 0.0", "low: 1e-06"))
    return Swept(shell, spec, *shell.run("sweep", str(spec)))


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
