"""Notes: written once, and never changed."""

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import NoteRow, utcnow
from resources.journal.entries import Entry, Question
from resources.journal.order import Cursor, seconds_of
from resources.journal.subjects import KINDS, Subject

MAX_NOTE_CHARACTERS = 20_000
NOTED_KINDS = KINDS
SOURCE = "note"


def add_note(session: Session, subject: Subject, text: str, *, actor: str) -> NoteRow:
    """Write a note, in the caller's transaction.

    Args:
        text: Markdown, of 1 to 20,000 characters.
        actor: the name of a token or a person.

    Raises:
        InvalidInput: the text is empty or too long, or no database accepts it.
    """
    row = NoteRow(
        at=utcnow(),
        actor=actor,
        project=subject.project,
        kind=subject.kind,
        subject=subject.name,
        text=check_text(text),
    )
    session.add(row)
    session.flush()
    return row


def check_text(text: str) -> str:
    """The text of a note without the space around it.

    Raises:
        InvalidInput: it is not accepted.
    """
    stripped = text.strip()
    if not stripped:
        raise InvalidInput("text = '' is not accepted: write what is to be remembered")
    if len(stripped) > MAX_NOTE_CHARACTERS:
        raise InvalidInput(
            f"text of {len(stripped):,} characters is not accepted: give at most {MAX_NOTE_CHARACTERS:,}, "
            "and attach the rest to a run (run.log_artifact)"
        )
    if "\0" in stripped or any("\ud800" <= letter <= "\udfff" for letter in stripped):
        raise InvalidInput("text is not accepted: it has a NUL or half a character; give text in UTF-8")
    return stripped


def entry_of(row: NoteRow) -> Entry:
    """A note as the journal has it."""
    place = Cursor(seconds_of(row.at), SOURCE, (row.id,))
    return Entry(place, row.at, SOURCE, row.kind, row.subject, row.project, row.actor, "", row.text)


def find_notes(session: Session, question: Question) -> list[Entry]:
    """The notes of a page."""
    query: Select[NoteRow] = select(NoteRow)
    if question.subject is not None:
        query = _about(query, question.subject)
    elif question.projects is not None:
        query = query.where(NoteRow.project.in_(question.projects))
    if question.kind is not None:
        query = query.where(NoteRow.kind == question.kind)
    query = question.window.cut(session, query, SOURCE, NoteRow.at, [NoteRow.id])
    return [entry_of(row) for row in session.scalars(query)]


def _about(query: Select[NoteRow], subject: Subject) -> Select[NoteRow]:
    """The notes on a subject and on what belongs to it, such as a sweep's trials or a model's versions."""
    if subject.kind == "project":
        return query.where(NoteRow.project.in_(subject.names))
    if subject.kind == "sweep":
        trials = f"{subject.project}/{subject.name}."
        is_trial = (NoteRow.kind == "run") & _begins(trials)
        return query.where(((NoteRow.kind == "sweep") & (NoteRow.subject == subject.name)) | is_trial)
    if subject.kind == "model" and subject.version is None:
        return query.where(NoteRow.kind == "model", NoteRow.project.in_(subject.names))
    if subject.kind == "model":
        versions = [f"{name}@{subject.version}" for name in subject.names]
        is_version = (NoteRow.kind == "model") & NoteRow.subject.in_(versions)
        return query.where(is_version, NoteRow.project.in_(subject.names))
    return query.where(NoteRow.kind == subject.kind, NoteRow.subject == subject.name)


def _begins(text: str) -> ColumnElement[bool]:
    # A range, which an index finds; the column is ordered by characters.
    end = text[:-1] + chr(ord(text[-1]) + 1)
    return (NoteRow.subject >= text) & (NoteRow.subject < end)
