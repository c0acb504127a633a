"""What every answer has: its headers, its form when something is wrong, and limits of what is taken."""

import json
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.access.headers import content_policy
from server.app import MOST_BYTES

STUDIES = "/api/v1/hpo/studies"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_problem(answer: Any) -> bool:
    body = answer.json()
    return answer.headers["Content-Type"] == "application/problem+json" and body["status"] == answer.status_code and bool(body["detail"])


def test_every_answer_has_the_security_headers(local: TestClient, guarded: TestClient) -> None:
    answers = [local.get(path) for path in ("/", "/style.css", "/nothing.js", STUDIES, "/api/v1/nothing", f"{STUDIES}/nothing")]
    answers += [
        guarded.get(STUDIES),
        local.post(STUDIES, content=b"x" * (MOST_BYTES + 1)),
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


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
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
    ],
)
def test_what_cannot_be_answered_is_a_problem_in_one_sentence(local: TestClient, method: str, path: str, status: int) -> None:
    answer = local.request(method, path)
    assert answer.status_code == status
    assert is_problem(answer)
    if status == 405:
        assert answer.headers["Allow"]


def test_a_wrong_value_is_named_with_its_field_and_what_is_accepted(local: TestClient) -> None:
    extend = f"{STUDIES}/a/extend"
    said = {
        text: local.post(extend, content=text, headers={"Content-Type": "application/json"}).json()["detail"]
        for text in ('{"max_trials": "many"}', "{}", "{", '{"max_trials": 0}', "[]", "")
    }
    assert said['{"max_trials": "many"}'].startswith("max_trials = 'many' is not accepted: it should be a valid integer")
    assert said["{}"] == "max_trials is missing: give it in the body"
    assert said["{"].startswith("the body is not JSON: ")
    assert said['{"max_trials": 0}'] == "max_trials = 0 is not accepted: it should be greater than or equal to 1"
    assert local.get(f"{STUDIES}?limit=0").json()["detail"] == "limit = '0' is not accepted: it should be greater than or equal to 1"


def test_a_head_is_answered_as_its_get_without_the_body(local: TestClient) -> None:
    for path in ("/api/v1/health", STUDIES, "/api/v1/nothing", "/"):
        got, head = local.get(path), local.head(path)
        assert head.status_code == got.status_code, path
        assert head.content == b""
        assert head.headers["Content-Type"] == got.headers["Content-Type"]


def test_a_body_that_is_too_large_is_refused_whether_it_says_its_size_or_not(local: TestClient) -> None:
    large = json.dumps({"max_trials": 3, "more": "x" * MOST_BYTES}).encode()
    said = local.post(f"{STUDIES}/a/extend", content=large, headers={"Content-Type": "application/json"})
    chunks = (large[start : start + 65_536] for start in range(0, len(large), 65_536))
    unsaid = local.post(f"{STUDIES}/a/extend", content=chunks, headers={"Content-Type": "application/json"})
    assert said.status_code == unsaid.status_code == 413
    assert is_problem(said)
    assert is_problem(unsaid)


def test_an_error_of_the_server_says_nothing_of_its_inside(local: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    @local.app.get("/api/v1/broken")  # type: ignore[attr-defined]
    def broken() -> None:
        raise RuntimeError("the inside")

    answer = local.get("/api/v1/broken")
    assert answer.status_code == 500
    assert is_problem(answer)
    assert "the inside" not in answer.text
    assert "the inside" in caplog.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
