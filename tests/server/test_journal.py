"""The journal over HTTP: who may read and write what, and that a note is written once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import halving
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import AttemptRow, NoteRow, TrialRow
from resources.tenancy.projects import rename_project
from tests.backends import add_version, snapshot_row
from tests.resources.journal.journals import add_all, minutes, note_row, sweep_row

JOURNAL = "/api/v1/journal"
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def full(backend: Backend, small: Callable[..., dict[str, Any]]) -> Backend:
    """A run, a sweep and a model of each of two projects."""
    for project in ("digits", "words"):
        halving.init(project, {}, Path(backend.store.root), id=f"{project}-a", system_metrics=None).finish()
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:a", created_at=minutes(0)))
        for project in ("digits", "words"):
            add_all(session, sweep_row(f"{project}-1", small(name=project), 1))
            add_version(session, model=project, version="1.0.0", stage="champion", updated=0)
    Refresher(backend.store, backend.catalog).refresh()
    return backend


SUBJECTS = [
    ("run", "digits/digits-a"),
    ("sweep", "digits-1"),
    ("model", "digits"),
    ("model", "digits@1.0.0"),
    ("project", "digits"),
]


@pytest.mark.parametrize(("kind", "subject"), SUBJECTS)
def test_a_note_is_written_and_read_with_its_subject(
    full: Backend, local: TestClient, kind: str, subject: str
) -> None:
    note = {"kind": kind, "subject": subject, "text": "**why**"}
    written = local.post(JOURNAL, json=note)
    assert written.status_code == 201
    expected = {**note, "what": "note", "project": "digits", "actor": "local", "summary": ""}
    assert written.json().items() >= expected.items()
    page = local.get(JOURNAL, params={"kind": kind, "subject": subject}).json()
    assert page["entries"][0] == written.json()
    assert page["older"] is None
    assert local.get(JOURNAL, params={"project": "words", "notes": True}).json()["entries"] == []
    logged = local.get("/api/v1/write-log").json()["entries"][0]
    assert (logged["method"], logged["target"], logged["status"]) == ("POST", JOURNAL, 201)


@pytest.mark.parametrize(
    ("change", "status", "problem"),
    [
        ({"subject": "digits/none"}, 404, "no run 'digits/none'"),
        ({"kind": "sweep"}, 404, "no sweep"),
        ({"kind": "pod"}, 422, "kind"),
        ({"text": ""}, 422, "text"),
        ({"text": " \n"}, 422, "text"),
        ({"text": "x" * 20_001}, 422, "text"),
        ({"text": "a\0"}, 422, "text"),
        ({"subject": "a\0/b"}, 404, "no run"),
    ],
)
def test_a_note_that_is_not_accepted_is_refused_and_not_written(
    full: Backend, local: TestClient, change: dict[str, str], status: int, problem: str
) -> None:
    note = {"kind": "run", "subject": "digits/digits-a", "text": "why", **change}
    refused = local.post(JOURNAL, json=note)
    assert (refused.status_code, problem in refused.json()["detail"]) == (status, True), refused.text
    assert local.get(JOURNAL, params={"notes": True}).json()["entries"] == []


def test_a_note_with_an_idempotency_key_is_written_once(full: Backend, local: TestClient) -> None:
    note = {"kind": "sweep", "subject": "digits-1", "text": "why"}
    answers = [local.post(JOURNAL, json=note, headers={"Idempotency-Key": "k"}) for _ in range(3)]
    assert len({answer.text for answer in answers}) == 1
    other = local.post(JOURNAL, json={**note, "text": "other"}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 422
    with full.catalog.read() as session:
        assert session.query(NoteRow).count() == 1


def test_no_route_changes_or_deletes_a_note(full: Backend, local: TestClient) -> None:
    local.post(JOURNAL, json={"kind": "sweep", "subject": "digits-1", "text": "why"})
    for path in (JOURNAL, f"{JOURNAL}/1", f"{JOURNAL}/note:1"):
        for method in ("PUT", "PATCH", "DELETE"):
            assert local.request(method, path, json={"text": "other"}).status_code in (404, 405)
    assert local.get(JOURNAL, params={"notes": True}).json()["entries"][0]["text"] == "why"


def test_who_lacks_a_right_neither_reads_nor_writes(
    full: Backend, guarded: TestClient, bearer: Bearer
) -> None:
    note = {"kind": "run", "subject": "digits/digits-a", "text": "why"}
    readers = bearer("reader", scope="read")
    words = bearer("words", scope="write", projects=["words"])
    assert guarded.get(JOURNAL).status_code == guarded.post(JOURNAL, json=note).status_code == 401
    assert guarded.post(JOURNAL, json=note, headers=readers).status_code == 403
    assert guarded.get(JOURNAL, headers=readers).status_code == 200
    for kind, subject in SUBJECTS:
        hidden = {"kind": kind, "subject": subject}
        absent = {**hidden, "subject": "digits/x" if kind == "run" else "x"}
        assert guarded.post(JOURNAL, json={**hidden, "text": "t"}, headers=words).status_code == 404
        answers = [guarded.get(JOURNAL, params=each, headers=words) for each in (hidden, absent)]
        assert [answer.status_code for answer in answers] == [404, 404]
        texts = [answer.text.replace(subject, "x") for answer in answers]
        assert texts[0] == texts[1].replace("digits/x", "x")
    assert guarded.get(JOURNAL, params={"project": "digits"}, headers=words).status_code == 404
    entries = guarded.get(JOURNAL, headers=words).json()["entries"]
    assert {entry["project"] for entry in entries} == {"words", None}
    assert guarded.post(JOURNAL, json={**note, "subject": "words/words-a"}, headers=words).status_code == 201


def test_who_controls_a_sweep_is_in_the_journal(full: Backend, guarded: TestClient, bearer: Bearer) -> None:
    headers = bearer("ada", scope="write")
    for control in ("pause", "pause", "resume", "stop"):  # the second one changes nothing
        assert guarded.post(f"/api/v1/hpo/studies/digits-1/{control}", headers=headers).status_code == 200
    params = {"kind": "sweep", "subject": "digits-1", "limit": 3}
    entries = guarded.get(JOURNAL, params=params, headers=headers).json()["entries"]
    assert [(entry["actor"], entry["summary"]) for entry in entries] == [
        ("ada", "stopped"),
        ("ada", "resumed"),
        ("ada", "paused"),
    ]


def test_reasons_do_not_say_where_the_store_is(full: Backend, local: TestClient) -> None:
    with full.catalog.write() as session:
        add_all(
            session,
            TrialRow(sweep="digits-1", number=0, params={}, status="failed"),
            AttemptRow(
                sweep="digits-1",
                trial=0,
                attempt=1,
                rung=0,
                started_at=minutes(2),
                ended_at=minutes(3),
                outcome="fail",
                error=f"OSError: {full.store.root}/blob is gone",
            ),
        )
    page = local.get(JOURNAL, params={"project": "digits"})
    assert "is gone" in page.text
    assert full.store.root not in page.text


def test_pages_are_followed_to_the_end_and_equal_ones_are_not_sent_again(
    full: Backend, local: TestClient
) -> None:
    with full.catalog.write() as session:
        session.add_all([note_row(str(number), 0) for number in range(25)])
    everything = local.get(JOURNAL, params={"limit": 1000}).json()["entries"]
    pages: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    while True:
        page = local.get(JOURNAL, params={"limit": 4, **more}).json()
        pages += page["entries"]
        if page["older"] is None:
            break
        more = {"before": page["older"]}
    assert pages == everything
    first = local.get(JOURNAL, params={"limit": 4})
    again = {"If-None-Match": first.headers["ETag"]}
    assert local.get(JOURNAL, params={"limit": 4}, headers=again).status_code == 304
    local.post(JOURNAL, json={"kind": "sweep", "subject": "digits-1", "text": "new"})
    assert local.get(JOURNAL, params={"limit": 4}, headers=again).status_code == 200
    assert local.get(JOURNAL, params={"before": "x"}).status_code == 422
    assert local.get(JOURNAL, params={"since": "2026-11-02T00:00:00"}).status_code == 422


def test_a_new_run_has_notes_before_the_index_has_it(backend: Backend, local: TestClient) -> None:
    halving.init("digits", {}, Path(backend.store.root), id="new", system_metrics=None).finish()
    with backend.catalog.read() as session:
        assert session.query(NoteRow).count() == 0
    note = {"kind": "run", "subject": "digits/new", "text": "why"}
    assert local.post(JOURNAL, json=note).status_code == 201
    entries = local.get(JOURNAL, params={"kind": "run", "subject": "digits/new"}).json()["entries"]
    assert [entry["text"] for entry in entries if entry["what"] == "note"] == ["why"]


def test_a_token_of_a_renamed_project_sees_its_notes_by_each_name(
    full: Backend, guarded: TestClient, bearer: Bearer
) -> None:
    headers = bearer("ada", scope="write", projects=["digits"])
    note = {"kind": "project", "subject": "digits", "text": "before"}
    assert guarded.post(JOURNAL, json=note, headers=headers).status_code == 201
    rename_project(full.catalog, "digits", "numerals")
    for project in ("digits", "numerals"):
        headers = bearer(project, scope="read", projects=[project])
        for name in ("digits", "numerals"):
            params = {"kind": "project", "subject": name, "notes": True}
            page = guarded.get(JOURNAL, params=params, headers=headers)
            assert [entry["text"] for entry in page.json()["entries"]] == ["before"], page.text
