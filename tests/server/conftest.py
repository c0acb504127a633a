"""The fixtures of a backend, its catalog and specs; and a server on it, without a socket."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from server.app import create_app
from server.settings import Settings
from tests.backends import *  # noqa: F403


@pytest.fixture
def client(either_backend: Backend) -> Iterator[TestClient]:
    """A server on an empty store, once on each database."""
    app = create_app(Settings(root=either_backend.root, catalog_url=either_backend.catalog_url))
    with TestClient(app, base_url="http://127.0.0.1:3001/api/v1") as client:
        yield client
    app.state.halving.loops.close()
    app.state.halving.catalog.close()
