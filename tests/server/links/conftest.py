"""A server that asks for tokens, on a store with something of everything, and links to it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import halving
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server.identity.tokens import create_token
from server.settings import Settings
from tests.backends import *  # noqa: F403
from tests.backends import SMALL
from tests.server.clients import client_of
from tests.server.registry import promote_winner

REPORT = b"<!doctype html><title>report</title><script>1</script>"


@dataclass(frozen=True)
class Place:
    """A server with two projects.

    Attributes:
        client: without a token.
        sweep, other: finished sweeps with reports, of the projects ``mine`` and ``other``.
        header: the header of a new token: ``header("ada", scope="write")``.
    """

    backend: Backend
    client: TestClient
    sweep: str
    other: str
    header: Callable[..., dict[str, str]]

    def create(self, header: dict[str, str], **body: Any) -> dict[str, Any]:
        """A link, as the API answers who makes it."""
        answer = self.client.post("/api/v1/links", json=body, headers=header)
        assert answer.status_code == 201, answer.text
        link: dict[str, Any] = answer.json()
        return link


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A store to be copied, and its sweeps: to make it takes longer than most tests."""
    root = tmp_path_factory.mktemp("furnished") / "root"
    backend = Backend(root=str(root))
    mine, other = (
        promote_winner(
            backend, parse_spec({**SMALL, "name": name, "max_trials": 2}), page=REPORT, curves=True
        ).sweep
        for name in ("mine", "other")
    )
    for project in ("mine", "other"):
        run = halving.init(project, {"lr": 0.1}, root, id="a", system_metrics=None)
        run.log({"loss": 0.5}, step=1)
        run.finish()
    Refresher(backend.store, backend.catalog).refresh()
    backend.catalog.close()
    return root, mine, other


@pytest.fixture
def place(
    tmp_path: Path, furnished: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    root, mine, other = furnished
    # The services beside requests take longest, and no test here needs them.
    monkeypatch.setattr("server.app.SERVICES", [])
    backend = Backend(root=str(shutil.copytree(root, tmp_path / "root")))

    def header(name: str, **fields: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {create_token(backend.catalog, name, **fields)}"}

    with client_of(Settings(root=backend.store.root, tokens=True)) as client:
        yield Place(backend, client, mine, other, header)
    backend.catalog.close()
