"""What every answer has: its headers, its form when something is wrong, and limits of what is taken."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from resources.backend import Backend
from server.access.headers import content_policy
from server.access.policy import MAX_BODY
from server.errors import without_root
from server.fair_queue import FairQueue

STUDIES = "/api/v1/hpo/studies"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_problem(answer: Any) -> bool:
    body = answer.json()
    return (
        answer.headers["Content-Type"] == "application/problem+json"
        and body["status"] == answer.status_code
        and bool(body["detail"])
    )


def test_every_answer_has_the_security_headers(local: TestClient, guarded: TestClient) -> None:
    answers = [
        local.get(path)
        for path in ("/", "/style.css", "/nothing.js", STUDIES, "/api/v1/nothing", f"{STUDIES}/nothing")
    ]
    answers += [
        guarded.get(STUDIES),
        local.post(STUDIES, content=b"x" * (MAX_BODY + 1)),
        local.get("/", headers={"Host": "evil.example"}),
    ]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, answer.url
        policy = answer.headers["Content-Security-Policy"]
        assert "'unsafe-inline'" not in policy
        assert "frame-ancestors 'none'" in policy
    assert local.get(STUDIES).headers["Cache-Control"] == "no-store"


def test_the_page_may_run_its_own_files_and_its_import_map_and_nothing_else(local: TestClient) -> None:
    page = local.get("/")
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page.text, re.DOTALL)
    inline = [(attributes, content) for attributes, content in scripts if content.strip()]
    assert all('type="importmap"' in attributes for attributes, _ in inline)
    assert not re.search(r"<style|\sstyle=|\son\w+=", page.text)
    directives = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
    assert directives["script-src"].split()[0] == "'self'"
    assert len(directives["script-src"].split()) == 1 + len(inline)
    assert directives["default-src"] == directives["connect-src"] == "'self'"
    assert directives["object-src"] == directives["base-uri"] == "'none'"
    assert content_policy(page.text) == page.headers["Content-Security-Policy"]


UNANSWERED = [
    ("GET", "/api/v1/nothing", 404),
    ("DELETE", "/api/v1/nothing", 404),
    ("POST", "/api/v2/runs", 404),
    ("GET", "/api/", 404),
    ("PUT", STUDIES, 405),
    ("DELETE", "/api/v1/models/digits", 405),
    ("OPTIONS", STUDIES, 405),
    ("GET", f"{STUDIES}/nothing", 404),
    ("GET", f"{STUDIES}?limit=0", 422),
    ("GET", f"{STUDIES}?limit=many", 422),
    ("GET", "/nothing.js", 404),
]


def test_what_cannot_be_answered_is_a_problem_in_one_sentence(local: TestClient) -> None:
    for method, path, status in UNANSWERED:
        answer = local.request(method, path)
        assert answer.status_code == status, (method, path)
        assert is_problem(answer), (method, path)
        if status == 405:
            assert answer.headers["Allow"], (method, path)


def test_a_wrong_value_is_named_with_its_field_and_what_is_accepted(local: TestClient) -> None:
    extend = f"{STUDIES}/a/extend"
    said = {
        text: local.post(extend, content=text, headers={"Content-Type": "application/json"}).json()["detail"]
        for text in ('{"max_trials": "many"}', "{}", "{", '{"max_trials": 0}', "[]", "")
    }
    assert said['{"max_trials": "many"}'].startswith(
        "max_trials = 'many' is not accepted: it should be a valid integer"
    )
    assert said["{}"] == "max_trials is missing: give it in the body"
    assert said["{"].startswith("the body is not JSON: ")
    assert (
        said['{"max_trials": 0}'] == "max_trials = 0 is not accepted: it should be greater than or equal to 1"
    )
    assert (
        local.get(f"{STUDIES}?limit=0").json()["detail"]
        == "limit = '0' is not accepted: it should be greater than or equal to 1"
    )


def test_a_head_is_answered_as_its_get_without_the_body(local: TestClient) -> None:
    for path in ("/api/v1/health", STUDIES, "/api/v1/nothing", "/"):
        got = local.get(path)
        head = local.head(path)
        assert head.status_code == got.status_code, path
        assert head.content == b""
        assert head.headers["Content-Type"] == got.headers["Content-Type"]


def test_a_body_that_is_too_large_is_refused_whether_it_says_its_size_or_not(local: TestClient) -> None:
    large = json.dumps({"max_trials": 3, "more": "x" * MAX_BODY}).encode()
    said = local.post(f"{STUDIES}/a/extend", content=large, headers={"Content-Type": "application/json"})
    chunks = (large[start : start + 65_536] for start in range(0, len(large), 65_536))
    unsaid = local.post(f"{STUDIES}/a/extend", content=chunks, headers={"Content-Type": "application/json"})
    assert said.status_code == unsaid.status_code == 413
    assert is_problem(said)
    assert is_problem(unsaid)


def test_text_that_a_database_does_not_take_is_refused_on_each(client: TestClient) -> None:
    for method, path, body, status in (
        ("GET", "/hpo/studies/a%00b", None, 404),
        ("GET", "/models/a%00b/champion", None, 404),
        ("POST", "/hpo/studies/a%00b/ask", {}, 404),
        ("POST", "/training-runs/a/%00/cancel", None, 404),
        ("GET", "/runs?project=a%00b", None, 422),
        ("GET", "/runs?filter=params.x%20=%20%22%00%22", None, 422),
        ("POST", "/curves", {"filter": 'params.x = "\0"', "keys": ["a"]}, 422),
        ("POST", "/curves", {"filter": 'params.x = "\ud800"', "keys": ["a"]}, 422),
    ):
        content = None if body is None else json.dumps(body)
        answer = client.request(method, path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, (path, answer.text)
        assert is_problem(answer)


def test_an_address_of_bytes_that_are_no_utf8_is_refused(client: TestClient) -> None:
    for path in (
        "/runs/a/%FF",
        "/files/runs/project=a/r/caf%E9.json",
        "/runs?filter=params.x=%E9",
        "/blobs/0?run=a/b&artifact=%ff",
    ):
        answer = client.get(path)
        assert answer.status_code == 400, (path, answer.text)
        assert is_problem(answer)
        assert "is no UTF-8" in answer.json()["detail"]


def test_a_page_link_cut_in_the_middle_of_a_letter_is_answered_by_the_page(
    local: TestClient,
) -> None:
    answer = local.get("/models/%E0%A4%A", headers={"Accept": "text/html"})
    assert answer.headers["content-type"].startswith("text/html")


def test_messages_do_not_say_where_the_store_is(local: TestClient, backend: Backend) -> None:
    digest = f"sha256:{'0' * 64}"
    answers = (
        "/runs/a/b",
        "/runs/diff?run=a/b&run=a/c",
        "/curves?run=a/b&key=loss",
        "/media?run=a/b",
        f"/blobs/{digest}?run=a/b",
    )
    for path in (*answers, "/live?run=a/b&key=loss", "/training-runs/a/b", "/reports/a", "/models/a"):
        answer = local.get(f"/api/v1{path}")
        assert answer.status_code == 404, (path, answer.text)
        assert backend.store.root not in answer.text, path


def test_where_a_store_is_is_left_out_of_a_message_and_nothing_else_is() -> None:
    said = without_root(
        "no run 'x' in project 'p' of /data; no a in the store /data, see /data/runs/a and /database", "/data"
    )
    assert (
        said
        == "no run 'x' in project 'p' of the store; no a in the store, see the store/runs/a and /database"
    )
    root = "s3://key:secret@bucket/p?endpoint_override=minio:9000"
    said = without_root(f"cannot read {root.partition('?')[0]}/a: no a in the store {root}", root)
    assert said == "cannot read the store/a: no a in the store"


def test_index_questions_beyond_the_queue_are_told_when_to_ask_again(
    local: TestClient,
) -> None:
    app = local.app
    app.state.halving = replace(app.state.halving, index_queue=FairQueue(1, 1, waiting=0))  # type: ignore[attr-defined]
    for path in (
        "/runs",
        "/runs/groups?by=status",
        "/runs/columns",
        "/curves?filter=&key=a",
        "/live?filter=&key=a",
    ):
        answer = local.get(f"/api/v1{path}")
        assert (answer.status_code, bool(answer.headers.get("Retry-After"))) == (503, True), path
    assert local.get(STUDIES).status_code == 200


def test_an_error_of_the_server_says_nothing_of_its_inside(
    local: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    @local.app.get("/api/v1/broken")  # type: ignore[attr-defined]
    def fail() -> None:
        raise RuntimeError("the inside")

    answer = local.get("/api/v1/broken")
    assert answer.status_code == 500
    assert is_problem(answer)
    assert "the inside" not in answer.text
    assert "the inside" in caplog.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
