"""Notes: written once by somebody about something that exists, and never changed."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from halving import InvalidInput, NotFound
from resources.catalog import Catalog, IntentRow, TrialRow
from resources.journal import MAX_NOTE_CHARACTERS, add_note, resolve_subject, subject_of
from tests.backends import add_version, snapshot_row
from tests.resources.journal.journals import (
    add_all,
    event_row,
    minutes,
    note_row,
    read_all,
    run_row,
    sweep_row,
)

Small = Callable[..., dict[str, Any]]


@pytest.fixture
def full(catalog: Catalog, small: Small) -> Catalog:
    """A catalog with a project, a sweep and a model of one name, and runs."""
    with catalog.write() as session:
        add_all(
            session,
            snapshot_row("sha256:a"),
            sweep_row("digits-7f3a", small(name="digits"), 0),
            TrialRow(sweep="digits-7f3a", number=7, params={}, status="running"),
            sweep_row("same", small(name="other"), 0),
            run_row("same", 0, project="digits"),
            run_row("same", 0, project="other"),
            run_row("digits-0001", 0),
            run_row("digits-0002", 0),
            run_row("Digits-0003", 0),
            IntentRow(
                id="i",
                kind="study",
                payload={"driver": "api", "spec": small(name="soon")},
                actor="ci",
                created_at=minutes(0),
                status="waiting",
                sweep="soon-1",
            ),
        )
        add_version(session, model="digits", version="1.0.0", stage="champion", updated=0)
    return catalog


def test_a_note_is_read_as_it_was_written(full: Catalog) -> None:
    written = "  # Why\n\n<b>not</b> `x` ümlaut 🙂  "
    with full.write() as session:
        row = add_note(session, subject_of(session, "run", "digits/digits-0001"), written, actor="ada")
        assert row.id == 1
    (entry,) = read_all(full, notes_only=True)
    assert (entry.what, entry.kind, entry.subject) == ("note", "run", "digits/digits-0001")
    assert (entry.project, entry.actor, entry.text) == ("digits", "ada", written.strip())


@pytest.mark.parametrize("refused", ["", " \n\t", "x" * (MAX_NOTE_CHARACTERS + 1), "a\0b", "\ud800"])
def test_a_text_that_is_no_note_is_refused(full: Catalog, refused: str) -> None:
    with full.write() as session:
        subject = subject_of(session, "sweep", "digits-7f3a")
        with pytest.raises(InvalidInput, match=r"^text.* is not accepted: "):
            add_note(session, subject, refused, actor="ada")
    assert read_all(full, notes_only=True) == []


def test_the_longest_note_is_accepted(full: Catalog) -> None:
    with full.write() as session:
        add_note(session, subject_of(session, "sweep", "digits-7f3a"), "ü" * MAX_NOTE_CHARACTERS, actor="ada")
    assert len(str(read_all(full, notes_only=True)[0].text)) == MAX_NOTE_CHARACTERS


def test_notes_are_only_ever_added(catalog: Catalog) -> None:
    with catalog.write() as session:
        session.add(note_row("stays", 0))
    changes = ["UPDATE notes SET text = 'other'", "DELETE FROM notes"]
    if catalog.url.startswith("sqlite"):
        changes.append(
            "INSERT OR REPLACE INTO notes VALUES (1, '2026-01-01', 'x', 'x', 'run', 'x/y', 'other')"
        )
    else:
        changes.append("TRUNCATE notes")
    for change in changes:
        with pytest.raises(DBAPIError, match="append-only"), catalog.engine.begin() as connection:
            connection.execute(text(change))
    assert [entry.text for entry in read_all(catalog)] == ["stays"]


def test_notes_on_what_belongs_to_a_subject_are_read_with_it(catalog: Catalog, small: Small) -> None:
    with catalog.write() as session:
        add_all(
            session,
            snapshot_row("sha256:a"),
            sweep_row("digits-1", small(name="digits"), 0),
            sweep_row("digits-10", small(name="digits"), 0),
            note_row("sweep", 1, kind="sweep", subject="digits-1"),
            note_row("trial", 2, kind="run", subject="digits/digits-1.0003"),
            note_row("other sweep", 3, kind="sweep", subject="digits-10"),
            note_row("other trial", 4, kind="run", subject="digits/digits-10.0003"),
            note_row("model", 5, kind="model", subject="digits"),
            note_row("version", 6, kind="model", subject="digits@1.0.0"),
            note_row("other version", 7, kind="model", subject="digits@1.0.1"),
            note_row("other model", 8, kind="model", subject="digits@1.0.0", project="digits@1.0.0"),
        )
        add_version(session, model="digits", version="1.0.0", stage="champion", updated=0)

    def texts(kind: str, name: str) -> list[str | None]:
        with catalog.read() as session:
            subject = subject_of(session, kind, name)
        return [entry.text for entry in read_all(catalog, subject=subject, notes_only=True)]

    assert texts("sweep", "digits-1") == ["trial", "sweep"]
    assert texts("model", "digits") == ["other version", "version", "model"]
    assert texts("model", "digits@1.0.0") == ["version"]
    assert len(texts("project", "digits")) == 7


def test_a_renamed_model_keeps_its_notes(catalog: Catalog) -> None:
    with catalog.write() as session:
        add_version(session, model="new", version="1.0.0", stage="champion", updated=0)
        add_all(
            session,
            note_row("before", 0, kind="model", subject="old@1.0.0", project="old"),
            event_row("renamed", 1, model="old", before="old", after="new"),
            event_row("renamed", 1, model="new", before="old", after="new"),
        )
        subjects = [subject_of(session, "model", name) for name in ("new", "new@1.0.0")]
    for subject in subjects:
        entries = read_all(catalog, subject=subject, notes_only=True)
        assert [entry.text for entry in entries] == ["before"]


def test_notes_on_a_run_stay_when_the_run_is_gone(full: Catalog) -> None:
    with full.write() as session:
        add_note(session, subject_of(session, "run", "digits/digits-0001"), "why", actor="ada")
    with full.write() as session:
        session.execute(text("UPDATE runs SET lifecycle = 'deleted' WHERE run = 'digits-0001'"))
    with full.read() as session:  # in the trash it can still be looked at
        entries = read_all(full, subject=subject_of(session, "run", "digits/digits-0001"))
    assert [entry.what for entry in entries] == ["note", "finished", "began"]
    with full.write() as session:
        session.execute(text("DELETE FROM runs WHERE run = 'digits-0001'"))
    assert [entry.text for entry in read_all(full, projects=["digits"], notes_only=True)] == ["why"]


@pytest.mark.parametrize(
    ("name", "kind", "meant"),
    [
        ("digits/digits-0001", None, "run:digits/digits-0001"),
        ("digits-0001", None, "run:digits/digits-0001"),
        ("Digits-00", None, "run:digits/Digits-0003"),
        ("other/sam", None, "run:other/same"),
        ("digits-7f3a", None, "sweep:digits-7f3a"),
        ("digits-7f3a.0007", None, "run:digits/digits-7f3a.0007"),  # the index does not have it yet
        ("digits/digits-7f3a.0007", None, "run:digits/digits-7f3a.0007"),
        ("soon-1", None, "sweep:soon-1"),
        ("digits@1.0.0", None, "model:digits@1.0.0"),
        ("digits", "model", "model:digits"),
        ("model:digits", None, "model:digits"),
        ("project:digits", None, "project:digits"),
        ("other", None, "project:other"),
        ("same", "sweep", "sweep:same"),
    ],
)
def test_a_name_means_one_subject(full: Catalog, name: str, kind: str | None, meant: str) -> None:
    with full.read() as session:
        subject = resolve_subject(session, name, kind)
        assert f"{subject.kind}:{subject.name}" == meant
        assert subject_of(session, subject.kind, subject.name) == subject


def test_many_runs_of_other_projects_do_not_hide_the_run_that_is_meant(catalog: Catalog) -> None:
    with catalog.write() as session:
        add_all(session, *(run_row(f"a{number:03d}", 0, project="digits") for number in range(60)))
        add_all(session, run_row("a-mine", 0, project="words"))
    with catalog.read() as session:
        assert resolve_subject(session, "a", projects=["words"]).name == "words/a-mine"


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("digits", {}, InvalidInput, "could be model:digits, project:digits; give one of these"),
        ("same", {}, InvalidInput, "could be run:digits/same, run:other/same, sweep:same"),
        ("digits-00", {}, InvalidInput, "could be run:digits/digits-0001, run:digits/digits-0002"),
        ("nothing", {}, NotFound, "no run, sweep, model or project 'nothing'"),
        ("digits@9.0.0", {}, NotFound, "no run, sweep, model or project"),
        ("digits-7f3a.0008", {}, NotFound, "no run, sweep"),
        ("", {}, NotFound, "no run, sweep"),
        ("x\0", {}, NotFound, "no run, sweep"),
        ("same", {"projects": ["words"]}, NotFound, "no run, sweep"),
        ("digits", {"kind": "pod"}, InvalidInput, "kind = 'pod' is not accepted: give one of run, sweep"),
        ("run:digits", {"kind": "model"}, InvalidInput, "give one kind"),
    ],
)
def test_a_name_that_means_nothing_or_many_things_is_refused(
    full: Catalog, name: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with full.read() as session, pytest.raises(error, match=message):
        resolve_subject(session, name, **options)
