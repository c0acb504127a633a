"""MLflow's REST API as its clients call it, without a socket."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

Api = Callable[..., dict[str, Any]]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def _imported(mlflow_grammar: None) -> None:
    """Each test here may ask for something."""


@pytest.fixture
def without_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without the services that run beside requests.

    Where no test needs the index, nor models in the store, their threads take longest.
    """
    monkeypatch.setattr("server.app.SERVICES", [])


def api_of(client: TestClient) -> Api:
    """Calls an endpoint: ``api("runs/create", experiment_id="0")``; fails unless it is ``answered``."""

    def call(endpoint: str, method: str = "POST", /, *, answered: int = 200, **fields: Any) -> dict[str, Any]:
        sent: dict[str, Any] = (
            {"params": fields} if method == "GET" else {"content": json.dumps(fields), "headers": JSON}
        )
        answer = client.request(method, f"http://127.0.0.1:3001/api/2.0/mlflow/{endpoint}", **sent)
        assert answer.status_code == answered, answer.text
        content: dict[str, Any] = answer.json()
        return content

    return call


@pytest.fixture
def api(client: TestClient) -> Api:
    """On an empty store, once on each database."""
    return api_of(client)


@pytest.fixture
def run(api: Api) -> str:
    """The id of a new run."""
    return str(api("runs/create", experiment_id="0", start_time=1_700_000_000_000)["run"]["info"]["run_id"])


@pytest.fixture
def model(api: Api) -> str:
    """The name of a new registered model."""
    name = "My model"
    api(
        "registered-models/create",
        name=name,
        description="of digits",
        tags=[{"key": "team", "value": "vision"}],
    )
    return name


@pytest.fixture
def source(run: str) -> str:
    """The address of a model among the new run's artifacts."""
    return f"mlflow-artifacts:/0/{run}/artifacts/model"
