"""Who gets in, with what, and what they may do there."""

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from server.access.authentication import FRESH_SECONDS
from server.identity.sessions import COOKIE
from server.identity.tokens import create_token, list_tokens, revoke_token
from server.mlflow.refusals import OUTSIDE_OF_THE_PREFIXES, PREFIXES
from server.settings import Settings
from tests.searches import search
from tests.server.clients import ADDRESS, client_of
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
Bearer = Callable[..., dict[str, str]]
STUDIES = "/api/v1/hpo/studies"


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": params["x"] * epochs}


@pytest.fixture
def sweep(backend: Backend, small_spec: Spec) -> str:
    """A sweep that searches."""
    return search(backend, small_spec(max_trials=2), score, limit=1)


def logged_in(client: TestClient, token: str) -> dict[str, str]:
    """Log a browser in; the header that its writes carry."""
    answer = client.post("/api/v1/session", json={"token": token}, headers={"Origin": ADDRESS})
    assert answer.status_code == 200, answer.text
    return {"X-CSRF-Token": answer.json()["csrf"]}


def test_who_has_no_token_is_let_in_nowhere_but_to_the_probes_and_the_page(guarded: TestClient) -> None:
    paths = guarded.get("/api/v1/openapi.json")
    assert paths.status_code == 401
    assert paths.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/session", "/runs", "/hpo/studies", "/models", "/datasets", "/write-log", "/nothing"):
        answer = guarded.get(f"/api/v1{path}")
        assert (answer.status_code, answer.json()["status"]) == (401, 401), path
    assert guarded.get("/api/v1/health").status_code == guarded.get("/api/v1/ready").status_code == 200
    assert guarded.get("/").status_code == guarded.get("/style.css").status_code == 200


def test_each_scope_may_do_what_those_before_it_may(guarded: TestClient, bearer: Bearer, sweep: str) -> None:
    allowed = {}
    for scope in ("read", "write", "admin"):
        headers = bearer(scope, scope=scope)
        answers = (
            guarded.get(STUDIES, headers=headers),
            guarded.post(f"{STUDIES}/{sweep}/pause", headers=headers),
        )
        allowed[scope] = [
            answer.status_code for answer in (*answers, guarded.get("/api/v1/write-log", headers=headers))
        ]
    assert allowed == {"read": [200, 403, 403], "write": [200, 200, 403], "admin": [200, 200, 200]}


def test_a_line_break_behind_an_address_opens_no_door(guarded: TestClient, bearer: Bearer) -> None:
    """Routes match with it as they do without it."""
    reader = bearer("reader")
    for path in ("/api/v1/write-log", *OUTSIDE_OF_THE_PREFIXES):
        assert guarded.get(f"{path}%0A").status_code == 401, path
    assert guarded.get("/api/v1/write-log%0A", headers=reader).status_code == 403


def test_a_length_with_thousands_of_digits_is_too_large(guarded: TestClient) -> None:
    answer = guarded.post("/api/v1/curves", headers={"Content-Length": "9" * 5000})
    assert answer.status_code == 413, answer.text


def test_a_token_that_is_wrong_revoked_or_too_old_does_not_hold(
    guarded: TestClient, backend: Backend
) -> None:
    old = create_token(backend.catalog, "old", days=1e-9)
    for token in (old, "hlv_", "hlv_" + "x" * 43, "ä", "Bearer"):
        answer = guarded.get(STUDIES, headers={"Authorization": f"Bearer {token}".encode("latin-1")})
        assert answer.status_code == 401, token
    assert guarded.get(STUDIES, headers={"Authorization": "Basic YTpi"}).status_code == 401
    token = create_token(backend.catalog, "gone")
    headers = {"Authorization": f"Bearer {token}"}
    assert guarded.get(STUDIES, headers=headers).status_code == 200
    revoke_token(backend.catalog, "gone")
    wait_for(
        lambda: guarded.get(STUDIES, headers=headers).status_code == 401,
        FRESH_SECONDS + 60,
        "the token is revoked",
    )


def test_an_address_with_many_wrong_tokens_is_told_to_wait_and_a_right_one_is_not(
    guarded: TestClient, bearer: Bearer
) -> None:
    right = bearer("ada")
    wrong = {"Authorization": "Bearer hlv_wrong"}
    answers = [guarded.get(STUDIES, headers=wrong)]
    while answers[-1].status_code == 401 and len(answers) <= 40:
        # twenty in each minute, and another one may begin meanwhile
        answers.append(guarded.get(STUDIES, headers=wrong))
    assert (len(answers) > 20, answers[-1].status_code) == (True, 429)
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
    assert guarded.get(STUDIES, headers=right).status_code == 200
    assert guarded.post("/api/v1/session", json={"token": "hlv_wrong"}).status_code == 429


def test_a_token_is_shown_once_and_kept_nowhere(backend: Backend) -> None:
    token = create_token(backend.catalog, "ada")
    assert re.fullmatch(r"hlv_[\w-]{43}", token)
    backend.catalog.close()
    kept = b"".join(path.read_bytes() for path in Path(backend.store.root).rglob("catalog.db*"))
    assert b"ada" in kept
    assert token.encode() not in kept
    assert token[4:].encode() not in kept


def test_when_a_token_was_last_used_is_known(guarded: TestClient, backend: Backend, bearer: Bearer) -> None:
    headers = bearer("ada")
    guarded.get(STUDIES, headers=headers)

    def last_use() -> datetime | None:  # noted by a thread: nobody waits for a write in order to read
        return list_tokens(backend.catalog)[0].last_used_at

    assert (
        wait_for(last_use, 60, "the use of the token is noted") >= list_tokens(backend.catalog)[0].created_at
    )


def test_a_browser_logs_in_by_a_cookie_hidden_from_scripts_and_other_sites(
    guarded: TestClient, backend: Backend
) -> None:
    token = create_token(backend.catalog, "ada", scope="write")
    answer = guarded.post("/api/v1/session", json={"token": token})
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/api"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert token not in cookie
    session = guarded.get("/api/v1/session").json()
    assert session == {
        "actor": "ada",
        "scopes": ["read", "write"],
        "projects": None,
        "dagster_url": None,
        "auth": True,
        "csrf": answer.json()["csrf"],
    }
    elsewhere = guarded.post(
        "/api/v1/session", json={"token": token}, headers={"Host": "halving.example.com"}
    )
    assert "Secure" in elsewhere.headers["Set-Cookie"]


def test_a_session_writes_only_with_its_own_csrf_token_and_from_its_own_origin(
    guarded: TestClient, backend: Backend, sweep: str
) -> None:
    csrf = logged_in(guarded, create_token(backend.catalog, "ada", scope="write"))
    with client_of(Settings(root=backend.store.root, tokens=True)) as other:
        foreign = logged_in(other, create_token(backend.catalog, "eve", scope="write"))
    pause = f"{STUDIES}/{sweep}/pause"
    assert guarded.get(STUDIES).status_code == 200
    for headers in (
        {},
        foreign,
        {"X-CSRF-Token": ""},
        {**csrf, "Origin": "https://evil.example"},
        {**csrf, "Origin": "null"},
    ):
        assert guarded.post(pause, headers=headers).status_code == 403, headers
    assert guarded.post(pause, headers={**csrf, "Origin": "http://127.0.0.1:3002"}).status_code == 403
    assert (
        guarded.post(pause, headers=csrf).status_code
        == guarded.post(pause, headers={**csrf, "Origin": ADDRESS}).status_code
        == 200
    )


def test_credentials_that_a_proxy_adds_are_no_token_and_the_session_counts(
    guarded: TestClient, backend: Backend, sweep: str
) -> None:
    csrf = logged_in(guarded, create_token(backend.catalog, "ada", scope="write"))
    cookie = {"Cookie": f"{COOKIE}={guarded.cookies[COOKIE]}"}
    pause = f"{STUDIES}/{sweep}/pause"
    guarded.cookies.clear()
    for added in ("Bearer eyJhbGciOi.J9.x", "bearer ", "Basic YTpi"):
        headers = {"Authorization": added}
        assert guarded.get("/api/v1/session", headers={**headers, **cookie}).json()["actor"] == "ada"
        assert guarded.post(pause, headers={**headers, **cookie}).status_code == 403
        assert (
            guarded.post(
                pause, headers={**headers, **cookie, **csrf, "Origin": "https://evil.example"}
            ).status_code
            == 403
        )
        assert guarded.post(pause, headers={**headers, **cookie, **csrf}).status_code == 200
        refused = guarded.get(STUDIES, headers=headers)
        assert (refused.status_code, "Bearer hlv_" in refused.json()["detail"]) == (401, True)


def test_who_asks_is_found_out_while_slow_questions_have_all_connections(
    guarded: TestClient, bearer: Bearer
) -> None:
    headers = bearer("ada")
    engine = guarded.app.state.halving.catalog.engine
    with ExitStack() as connections:
        for _ in range(engine.pool.size() + engine.pool._max_overflow):
            connections.enter_context(engine.connect())
        assert guarded.get("/api/v1/session", headers=headers).json()["actor"] == "ada"


def test_a_session_ends_with_its_token_and_when_it_is_logged_out(
    guarded: TestClient, backend: Backend
) -> None:
    csrf = logged_in(guarded, create_token(backend.catalog, "ada"))
    assert guarded.delete("/api/v1/session", headers=csrf).status_code == 204
    assert guarded.get("/api/v1/session").status_code == 401
    logged_in(guarded, create_token(backend.catalog, "bob"))
    revoke_token(backend.catalog, "bob")
    wait_for(
        lambda: guarded.get("/api/v1/session").status_code == 401,
        FRESH_SECONDS + 60,
        "the session's token is revoked",
    )


def test_a_cookie_that_was_changed_is_no_session(guarded: TestClient, backend: Backend) -> None:
    logged_in(guarded, create_token(backend.catalog, "ada"))
    cookie = guarded.cookies[COOKIE]
    guarded.cookies.clear()
    for wrong in (cookie[:-1], cookie[1:], f"{cookie[:-4]}AAAA", "", "a.b.c", "WyJhIl0.aaaa.bbbb"):
        assert guarded.get("/api/v1/session", headers={"Cookie": f"{COOKIE}={wrong}"}).status_code == 401, (
            wrong
        )
    assert guarded.get("/api/v1/session", headers={"Cookie": f"{COOKIE}={cookie}"}).status_code == 200


def test_replicas_read_each_others_sessions(guarded: TestClient, backend: Backend) -> None:
    logged_in(guarded, create_token(backend.catalog, "ada"))
    with client_of(Settings(root=backend.store.root, tokens=True)) as replica:
        replica.cookies.update(guarded.cookies)
        assert replica.get("/api/v1/session").json()["actor"] == "ada"


def test_a_token_of_a_project_sees_and_changes_nothing_else(
    guarded: TestClient, bearer: Bearer, sweep: str
) -> None:
    mine = bearer("mine", scope="write", projects=["small"])
    others = bearer("others", scope="write", projects=["other", "third"])
    assert [study["id"] for study in guarded.get(STUDIES, headers=mine).json()["studies"]] == [sweep]
    assert guarded.get(STUDIES, headers=others).json() == {"studies": []}
    assert guarded.get("/api/v1/models", headers=others).json() == {"models": []}
    assert guarded.get("/api/v1/datasets", headers=others).json() == {"datasets": []}
    assert guarded.get("/api/v1/datasets", headers=mine).json()["datasets"][0]["snapshots"][0]["sweeps"] == [
        sweep
    ]
    for method, path in (
        ("GET", f"{STUDIES}/{sweep}"),
        ("POST", f"{STUDIES}/{sweep}/pause"),
        ("GET", f"{STUDIES}?project=small"),
        ("GET", "/api/v1/models/small"),
        ("GET", "/api/v1/models/small/champion"),
        ("POST", "/api/v1/models/small/versions/1.0.0/promote"),
        ("GET", "/api/v1/datasets/points"),
        ("GET", f"/api/v1/reports/{sweep}"),
        ("GET", f"/api/v1/reports/{sweep}/page"),
    ):
        answer = guarded.request(method, path, headers=others)
        assert answer.status_code == 404, path
        # What is not theirs is answered as what is not there.
        unknown = guarded.request(
            method,
            path.replace(sweep, "nothing").replace("small", "nothing").replace("points", "nothing"),
            headers=others,
        )
        assert unknown.status_code == 404, path
        assert sweep not in unknown.text
    assert guarded.get(f"{STUDIES}/{sweep}", headers=mine).status_code == 200


def test_every_api_route_limits_itself_to_projects_and_is_behind_the_guard(
    guarded: TestClient,
) -> None:
    routes = guarded.app.state.routes  # type: ignore[attr-defined]
    endpoints = {
        path: endpoint
        for endpoint, path in routes.paths.items()
        if path.startswith("/api/v1") and not path.endswith("openapi.json")
    }
    assert len(endpoints) > 10
    # An administrator's token has no limits.
    of_administrators = ("/api/v1/write-log", "/api/v1/alerts/channels", "/api/v1/alerts/dead")
    unlimited = {path for path, endpoint in endpoints.items() if not routes.limits(endpoint)}
    assert {path for path in unlimited if not path.startswith(of_administrators)} == set()
    assert "/api/v1/write-log" in unlimited
    others = {path for path in routes.paths.values() if not path.startswith("/api/v1")}
    # MLflow's lie by its prefixes, behind the guard as well; tests/server/mlflow/test_access.py asks them for
    # other projects.
    mlflows = {path for path in others if path.startswith(PREFIXES)}
    # tests/server/test_agents.py asks /mcp for other projects.
    assert others - mlflows == {"/health", "/version", "/mcp"}, "outside of the API is the page alone"
    assert mlflows
    for path in ("/mcp", *mlflows, *OUTSIDE_OF_THE_PREFIXES, *(f"{prefix}/anything" for prefix in PREFIXES)):
        assert {guarded.get(path).status_code, guarded.post(path).status_code} <= {401, 403}, path


def test_on_this_machine_a_foreign_page_can_neither_write_nor_rename_the_server(
    local: TestClient, sweep: str
) -> None:
    pause = f"{STUDIES}/{sweep}/pause"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert local.post(pause, headers=headers).status_code == 403, headers
    for host in (
        "evil.example",
        "evil.example:3001",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "[::2]",
        "10.0.0.1",
    ):
        assert local.get(STUDIES, headers={"Host": host}).status_code == 421, host
        assert local.get("/", headers={"Host": host}).status_code == 421, host
    assert local.get(STUDIES, headers={"X-Forwarded-For": "10.0.0.1"}).status_code == 421
    for host in ("127.0.0.1:3001", "localhost:3001", "LOCALHOST", "[::1]:3001", "127.1.2.3"):
        assert local.get(STUDIES, headers={"Host": host}).status_code == 200, host
    assert local.post(pause).status_code == local.post(pause, headers={"Origin": ADDRESS}).status_code == 200
    assert (
        local.post(pause, headers={"Origin": "http://localhost:3001", "Host": "localhost:3001"}).status_code
        == 200
    )


def test_whoever_asks_on_this_machine_may_do_everything(local: TestClient) -> None:
    session = local.get("/api/v1/session").json()
    assert (session["actor"], session["scopes"], session["auth"], session["csrf"]) == (
        "local",
        ["read", "write", "admin"],
        False,
        None,
    )
    assert local.post("/api/v1/session", json={"token": "any"}).json() == session


def test_access_is_off_only_where_nobody_else_can_ask() -> None:
    assert not any(
        Settings(host=host).asks_for_tokens for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8")
    )
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "", "localhost.example.com"):
        assert Settings(host=host).asks_for_tokens, host
    assert Settings(tokens=True).asks_for_tokens
