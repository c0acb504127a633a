"""Who may ask MLflow's API, and how refusals of the guard are answered there."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from server.identity.tokens import create_token
from server.mlflow.endpoints import ENDPOINTS
from server.settings import Settings
from tests.server.clients import client_of
from tests.server.mlflow.conftest import JSON, api_of

pytestmark = pytest.mark.usefixtures("without_services")

API = "/api/2.0/mlflow"


@pytest.mark.parametrize("prefix", ["/api/2.0", "/api/3.0", "/ajax-api/2.0", "/ajax-api/3.0"])
def test_without_a_token_nothing_is_answered_below_any_prefix(guarded: TestClient, prefix: str) -> None:
    for path in (
        "mlflow/experiments/search",
        "mlflow-artifacts/artifacts",
        "mlflow/nothing",
        "mlflow/server-info",
    ):
        answer = guarded.get(f"{prefix}/{path}")
        assert (answer.status_code, answer.json()["error_code"]) == (401, "UNAUTHENTICATED")


def test_health_and_version_need_none(guarded: TestClient) -> None:
    assert guarded.get("/health").text == "OK"
    assert guarded.get("/version").text.startswith("3.")


def test_who_may_read_searches_and_writes_nothing(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    headers = bearer("ada", scope="read")
    guarded.post(
        f"{API}/registered-models/create", json={"name": "net"}, headers=bearer("root", scope="write")
    )
    for path in ("runs/search", "experiments/search", "registered-models/get-latest-versions"):
        assert guarded.post(f"{API}/{path}", json={"name": "net"}, headers=headers).status_code == 200
        assert (
            guarded.post(f"/ajax-api/2.0/mlflow/{path}", json={"name": "net"}, headers=headers).status_code
            == 200
        )
    for path in ("runs/create", "runs/log-batch", "experiments/create"):
        answer = guarded.post(f"{API}/{path}", json={}, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED")


def test_a_token_of_some_projects_sees_no_others(
    guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    anybody = bearer("root", scope="write")
    ada = bearer("ada", scope="write", projects=["digits"])
    made = guarded.post(f"{API}/runs/create", json={"experiment_id": "0"}, headers=anybody).json()["run"][
        "info"
    ]["run_id"]
    of_made = {"experiment_id": "0", "source_run_id": made, "name": "net"}
    model = guarded.post(f"{API}/logged-models", json=of_made, headers=anybody).json()["model"]["info"][
        "model_id"
    ]
    experiment = guarded.post(f"{API}/experiments/create", json={"name": "digits"}, headers=ada).json()[
        "experiment_id"
    ]
    own = guarded.post(f"{API}/runs/create", json={"experiment_id": experiment}, headers=ada).json()["run"][
        "info"
    ]["run_id"]
    guarded.put(f"/api/2.0/mlflow-artifacts/artifacts/0/{made}/artifacts/a", content=b"x", headers=anybody)
    for method, path, fields in (
        ("POST", f"{API}/runs/create", {"experiment_id": "0"}),
        ("POST", f"{API}/runs/log-batch", {"run_id": made}),
        ("POST", f"{API}/runs/set-tag", {"run_id": made, "key": "a", "value": "b"}),
        ("POST", f"{API}/runs/delete", {"run_id": made}),
        ("POST", f"{API}/experiments/create", {"name": "letters"}),
        ("POST", f"{API}/experiments/delete", {"experiment_id": "0"}),
        (
            "POST",
            f"{API}/runs/log-metric",
            {"run_id": own, "key": "a", "value": 1, "timestamp": 1, "model_id": model},
        ),
        ("POST", f"{API}/experiments/update", {"experiment_id": experiment, "new_name": "letters"}),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/0/{made}/artifacts/a", {}),
        ("DELETE", f"/api/2.0/mlflow-artifacts/artifacts/0/{made}/artifacts/a", {}),
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/free", {}),
        ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/free", {}),
    ):
        answer = guarded.request(method, path, json=fields, headers=ada)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED"), path
    for path in (
        f"{API}/runs/get?run_id={made}",
        f"{API}/artifacts/list?run_id={made}",
        f"{API}/metrics/get-history?run_id={made}&metric_key=a",
        f"{API}/metrics/get-history-bulk-interval?run_ids={made}&metric_key=a",
        f"{API}/experiments/get?experiment_id=0",
        f"{API}/experiments/get-by-name?experiment_name=Default",
        f"/api/2.0/mlflow-artifacts/artifacts/0/{made}/artifacts/a",
        f"/api/2.0/mlflow-artifacts/artifacts?path=0/{made}/artifacts",
        "/api/2.0/mlflow-artifacts/artifacts",
        "/api/2.0/mlflow-artifacts/artifacts/free",
    ):
        assert guarded.get(path, headers=ada).status_code == 403, path
    assert guarded.post(f"{API}/runs/search", json={"experiment_ids": ["0"]}, headers=ada).json() == {}
    experiments = guarded.post(f"{API}/experiments/search", json={}, headers=ada).json()["experiments"]
    assert [row["name"] for row in experiments] == ["digits"]


_FIELDS: dict[str, Any] = {  # each endpoint takes what it knows, and passes over the rest
    "experiment_id": "0",
    "experiment_ids": ["0"],
    "experiment_name": "Default",
    "new_name": "other",
    "name": "Default",
    "key": "a",
    "value": "1.5",
    "timestamp": 1,
    "metric_key": "a",
    "model_json": '{"run_id": "", "artifact_path": "a", "flavors": {}, "utc_time_created": ""}',
    "tags": [{"key": "a", "value": "b"}],
    "version": "1",
    "alias": "best",
    "stage": "Production",
    "source": "s3://bucket/net",
}
_STATUS = {"runs/update": "FINISHED", "logged-models/{model_id}": "LOGGED_MODEL_READY"}


@pytest.fixture(scope="module")
def foreign(
    tmp_path_factory: pytest.TempPathFactory, catalog_file: Path, mlflow_grammar: None
) -> Iterator[tuple[TestClient, dict[str, dict[str, str]], str, str]]:
    """A server with tokens, and a run and a logged model that are not eve's.

    Gives a client, the headers of who may write anywhere, and those of eve, who may write in another project.
    """
    root = tmp_path_factory.mktemp("foreign")
    shutil.copy(catalog_file, root / "catalog.db")
    with (
        client_of(Settings(root=str(root), tokens=True)) as client,
        closing(Backend(root=str(root)).catalog) as catalog,
    ):
        tokens = {
            "anybody": create_token(catalog, "root", scope="write"),
            "eve": create_token(catalog, "eve", scope="write", projects=["digits"]),
        }
        headers = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}

        def make(path: str, **fields: Any) -> Any:
            answer = client.post(f"{API}/{path}", json=fields, headers=headers["anybody"])
            assert answer.is_success, answer.text
            return answer.json()

        run = make("runs/create", experiment_id="0")["run"]["info"]["run_id"]
        model = make("logged-models", experiment_id="0", source_run_id=run)["model"]["info"]["model_id"]
        make("registered-models/create", name="Default")
        make("model-versions/create", name="Default", source="s3://bucket/net")
        yield client, headers, run, model


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_no_endpoint_shows_or_changes_what_is_of_another_project(
    foreign: tuple[TestClient, dict[str, dict[str, str]], str, str], method: str, path: str
) -> None:
    client, headers, run, model = foreign
    fields = {**_FIELDS, "run_id": run, "run_ids": [run], "source_run_id": run, "status": _STATUS.get(path)}
    before = client.get(f"{API}/runs/get?run_id={run}", headers=headers["anybody"]).json()
    request: dict[str, Any] = (
        {"params": {name: value for name, value in fields.items() if name != "tags"}}
        if method == "GET"
        else {"json": fields}
    )
    answer = client.request(
        method, f"{API}/{path.format(model_id=model, tag_key='a')}", headers=headers["eve"], **request
    )
    if "search" in path:
        assert (answer.status_code, answer.json()) == (200, {})
    else:
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED"), answer.text
    assert client.get(f"{API}/runs/get?run_id={run}", headers=headers["anybody"]).json() == before


def test_a_compressed_body_is_refused_and_never_expanded(local: TestClient) -> None:
    """MLflow's clients send none, and its server reads none."""
    bomb = gzip.compress(b'{"run_id": "' + b"0" * 50_000_000)
    for body in (bomb, gzip.compress(json.dumps({"experiment_id": "0"}).encode())):
        answer = local.post(f"{API}/runs/create", content=body, headers={"Content-Encoding": "gzip", **JSON})
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


def test_a_body_that_is_too_large_is_refused_in_mlflows_form(local: TestClient) -> None:
    answer = local.post(f"{API}/runs/log-batch", content=b" " * 16_000_001)
    assert (answer.status_code, answer.json()["error_code"]) == (413, "BAD_REQUEST")
    chunked = local.post(f"{API}/runs/log-batch", content=(b" " * 1_000_000 for _ in range(17)))
    assert (chunked.status_code, chunked.json()["error_code"]) == (413, "BAD_REQUEST")


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}]
)
def test_a_body_that_is_not_said_to_be_json_is_refused(local: TestClient, headers: dict[str, str]) -> None:
    for path in (f"{API}/runs/create", f"{API}/runs/search"):
        answer = local.post(path, content=b'{"experiment_id": "0"}', headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
        assert "Content-Type" in answer.json()["message"]
    assert local.post(
        f"{API}/runs/create", content=b"{}", headers={"Content-Type": "application/json; charset=utf-8"}
    ).is_success


def test_a_page_of_another_site_changes_nothing(local: TestClient) -> None:
    answer = local.post(
        "/ajax-api/2.0/mlflow/runs/create", json={}, headers={"Origin": "https://elsewhere.example"}
    )
    assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED")


def test_what_was_deleted_is_in_the_write_log_each_time(local: TestClient) -> None:
    api = api_of(local)
    runs = [api("runs/create", experiment_id="0")["run"]["info"]["run_id"] for _ in range(2)]
    for run in runs:
        api("runs/delete", run_id=run)
    targets = [entry["target"] for entry in local.get("/api/v1/write-log").json()["entries"]]
    assert targets.count(f"{API}/runs/delete") == 2
