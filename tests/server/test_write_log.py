"""Every write is in the write log, neither is there without the other, and no secret is in it."""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import insert, text

from halving.errors import InvalidInput
from resources.backend import Backend
from resources.catalog import WriteLogRow, utcnow
from resources.sweep_spec import SweepSpec
from server.access import write_log
from server.identity.sessions import COOKIE
from server.identity.tokens import create_token
from server.settings import Settings
from tests.searches import search
from tests.server.clients import client_of
from tests.server.registry import promote_winner
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
Bearer = Callable[..., dict[str, str]]
STUDIES = "/api/v1/hpo/studies"


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


def logged_in(client: TestClient, token: str) -> tuple[str, str]:
    """The cookie of a new session, and its CSRF token; the client itself forgets the session."""
    answer = client.post("/api/v1/session", json={"token": token})
    cookie = str(answer.cookies[COOKIE])
    client.cookies.clear()
    return cookie, answer.json()["csrf"]


def rename_table(backend: Backend, name: str, to: str) -> None:
    with backend.catalog.write() as session:
        session.execute(text(f"ALTER TABLE {name} RENAME TO {to}"))


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_log, "LOOK_SECONDS", 0.05)


@pytest.fixture
def sweep(backend: Backend, small_spec: Spec) -> str:
    return search(backend, small_spec(max_trials=2), score, limit=1)


def test_every_write_is_recorded_with_who_when_what_and_its_outcome(
    guarded: TestClient, bearer: Bearer, sweep: str
) -> None:
    ada = bearer("ada", scope="write")
    bob = bearer("bob")
    root = bearer("root", scope="admin")
    guarded.get(STUDIES, headers=ada)
    guarded.post(f"{STUDIES}/{sweep}/pause", headers=ada)
    guarded.post(f"{STUDIES}/{sweep}/extend", headers=ada, json={"max_trials": 1})
    guarded.post(f"{STUDIES}/{sweep}/stop", headers=bob)
    guarded.post(f"{STUDIES}/{sweep}/stop")
    entries = guarded.get("/api/v1/write-log", headers=root).json()["entries"]
    assert [
        (entry["actor"], entry["method"], entry["route"], entry["target"], entry["status"])
        for entry in entries
    ] == [
        ("bob", "POST", "-", f"{STUDIES}/{sweep}/stop", 403),
        ("ada", "POST", "/api/v1/hpo/studies/{study}/extend", f"{STUDIES}/{sweep}/extend", 422),
        ("ada", "POST", "/api/v1/hpo/studies/{study}/pause", f"{STUDIES}/{sweep}/pause", 200),
    ]
    assert [
        entry["id"]
        for entry in guarded.get("/api/v1/write-log?limit=1&actor=ada", headers=root).json()["entries"]
    ] == [entries[1]["id"]]
    assert guarded.get(f"/api/v1/write-log?before={entries[-1]['id']}", headers=root).json() == {
        "entries": []
    }
    assert guarded.get("/api/v1/write-log?since=2999-01-01T00:00:00Z", headers=root).json() == {"entries": []}
    now = datetime.now(UTC)
    for hours, since, count in ((5, now - timedelta(minutes=5), 3), (-5, now + timedelta(minutes=5), 0)):
        local_since = since.astimezone(timezone(timedelta(hours=hours)))
        entries_since = guarded.get(
            "/api/v1/write-log", params={"since": local_since.isoformat()}, headers=root
        ).json()["entries"]
        assert len(entries_since) == count, "moments are compared, whatever their zone"


def test_on_this_machine_writes_are_recorded_too(local: TestClient, sweep: str) -> None:
    local.post(f"{STUDIES}/{sweep}/pause")
    (entry,) = local.get("/api/v1/write-log").json()["entries"]
    assert entry["actor"] == "local"


def test_logging_in_and_out_is_recorded(guarded: TestClient, backend: Backend, bearer: Bearer) -> None:
    csrf = guarded.post("/api/v1/session", json={"token": create_token(backend.catalog, "ada")}).json()[
        "csrf"
    ]
    guarded.delete("/api/v1/session", headers={"X-CSRF-Token": csrf})
    entries = guarded.get("/api/v1/write-log", headers=bearer("root", scope="admin")).json()["entries"]
    assert [(entry["actor"], entry["method"], entry["status"]) for entry in entries] == [
        ("ada", "DELETE", 204),
        ("ada", "POST", 200),
    ]


def test_a_write_that_cannot_be_recorded_is_not_done(local: TestClient, backend: Backend, sweep: str) -> None:
    rename_table(backend, "write_log", "gone")
    assert local.post(f"{STUDIES}/{sweep}/pause").status_code == 500
    assert local.get(f"{STUDIES}/{sweep}").json()["control"] == "run"
    rename_table(backend, "gone", "write_log")
    assert local.post(f"{STUDIES}/{sweep}/pause").json()["control"] == "pause"


@pytest.mark.usefixtures("looks_often")
def test_writes_are_answered_while_the_log_is_away_and_recorded_afterwards(
    guarded: TestClient, backend: Backend, bearer: Bearer, caplog: pytest.LogCaptureFixture
) -> None:
    token = create_token(backend.catalog, "ada")
    root = bearer("root", scope="admin")
    rename_table(backend, "write_log", "gone")
    assert guarded.post("/api/v1/session", json={"token": token}).status_code == 200
    assert "the write log could not be written" in caplog.text
    assert token not in caplog.text
    rename_table(backend, "gone", "write_log")
    wait_for(
        lambda: guarded.get("/api/v1/write-log?actor=ada", headers=root).json()["entries"], 60, "the entry"
    )


def test_refused_writes_that_are_alike_are_one_entry_a_minute(
    guarded: TestClient, bearer: Bearer, sweep: str
) -> None:
    bob = bearer("bob")
    root = bearer("root", scope="admin")
    for path in (f"{sweep}/stop", f"{sweep}/pause", "nothing/pause") * 5:
        assert guarded.post(f"{STUDIES}/{path}", headers=bob).status_code == 403
    for _ in range(5):
        assert guarded.post(f"{STUDIES}/nothing/stop", headers=root).status_code == 404
    entries = guarded.get("/api/v1/write-log", headers=root).json()["entries"]
    assert [(entry["actor"], entry["status"]) for entry in entries] == [("root", 404), ("bob", 403)]


@pytest.mark.usefixtures("looks_often")
def test_how_often_a_refused_write_was_sent_again_is_in_the_log(
    guarded: TestClient,
    bearer: Bearer,
    sweep: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers = bearer("bob")
    for _ in range(3):
        guarded.post(f"{STUDIES}/{sweep}/stop", headers=headers)
    monkeypatch.setattr(write_log, "REPEAT_SECONDS", 0.0)
    wait_for(lambda: "bob asked for - 2 more times" in caplog.text, 60, "the log's line")


def test_whatever_changes_the_catalog_is_recorded_in_the_transaction_of_its_work(local: TestClient) -> None:
    app: FastAPI = local.app  # type: ignore[assignment]
    free = {
        f"{method} {path}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method != "get"
    }
    idempotent = {
        f"{method} {path}"
        for path, methods in app.openapi()["paths"].items()
        for method, described in methods.items()
        if any(entry["name"] == "idempotency-key" for entry in described.get("parameters", ()))
    }
    loops = {
        f"post {STUDIES}/{{study}}/trials/{{number}}/{action}"
        for action in ("tell", "heartbeat", "fail", "release")
    }
    in_store = {
        "post /ingest",
        "post /ingest/begin",
        "post /ingest/end",
        "put /files/{name}",
        "put /blobs/{digest}",
    }
    ingest = {entry.replace(" ", " /api/v1", 1) for entry in in_store}
    # They change nothing in the catalog.
    others = {
        "post /api/v1/session",
        "delete /api/v1/session",
        "post /api/v1/curves",
        "post /api/v1/alerts/channels/{name}/test",
    }
    assert free - idempotent - loops == others | ingest


def test_the_write_log_forgets_what_is_older_than_it_is_told_to_keep(backend: Backend) -> None:
    now = utcnow()
    entry = {"actor": "ada", "method": "POST", "route": "-", "target": "/", "status": 403}
    ages = [31] * (write_log.BATCH + 5) + [29, 1]
    with backend.catalog.write() as session:
        session.execute(insert(WriteLogRow), [{"at": now - timedelta(days=age), **entry} for age in ages])
    assert write_log.forget(backend.catalog, now - timedelta(days=30), limit=3) == 3
    assert write_log.forget(backend.catalog, now - timedelta(days=40)) == 0
    with client_of(Settings(root=backend.store.root, write_log_days=30)) as client:
        wait_for(
            lambda: len(client.get("/api/v1/write-log?limit=3").json()["entries"]) == 2,
            60,
            "what is too old to be gone",
        )
    for days in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(InvalidInput, match="write_log_days"):
            Settings(write_log_days=days)


def test_no_secret_is_in_logs_answers_errors_or_the_catalog(
    guarded: TestClient, backend: Backend, small_spec: Spec, sweep: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = create_token(backend.catalog, "ada", scope="admin")
    headers = {"Authorization": f"Bearer {token}"}
    said = []
    promote_winner(backend, small_spec(max_trials=1, name="model"))
    address = guarded.get("/api/v1/models/model/champion", headers=headers).json()["url"]
    cookie, csrf = logged_in(guarded, token)
    with_cookie = {"Cookie": f"{COOKIE}={cookie}", "X-CSRF-Token": csrf}
    for method, path, options in (
        ("POST", "/api/v1/session", {"json": {"tokn": token}}),
        ("POST", "/api/v1/session", {"json": {"token": [token]}}),
        ("POST", "/api/v1/session", {"json": {"token": token * 9}}),
        ("POST", "/api/v1/session", {"content": token}),
        ("POST", "/api/v1/session", {"json": {"token": token}}),
        ("GET", f"{STUDIES}/{token}", {"headers": headers}),
        ("GET", f"{STUDIES}?limit={token}", {"headers": headers}),
        ("POST", f"{STUDIES}/{sweep}/pause?token={token}", {"headers": headers}),
        ("POST", f"{STUDIES}/{token}/pause", {"headers": headers}),
        ("GET", "/api/v1/write-log", {"headers": headers}),
        ("GET", "/api/v1/nothing", {"headers": {"Cookie": f"{COOKIE}={cookie}x"}}),
        ("POST", f"{STUDIES}/nothing/pause", {"headers": with_cookie}),
        ("POST", f"{STUDIES}/{sweep}/pause", {"headers": {**with_cookie, "Origin": "https://evil.example"}}),
        ("GET", f"{address}x", {}),
        ("POST", address, {"headers": headers}),
        (
            "POST",
            f"{STUDIES}/{sweep}/resume",
            {"headers": with_cookie, "before": lambda: rename_table(backend, "write_log", "gone")},
        ),
        ("POST", f"{STUDIES}/nothing/resume", {"headers": with_cookie}),
        (
            "GET",
            STUDIES,
            {"headers": with_cookie, "before": lambda: rename_table(backend, "gone", "write_log")},
        ),
    ):
        options.pop("before", lambda: None)()  # type: ignore[attr-defined]
        answer = guarded.request(method, path, **options)  # type: ignore[arg-type]
        said.append(answer.text + str(answer.headers))
    key = guarded.app.state.halving.signing_key  # type: ignore[attr-defined]
    # The tests' own HTTP client logs the addresses that it asks for.
    logged = "\n".join(
        logging.Formatter().format(record) for record in caplog.records if not record.name.startswith("http")
    )
    for secret in (token, token[4:], key, cookie, csrf, address.rpartition("/")[2]):
        assert secret not in logged
        assert not [text for text in said if secret in text]
    backend.catalog.close()
    with sqlite3.connect(Path(backend.store.root) / "catalog.db") as connection:
        kept = {
            table: str(connection.execute(f"SELECT * FROM {table}").fetchall())
            for table in ("tokens", "write_log", "answers")
        }
    assert not [table for table, content in kept.items() if token[4:] in content]
