"""The fixtures of a backend, its catalog and specs; and servers on it, without a socket."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec import parse_spec
from server.identity.tokens import create_token
from server.mlflow.grammar import search_utils
from server.settings import Settings
from tests.backends import *  # noqa: F403
from tests.server.clients import ADDRESS, client_of
from tests.server.loops import Small


@pytest.fixture(scope="session")
def mlflow_grammar() -> None:
    """Imports MLflow's package before tests use MLflow's API, not in the server's thread beside a test.

    Its modules change the filters of warnings while they are imported, and so does pytest between any two
    steps. The filters are one list for all threads: each puts back what the other had, and a warning that the
    package ignores is an error, in the thread or in the test.
    """
    search_utils("SearchUtils")


@pytest.fixture
def client(either_backend: Backend) -> Iterator[TestClient]:
    """A client of the API on an empty store, once on each database."""
    with client_of(
        Settings(root=either_backend.root, catalog_url=either_backend.catalog_url), f"{ADDRESS}/api/v1"
    ) as client:
        yield client


@pytest.fixture
def local(backend: Backend) -> Iterator[TestClient]:
    """A client of a server that listens on this machine alone, and asks for no tokens."""
    with client_of(Settings(root=backend.store.root)) as client:
        yield client


@pytest.fixture
def guarded(backend: Backend) -> Iterator[TestClient]:
    """A client, without a token, of a server that asks for them."""
    with client_of(Settings(root=backend.store.root, tokens=True)) as client:
        yield client


@pytest.fixture
def bearer(backend: Backend) -> Callable[..., dict[str, str]]:
    """The header of a new token: ``bearer("ada", scope="write")``."""

    def make(name: str, **fields: object) -> dict[str, str]:
        return {"Authorization": f"Bearer {create_token(backend.catalog, name, **fields)}"}  # type: ignore[arg-type]

    return make


@pytest.fixture
def external(either_backend: Backend, small: Small) -> Small:
    """The small spec for external loops, on a snapshot that there is."""

    def spec(**changes: Any) -> dict[str, Any]:
        spec = small(**changes)
        snapshot = take_snapshot(either_backend.store, either_backend.catalog, parse_spec(spec).dataset)
        del spec["predictor"]
        return {**spec, "snapshot": snapshot.digest}

    return spec


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a server for what is refused, and so leaves nothing for another test to find."""
    with client_of(Settings(root=str(tmp_path_factory.mktemp("unchanged")))) as client:
        yield client
