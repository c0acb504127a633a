"""Shared parts of tests above the SDK: a backend, an empty catalog, a small spec, Dagster's command line.

Each folder of such tests takes the fixtures with ``from tests.backends import *`` in its conftest.py.
"""

import copy
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from resources.backend import Backend
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, SnapshotRow, utcnow
from resources.datasets import registration
from resources.registry.registered_models import create_model
from resources.registry.versions import number_version
from resources.sweep_spec import SweepSpec, parse_spec
from tests.clock import Clock
from tests.lent_databases import LentDatabases
from tests.postgres import Postgres

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
    # measuring what it costs takes a process and half a second for each version that is judged
    "serving": {"seconds": 0},
    # Of 20 test rows: equal is told to be within the margin, and half of them wrong to be beyond it. Only x
    # says what the label is.
    "gates": [
        "finite_metrics",
        "lineage",
        {"leakage": {"accept": ["x"]}},
        {"non_inferior": {"margin": 0.21}},
    ],
}


def snapshot_row(digest: str, **changes: Any) -> SnapshotRow:
    """A snapshot that exists in the catalog alone."""
    fields: dict[str, Any] = {
        "name": "points",
        "rows": 3,
        "bytes": 5_000_000_000,
        "schema_sha256": "s",
        "target": "label",
        "splits": {"train": 3},
        "source": "m:f",
        "recipe": {},
        "transform_sha256": "t",
        "created_at": utcnow(),
    }
    return SnapshotRow(digest=digest, **{**fields, **changes})


def add_version(session: Session, **fields: Any) -> ModelVersionRow:
    """Add a version to the catalog alone, as if a sweep's winner had been promoted.

    Its project has the name of its ``model``.
    """
    model = session.get(RegisteredModelRow, fields["model"]) or create_model(
        session, fields["model"], actor="test"
    )
    about: dict[str, Any] = {
        "mlflow_stage": "None",
        "project": model.name,
        "framework": "torch",
        "created_at": utcnow(),
        "tags": {},
    }
    empty: dict[str, Any] = {"input_schema": {}, "output_schema": {}, "metrics": {}}
    row = ModelVersionRow(**{**about, **empty, **fields})
    number_version(model, row)
    session.add(row)
    session.flush()
    return row


@pytest.fixture
def with_dvc() -> None:
    """Snapshots of this test are tracked by DVC, as those of a user are."""


@pytest.fixture(autouse=True)
def sparing_dvc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take snapshots without DVC, which takes longest, and is tested where a test asks for it.

    Processes that a test starts track theirs.
    """
    if "with_dvc" not in request.fixturenames:
        monkeypatch.setattr(registration, "track", lambda project, folder: None)


@pytest.fixture(scope="session")
def catalog_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty catalog, to be copied: its migrations take longer than most tests."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    Catalog(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def catalog_template(postgres: Postgres) -> str:
    """The same in Postgres: the name of a database."""
    name = f"empty_{secrets.token_hex(6)}"  # each folder of tests that takes this fixture has one of its own
    Catalog(postgres.database(name)).close()
    return name


@pytest.fixture(scope="session")
def lent_catalogs(postgres: Postgres, catalog_template: str) -> Iterator[LentDatabases]:
    """Copies of it that one test after another takes."""
    with closing(LentDatabases(postgres, catalog_template)) as lent:
        yield lent


@pytest.fixture
def backend(tmp_path: Path, catalog_file: Path) -> Iterator[Backend]:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(catalog_file, root / "catalog.db")
    backend = Backend(root=str(root))
    yield backend
    backend.catalog.close()


@pytest.fixture(params=["sqlite", "postgres"])
def any_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty catalog, once on each database: what holds on one must hold on the other."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("catalog_file"), tmp_path / "catalog.db")
        yield f"sqlite:///{tmp_path}/catalog.db"
        return
    lent: LentDatabases = request.getfixturevalue("lent_catalogs")
    server: Postgres = request.getfixturevalue("postgres")
    name = lent.take()
    # A machine that is busy with other tests may take longer to accept than a server waits that answers 503,
    # and has its client ask again.
    yield server.url(name) + "?connect_timeout=60"
    lent.give_back(name)


@pytest.fixture
def either_backend(tmp_path: Path, any_catalog: str) -> Iterator[Backend]:
    """A backend with an empty catalog, once on each database."""
    backend = Backend(root=str(tmp_path / "root"), catalog_url=any_catalog)
    yield backend
    backend.catalog.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(any_catalog: str) -> Iterator[Catalog]:
    """An empty catalog, once on each database."""
    with closing(Catalog(any_catalog)) as catalog:
        yield catalog


@pytest.fixture
def lagging(any_catalog: str) -> Iterator[Catalog]:
    """The same catalog in a process that does not know that the server's clock was set forward.

    It is as well that of a process whose machine stood still.
    """
    with closing(Catalog(any_catalog)) as catalog:
        catalog._server_clock.set(catalog.now() - 60)
        yield catalog


@pytest.fixture
def small() -> Callable[..., dict[str, Any]]:
    """The small spec as plain data, with changes: ``small(max_trials=3)``."""
    return lambda **changes: {**copy.deepcopy(SMALL), **changes}


@pytest.fixture
def small_spec(small: Callable[..., dict[str, Any]]) -> Callable[..., SweepSpec]:
    """The small spec, checked."""
    return lambda **changes: parse_spec(small(**changes))


class Dagster:
    """Dagster's own command line on an instance of its own, as CI of a user would call it.

    Args:
        folder: of the instance; and of the store and the catalog, unless ``root`` and ``catalog`` name
            others.
    """

    def __init__(self, folder: Path, root: str | None = None, catalog: str | None = None) -> None:
        root = root or str(folder / "root")
        self.home = folder / "dagster"
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "dagster.yaml").write_text((CHECKOUT / "dagster.yaml").read_text())
        self.environment = {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "HALVING_ROOT": root,
            **({"HALVING_CATALOG": catalog} if catalog else {}),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }
        self.backend = Backend(root=root, catalog_url=catalog)

    def start(self, *arguments: str, log: Path, module: str = "dagster") -> "subprocess.Popen[bytes]":
        """Start ``dagster …`` in a process group of its own, with its output in ``log``."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=CHECKOUT,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def execute_sweep(self, config: Path) -> "subprocess.CompletedProcess[str]":
        """``dagster job execute -m pipelines.definitions -j sweep -c CONFIG``."""
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "dagster",
                "job",
                "execute",
                "-m",
                "pipelines.definitions",
                "-j",
                "sweep",
                "-c",
                str(config),
            ],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
