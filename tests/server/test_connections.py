"""No request holds a connection to the catalog while it waits for another.

Requests that come together would wait for each other.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.catalog import catalog as catalog_module
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec import parse_spec
from server.app import create_app
from server.identity.tokens import create_token
from server.mlflow.endpoints import ENDPOINTS
from server.settings import Settings
from tests.server.clients import ADDRESS
from tests.server.registry import promote_winner

Small = Callable[..., dict[str, Any]]
V1 = "/api/v1"
STUDY = "/hpo/studies/{study}"
TRIAL = "/hpo/studies/{study}/trials/{number}"
RUN = "/training-runs/{project}/{run}"
MAX_SECONDS = 5.0  # seconds; nobody else asks, so whoever waits for a connection waits for themselves


@pytest.fixture
def lonely(either_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client of a server with one catalog connection; nothing runs beside its requests."""

    def with_one_connection(*arguments: Any, **options: Any) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(
            *arguments, **{**options, "pool_size": 1, "max_overflow": 0, "pool_timeout": MAX_SECONDS}
        )

    either_backend.catalog.upgrade()  # which takes two
    monkeypatch.setattr(catalog_module, "create_engine", with_one_connection)
    app = create_app(Settings(root=either_backend.root, catalog_url=either_backend.catalog_url, tokens=True))
    yield TestClient(app, base_url=ADDRESS)
    app.state.halving.close()


class Requests:
    """Sends requests with a token, and keeps which routes have answered."""

    def __init__(self, client: TestClient) -> None:
        self._client = client
        self.token = ""
        self.answered: set[tuple[str, str]] = set()

    def __call__(
        self,
        method: str,
        route: str,
        expected: int = 200,
        *,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """Send a request and return its JSON.

        The options are the route's path parameters, and ``json`` and ``params``.
        """
        sent = {name: options.pop(name) for name in ("json", "params") if name in options}
        path = V1 + route.format(**options)
        answer = self._client.request(
            method, path, headers={"Authorization": f"Bearer {self.token}", **(headers or {})}, **sent
        )
        assert answer.status_code == expected, f"{method} {path}: {answer.status_code} {answer.text}"
        self.answered.add((method, V1 + route))
        return answer.json() if answer.headers.get("content-type") == "application/json" else None


@pytest.mark.usefixtures("mlflow_grammar")
def test_every_route_answers_where_the_catalog_has_one_connection(
    lonely: TestClient, either_backend: Backend, small: Small
) -> None:
    catalog = either_backend.catalog
    snapshot = take_snapshot(either_backend.store, catalog, parse_spec(small()).dataset).digest
    version = promote_winner(either_backend, parse_spec(small(max_trials=2)), curves=True)
    requests = Requests(lonely)
    administrator = create_token(catalog, "ada", scope="admin")
    requests.token = administrator
    csrf = requests("POST", "/session", json={"token": requests.token})["csrf"]
    requests("DELETE", "/session", 204, headers={"X-CSRF-Token": csrf})
    requests("GET", "/write-log")
    for token in (administrator, create_token(catalog, "bob", scope="write", projects=["small"])):
        requests.token = token
        _look(requests, version.sweep, snapshot)
        _search(requests, small(), snapshot)
        _train(requests, snapshot)
        _send(requests)
        _share(requests, version.sweep)
    requests.token = administrator
    _tell(requests)
    of_version = {"model": "small", "version": version.version}
    link = requests("GET", "/models/{model}/champion", model="small")["url"]
    requests("GET", "/signed/{address}", address=link.rpartition("/")[2])
    requests("POST", "/models/{model}/versions/{version}/archive", **of_version)
    requests("POST", "/models/{model}/versions/{version}/approve", **of_version, json={"note": "good"})
    requests("POST", "/models/{model}/versions/{version}/reject", **of_version, json={"note": "bad"})
    requests(
        "POST",
        "/models/{model}/versions/{version}/promote",
        **of_version,
        json={"note": "good after all", "force": True},
    )
    requests("POST", "/models/{model}/rollback", 404, model="small")
    requests("GET", "/models/{model}/history", model="small")
    app: Any = lonely.app
    routes = {
        (method, str(route.path_format))
        for route in iter_route_contexts(app.routes)
        for method in route.methods or ()
    }
    _track(lonely, requests)
    assert requests.answered == {
        (method, path)
        for method, path in routes
        if path.startswith(V1) and not path.endswith("/openapi.json")
    }


def _track(client: TestClient, requests: Requests) -> None:
    """MLflow's endpoints, and an artifact in parts."""
    headers = {
        "Authorization": f"Bearer {create_token(client.app.state.halving.catalog, 'eve', scope='write')}"
    }  # type: ignore[attr-defined]

    def mlflow(method: str, path: str, /, **fields: Any) -> Any:
        sent: dict[str, Any] = {"params": fields} if method == "GET" else {"json": fields}
        answer = client.request(method, f"/api/2.0/{path}", headers=headers, **sent)
        assert answer.status_code in (200, 400, 404), f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    run = mlflow("POST", "mlflow/runs/create", experiment_id="0")["run"]["info"]["run_id"]
    model = mlflow("POST", "mlflow/logged-models", experiment_id="0", source_run_id=run)["model"]["info"][
        "model_id"
    ]
    mlflow("POST", "mlflow/registered-models/create", name="net")
    batch = {
        "run_id": run,
        "experiment_id": "0",
        "experiment_ids": ["0"],
        "name": "net",
        "version": "1",
        "alias": "best",
        "key": "a",
    }
    batch |= {
        "source": f"models:/{model}",
        "model_id": model,
        "source_run_id": run,
        "value": "1",
        "timestamp": 1,
        "metric_key": "a",
        "run_ids": [run],
    }
    for method, path in ENDPOINTS:
        if "delete" not in path and method != "DELETE":
            mlflow(method, f"mlflow/{path.format(model_id=model, tag_key='a')}", **batch)
    folder = f"0/{run}/artifacts"
    upload = mlflow("POST", f"mlflow-artifacts/mpu/create/{folder}", path="a.bin", num_parts=1)
    address = upload["credentials"][0]["url"].rpartition("/")[2]
    part = client.put(f"{V1}/signed/parts/{address}", content=b"weights")
    requests.answered.add(("PUT", f"{V1}/signed/parts/{{address}}"))
    parts = [{"part_number": 1, "etag": part.headers["etag"]}]
    mlflow(
        "POST",
        f"mlflow-artifacts/mpu/complete/{folder}",
        path="a.bin",
        upload_id=upload["upload_id"],
        parts=parts,
    )
    assert (
        client.get(f"/api/2.0/mlflow-artifacts/artifacts/{folder}/a.bin", headers=headers).content
        == b"weights"
    )


def _look(requests: Requests, sweep: str, snapshot: str) -> None:
    run = f"small/{sweep}.0000"
    for path in (
        "/health",
        "/ready",
        "/session",
        "/runs",
        "/runs/columns",
        "/hpo/studies",
        "/models",
        "/datasets",
    ):
        requests("GET", path)
    requests("GET", "/runs/groups", params={"by": "params.x"})
    requests("GET", "/runs/diff", params={"run": [run, f"small/{sweep}.0001"]})
    requests("GET", "/runs/{project}/{run}", project="small", run=f"{sweep}.0000")
    requests("GET", "/curves", params={"run": run, "key": "score"})
    requests("GET", "/curves", params={"filter": "status = finished", "key": "score"})
    requests("POST", "/curves", json={"filter": "status = finished", "keys": ["score"]})
    # else it would not end
    requests("GET", "/live", 422, params={"filter": "status = finished", "key": "score", "cursor": "none"})
    requests("GET", f"{RUN}/metrics", project="small", run=f"{sweep}.0000", params={"key": "score"})
    requests("GET", "/media", params={"run": run})
    for path in ("/blobs/{digest}", "/blobs/{digest}/rows", "/blobs/{digest}/page", "/checkpoints/{digest}"):
        requests("GET", path, 404, digest="sha256:" + "0" * 64, params={"run": run})
    requests("GET", STUDY, study=sweep)
    requests("GET", "/models/{model}", model="small")
    requests("GET", "/datasets/{name}", name="points")
    requests("GET", "/datasets/{name}/{snapshot}", name="points", snapshot=snapshot.removeprefix("sha256:"))
    requests("GET", "/reports")
    for path in ("", "/gates", "/page"):
        requests("GET", "/reports/{sweep}" + path, sweep=sweep)


def _search(requests: Requests, spec: dict[str, Any], snapshot: str) -> None:
    study_spec = {**spec, "snapshot": snapshot}
    waits = requests("POST", "/hpo/studies", 202, json=study_spec, headers={"Idempotency-Key": "launch"})
    requests("GET", "/hpo/studies/intents/{intent}", intent=waits["intent"])
    del study_spec["predictor"], study_spec["dataset"]
    learning = {**study_spec, "strategy": {"tpe": {"budget": 3}}, "warm_start": "auto"}
    requests("POST", "/hpo/studies", 202, json=learning, params={"driver": "api"})
    study = requests("POST", "/hpo/studies", 202, json=study_spec, params={"driver": "api"})["study"]
    requests("POST", f"{STUDY}/extend", study=study, json={"max_trials": 20})
    requests("POST", f"{STUDY}/pause", study=study)
    requests("POST", f"{STUDY}/resume", study=study)
    for word, said in (
        ("tell", {"epoch": 1, "values": {"score": 0.5}}),
        ("fail", {"error": "it burns"}),
        ("release", {}),
    ):
        for _ in range(2):
            study_spec = requests("POST", f"{STUDY}/ask", study=study, headers={"Idempotency-Key": word})
        of_trial = {"study": study, "number": study_spec["trial"]}
        requests("POST", f"{TRIAL}/heartbeat", **of_trial, json={"attempt": study_spec["attempt"]})
        for _ in range(2):
            requests("POST", f"{TRIAL}/{word}", **of_trial, json={"attempt": study_spec["attempt"], **said})
    requests("POST", f"{STUDY}/stop", study=study)


def _send(requests: Requests) -> None:
    run = requests("POST", "/ingest/begin", 201, json={"project": "small"})["run"]
    attempt = {"project": "small", "run": run, "attempt": 1}
    requests(
        "POST",
        "/ingest",
        params={**attempt, "sequence": 0},
        json={"points": [{"key": "a", "step": 0, "value": 1}]},
    )
    requests("GET", "/ingest", params=attempt)
    requests("POST", "/ingest/end", json=attempt)
    of_run = {"project": "small", "run": run}
    requests("POST", "/runs/{project}/{run}/tags", **of_run, json={"tags": {"team": "vision"}})
    for word in ("archive", "delete", "restore"):
        requests("POST", f"/runs/{{project}}/{{run}}/{word}", **of_run)
    folder = f"runs/project=small/{run}"
    requests("GET", "/files", params={"folder": folder})
    requests("GET", "/files/{name}", name=f"{folder}/record.json")
    requests(
        "PUT",
        "/files/{name}",
        201,
        name=f"{folder}/end-0002.json",
        json={"status": "failed", "time": "2026-01-01T00:00:00+00:00"},
    )
    requests("PUT", "/blobs/{digest}", 201, digest=f"sha256:{hashlib.sha256(b'').hexdigest()}")


def _share(requests: Requests, sweep: str) -> None:
    requests("GET", "/journal")
    requests("POST", "/journal", 201, json={"kind": "sweep", "subject": sweep, "text": "seen"})
    requests("GET", "/shared-page", params={"sweep": sweep})
    requests("GET", "/views")
    named = {"project": "small", "view": f"best of {len(requests.token)}"}
    requests("PUT", "/views/{project}/{view}", **named, json={"query": "filter=project = small"})
    requests("GET", "/views/{project}/{view}", **named)
    requests("DELETE", "/views/{project}/{view}", **named)
    link = requests("POST", "/links", 201, json={"kind": "sweep", "target": sweep, "days": 1})["id"]
    requests("GET", "/links")
    requests("DELETE", "/links/{link}", link=link)
    requests("GET", "/alerts")
    requests("GET", "/alerts/events")
    requests("GET", "/alerts/rules")
    requests("PUT", "/alerts/rules/{project}", project="small", json={"silent_after": 900})
    requests("DELETE", "/alerts/rules/{project}", project="small")


def _tell(requests: Requests) -> None:
    """What administrators alone may do."""
    channel = {"name": "hook", "kind": "webhook", "address": "http://127.0.0.1:9/"}
    requests("POST", "/alerts/channels", json=channel)
    requests("GET", "/alerts/channels")
    requests("POST", "/alerts/channels/{name}/test", name="hook")
    requests("DELETE", "/alerts/channels/{name}", name="hook")
    requests("GET", "/alerts/dead")
    requests("POST", "/alerts/dead/{message}/retry", 404, message="msg_0")


def _train(requests: Requests, snapshot: str) -> None:
    body = {
        "project": "small",
        "trainable": "tests.trainables:train",
        "dataset": snapshot,
        "objective": {"metric": "score", "direction": "maximize"},
        "params": {"x": 0.4},
        "epochs": 3,
    }
    run = requests("POST", "/training-runs", 202, json=body)["run"]
    requests("GET", RUN, project="small", run=run)
    requests("POST", f"{RUN}/checkpoints/{{epoch}}/restore", 404, project="small", run=run, epoch=1)
    requests("POST", f"{RUN}/cancel", project="small", run=run)
