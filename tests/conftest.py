"""What several test files stand on: a lab in a temporary folder, and a small valid spec."""

import copy
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resources.catalog import SnapshotRow, utcnow
from resources.lab import Lab
from resources.spec import SweepSpec, parse_spec
from tests.postgres import INSTALLED, Postgres

CHECKOUT = Path(__file__).parent.parent

SMALL: dict[str, Any] = {
    "name": "small",
    "trainable": "tests.trainables:train",
    "predictor": "tests.trainables:predict",
    "dataset": {"name": "points", "source": "tests.trainables:data", "target": "label"},
    "objective": {"metric": "score", "direction": "maximize"},
    "space": {"x": {"float": {"low": 0.0, "high": 1.0}}},
    "strategy": {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9, "reduction_factor": 3}},
    "max_trials": 9,
    "concurrency": 2,
    "max_retries": 1,
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(root=str(tmp_path / "root"))
    yield lab
    lab.catalog.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    # Not below pytest's own folder, which only root may enter.
    folder = Path(tempfile.mkdtemp(prefix="halving-postgres-"))
    server = Postgres(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


_NEEDS_POSTGRES = pytest.mark.skipif(not INSTALLED, reason="needs Postgres' initdb: apt-get install postgresql")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=_NEEDS_POSTGRES)])
def any_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty catalog, once on each database: what holds on one must hold on the other."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database(f"t{secrets.token_hex(6)}")


def snapshot_row(digest: str, **changes: Any) -> SnapshotRow:
    """A snapshot that exists in the catalog alone."""
    given: dict[str, Any] = {
        "name": "points",
        "rows": 3,
        "bytes": 5_000_000_000,
        "schema_sha256": "s",
        "target": "label",
        "splits": {"train": 3},
        "source": "m:f",
        "transform_sha256": "t",
        "created_at": utcnow(),
    }
    return SnapshotRow(digest=digest, **{**given, **changes})


@pytest.fixture
def small() -> Callable[..., dict[str, Any]]:
    """The small spec as plain data, with changes: ``small(max_trials=3)``."""
    return lambda **changes: {**copy.deepcopy(SMALL), **changes}


@pytest.fixture
def small_spec(small: Callable[..., dict[str, Any]]) -> Callable[..., SweepSpec]:
    """The small spec, checked."""
    return lambda **changes: parse_spec(small(**changes))


class Dagster:
    """Dagster's own command line on an instance of its own, as CI of a user would call it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "dagster"
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "dagster.yaml").write_text((CHECKOUT / "dagster.yaml").read_text())
        self.environment = {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "HALVING_ROOT": str(folder / "root"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }
        self.lab = Lab(root=str(folder / "root"))

    def start(self, *arguments: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start ``dagster …`` in a process group of its own, its output in ``log``."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "dagster", *arguments],
                cwd=CHECKOUT,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def execute_sweep(self, config: Path) -> "subprocess.CompletedProcess[str]":
        """``dagster job execute -m pipelines.definitions -j sweep -c CONFIG``."""
        return subprocess.run(
            [sys.executable, "-m", "dagster", "job", "execute", "-m", "pipelines.definitions", "-j", "sweep", "-c", str(config)],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
