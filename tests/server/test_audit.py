"""Every write is in the audit before it is acknowledged, and no secret is anywhere in it."""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from server.identity.tokens import create_token
from tests.searches import search

Spec = Callable[..., SweepSpec]
Bearer = Callable[..., dict[str, str]]
STUDIES = "/api/v1/hpo/studies"


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


@pytest.fixture
def sweep(backend: Backend, small_spec: Spec) -> str:
    return search(backend, small_spec(max_trials=2), score, most=1)


def test_every_write_is_recorded_with_who_when_what_and_its_outcome(guarded: TestClient, bearer: Bearer, sweep: str) -> None:
    ada, bob, root = bearer("ada", scope="write"), bearer("bob"), bearer("root", scope="admin")
    guarded.get(STUDIES, headers=ada)
    guarded.post(f"{STUDIES}/{sweep}/pause", headers=ada)
    guarded.post(f"{STUDIES}/{sweep}/extend", headers=ada, json={"max_trials": 1})
    guarded.post(f"{STUDIES}/{sweep}/stop", headers=bob)
    guarded.post(f"{STUDIES}/{sweep}/stop")
    entries = guarded.get("/api/v1/audit", headers=root).json()["entries"]
    assert [(one["actor"], one["method"], one["route"], one["target"], one["status"]) for one in entries] == [
        ("bob", "POST", "-", f"{STUDIES}/{sweep}/stop", 403),
        ("ada", "POST", "/api/v1/hpo/studies/{study}/extend", f"{STUDIES}/{sweep}/extend", 422),
        ("ada", "POST", "/api/v1/hpo/studies/{study}/pause", f"{STUDIES}/{sweep}/pause", 200),
    ]
    assert [one["id"] for one in guarded.get("/api/v1/audit?limit=1&actor=ada", headers=root).json()["entries"]] == [entries[1]["id"]]
    assert guarded.get(f"/api/v1/audit?before={entries[-1]['id']}", headers=root).json() == {"entries": []}
    assert guarded.get("/api/v1/audit?since=2999-01-01T00:00:00Z", headers=root).json() == {"entries": []}


def test_on_this_machine_writes_are_recorded_too(local: TestClient, sweep: str) -> None:
    local.post(f"{STUDIES}/{sweep}/pause")
    (entry,) = local.get("/api/v1/audit").json()["entries"]
    assert entry["actor"] == "local"


def test_logging_in_and_out_is_recorded(guarded: TestClient, backend: Backend, bearer: Bearer) -> None:
    csrf = guarded.post("/api/v1/session", json={"token": create_token(backend.catalog, "ada")}).json()["csrf"]
    guarded.delete("/api/v1/session", headers={"X-CSRF-Token": csrf})
    entries = guarded.get("/api/v1/audit", headers=bearer("root", scope="admin")).json()["entries"]
    assert [(one["actor"], one["method"], one["status"]) for one in entries] == [("ada", "DELETE", 204), ("ada", "POST", 200)]


def test_a_write_that_cannot_be_recorded_is_not_acknowledged(local: TestClient, backend: Backend, sweep: str) -> None:
    with backend.catalog.write() as session:
        session.execute(text("ALTER TABLE audit RENAME TO gone"))
    answer = local.post(f"{STUDIES}/{sweep}/pause")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert "control" not in answer.text


def test_no_secret_is_in_logs_answers_errors_or_the_catalog(
    guarded: TestClient, backend: Backend, sweep: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = create_token(backend.catalog, "ada", scope="admin")
    headers, said = {"Authorization": f"Bearer {token}"}, []
    for method, path, given in (
        ("POST", "/api/v1/session", {"json": {"tokn": token}}),
        ("POST", "/api/v1/session", {"json": {"token": [token]}}),
        ("POST", "/api/v1/session", {"json": {"token": token * 9}}),
        ("POST", "/api/v1/session", {"content": token}),
        ("POST", "/api/v1/session", {"json": {"token": token}}),
        ("GET", f"{STUDIES}/{token}", {"headers": headers}),
        ("GET", f"{STUDIES}?limit={token}", {"headers": headers}),
        ("POST", f"{STUDIES}/{sweep}/pause?token={token}", {"headers": headers}),
        ("POST", f"{STUDIES}/{token}/pause", {"headers": headers}),
        ("GET", "/api/v1/audit", {"headers": headers}),
    ):
        answer = guarded.request(method, path, **given)  # type: ignore[arg-type]
        said.append(answer.text + str(answer.headers))
    key = guarded.app.state.halving.signing_key  # type: ignore[attr-defined]
    # The tests' own HTTP client logs the addresses that it asks for.
    logged = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
    for secret in (token, token[4:], key):
        assert secret not in logged
        assert not [text for text in said if secret in text]
    backend.catalog.close()
    with sqlite3.connect(Path(backend.store.root) / "catalog.db") as connection:
        kept = {table: str(connection.execute(f"SELECT * FROM {table}").fetchall()) for table in ("tokens", "audit", "answers")}
    assert not [table for table, content in kept.items() if token[4:] in content]
