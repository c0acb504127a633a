"""Records, files and blobs of clients' runs."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from halving.store.store import Store
from resources.backend import Backend
from tests.server.ingested import begin, points

Bearer = Callable[..., dict[str, str]]


def test_another_project_than_the_tokens_is_forbidden_and_its_files_are_not_there(
    guarded: TestClient, bearer: Bearer
) -> None:
    everybody = bearer("all", scope="write")
    ada = bearer("ada", scope="write", projects=["mine"])
    reader = bearer("eve", scope="read")
    theirs = guarded.post("/api/v1/ingest/begin", json={"project": "theirs"}, headers=everybody).json()["run"]
    query = {"project": "theirs", "run": theirs, "attempt": 1, "sequence": 0}
    record = f"/api/v1/files/runs/project=theirs/{theirs}/end-0001.json"
    body = {"points": points(0, 1)}
    answers = [
        guarded.post("/api/v1/ingest/begin", json={"project": "theirs", "run": theirs}, headers=ada),
        guarded.post("/api/v1/ingest", params=query, json=body, headers=ada),
        guarded.post(
            "/api/v1/ingest/end", json={"project": "theirs", "run": theirs, "attempt": 1}, headers=ada
        ),
        guarded.put(record, content=b"{}", headers=ada),
        guarded.post("/api/v1/ingest", params=query, json=body, headers=reader),
    ]
    assert [answer.status_code for answer in answers] == [403] * 5
    assert "this token may not write into project 'theirs': it may into mine" in answers[1].json()["detail"]
    reads = [
        guarded.get("/api/v1/files", params={"folder": f"runs/project=theirs/{theirs}"}, headers=ada),
        guarded.get(f"/api/v1/files/runs/project=theirs/{theirs}/record.json", headers=ada),
        guarded.get("/api/v1/ingest", params={"project": "theirs", "run": theirs, "attempt": 1}, headers=ada),
    ]
    assert [answer.status_code for answer in reads] == [404] * 3
    assert guarded.post("/api/v1/ingest", params=query, json=body).status_code == 401
    assert guarded.post("/api/v1/ingest", params=query, json=body, headers=everybody).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "runs/project=p/{run}/../../../catalog.db",
        "runs/project=p/{run}/%2e%2e/%2e%2e/catalog.db",
        "runs/project=p/{run}/artifacts/..%2F..%2Fx.json",
        "runs/project=p/{run}/artifacts/.hidden.json",
        "%2Fetc%2Fpasswd",
        "/etc/passwd",
        "runs/project=p/{run}//record.json",
        "runs/project=p/../record.json",
        "catalog.db",
        "metrics/project=p/run={run}/live/0001-000000.parquet",
        "metrics/project=p/run={run}/manifest-000001.json",
        "runs/project=p/{run}/other.json",
        "runs/project=p/{run}/artifacts/a/b.json",
    ],
)
def test_only_a_runs_own_records_can_be_written(unchanged: TestClient, name: str) -> None:
    run = begin(unchanged).run
    store = Store(unchanged.app.state.halving.settings.root)  # type: ignore[attr-defined]
    before = _files_of(store)
    answer = unchanged.put(f"/api/v1/files/{name.format(run=run)}", content=b"{}")
    assert answer.status_code in (404, 405, 422), answer.text
    assert _files_of(store) == before


def _files_of(store: Store) -> list[str]:
    """The store's files but those of its daily retention, which a server begins when it likes."""
    return sorted(name for name, _, _ in store.files("") if not name.startswith("/retention/"))


@pytest.mark.parametrize(
    "name",
    [
        "runs/project=p/{run}/../../../catalog.db",
        "%2Fetc%2Fpasswd",
        "catalog.db",
        "runs/project=p/{run}/%2e%2e/x",
    ],
)
def test_only_a_runs_own_files_can_be_read(unchanged: TestClient, name: str) -> None:
    run = begin(unchanged).run
    assert unchanged.get(f"/api/v1/files/{name.format(run=run)}").status_code == 404
    assert unchanged.get("/api/v1/files", params={"folder": name.format(run=run)}).status_code == 404


_RECORD = {
    "project": "p",
    "run": "r",
    "params": {},
    "parent": {},
    "attempt": 1,
    "started": "2026-01-01T00:00:00+00:00",
    "token": "t",
}


_DIGEST = f"sha256:{hashlib.sha256(b'abc').hexdigest()}"


@pytest.mark.parametrize(
    ("rest", "content", "message"),
    [
        ("record.json", _RECORD | {"project": "q"}, "project = 'q' is not accepted"),
        ("record.json", _RECORD | {"params": 3}, "params = 3 is not accepted"),
        ("record.json", _RECORD | {"started": "yesterday"}, "started = 'yesterday' is not accepted"),
        ("record.json", _RECORD | {"attempt": 0}, "attempt = 0 is not accepted"),
        ("record.json", _RECORD | {"parent": {"tags": {"a": 1}}}, "parent.tags"),
        ("record.json", [], "give a JSON object"),
        (
            "record.json",
            _RECORD | {"started": "0001-01-01T00:00:00+14:00"},
            "give a time from 1970 to 9999 with its zone",
        ),
        (
            "record.json",
            _RECORD | {"started": "9999-12-31T23:00:00-14:00"},
            "give a time from 1970 to 9999 with its zone",
        ),
        ("record.json", _RECORD | {"params": {"a": {"b": "\ud800"}}}, "half of a surrogate pair"),
        ("record.json", _RECORD | {"params": {"a\0": 1}}, "params is not accepted: a text has NUL"),
        (
            "record.json",
            _RECORD | {"parent": {"tags": {"a": "\udfff"}}},
            "parent is not accepted: a text has NUL",
        ),
        ("record.json", _RECORD | {"params": {"a": [10**400]}}, "a number is larger than float64 holds"),
        (
            "record.json",
            _RECORD | {"params": json.loads('{"a":' * 51 + "0" + "}" * 51)},
            "params is not accepted: it is nested deeper",
        ),
        ("record.json", _RECORD | {"provenance": {"git": "abc"}}, "provenance.git = 'abc' is not accepted"),
        (
            "record.json",
            _RECORD | {"provenance": {"git": {"commit": 3}}},
            "provenance.git = {'commit': 3} is not accepted",
        ),
        ("record.json", _RECORD | {"attempt": 2**31}, "attempt = 2147483648 is not accepted"),
        (
            "end-0001.json",
            {"status": "so so", "time": _RECORD["started"]},
            "status = 'so so' is not accepted",
        ),
        (
            "end-0001.json",
            {"status": "finished", "time": _RECORD["started"], "summary": {"a": "b"}},
            "summary is not accepted",
        ),
        (
            "checkpoints/00000001-0001-000000.json",
            {"epoch": 1, "attempt": 1, "digest": "x", "reported": {}},
            "digest 'x' is not accepted",
        ),
        (
            "artifacts/a.json",
            {"name": "../b", "digest": _DIGEST, "bytes": 3},
            "artifact name '../b' is not accepted: give text of 1-2,000",
        ),
        (
            "artifacts/a-b.json",
            {"name": "a/b", "digest": _DIGEST, "bytes": 3},
            "'artifacts/a-b-c14cddc033f64b9d.json'",
        ),
        (
            "artifacts/a.json",
            {"name": "b", "digest": _DIGEST, "bytes": 3},
            "name = 'b' is not accepted: the file's name is",
        ),
        ("media/0001-main-000001-00000000.json", {"key": "k", "step": "1"}, "step = '1' is not accepted"),
    ],
)
def test_a_record_that_others_could_not_read_is_refused(
    unchanged: TestClient, rest: str, content: Any, message: str
) -> None:
    answer = unchanged.put(f"/api/v1/files/runs/project=p/r/{rest}", content=json.dumps(content).encode())
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_a_record_is_created_once(local: TestClient, backend: Backend) -> None:
    name = "runs/project=p/r/record.json"
    content = json.dumps(_RECORD).encode()
    assert [local.put(f"/api/v1/files/{name}", content=content).status_code for _ in range(2)] == [201, 201]
    other = local.put(f"/api/v1/files/{name}", content=json.dumps(_RECORD | {"token": "u"}).encode())
    assert other.status_code == 409
    assert (backend.store.read(name), local.get(f"/api/v1/files/{name}").content) == (content, content)
    assert local.get("/api/v1/files", params={"folder": "runs/project=p/r"}).json() == {
        "names": ["record.json"]
    }
    assert local.get("/api/v1/files", params={"folder": "runs/project=p/none"}).json() == {"names": []}


def test_a_blob_is_stored_where_its_content_is_what_its_name_says(
    local: TestClient, backend: Backend
) -> None:
    assert local.put(f"/api/v1/blobs/{_DIGEST}", content=b"abd").status_code == 422
    assert local.put("/api/v1/blobs/sha256:..", content=b"abd").status_code == 422
    assert not backend.store.has_blob(_DIGEST)
    large = b"0123456789" * 500_000  # more than any other body may have
    digest = f"sha256:{hashlib.sha256(large).hexdigest()}"
    for content, name in ((b"abc", _DIGEST), (large, digest), (large, digest)):
        assert local.put(f"/api/v1/blobs/{name}", content=content).status_code == 201
        assert Store(backend.store.root).get_blob(name) == content
