"""Rows of a catalog that the journal reads, and its pages, for the tests of the journal."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from resources.catalog import Catalog, NoteRow, RegistryEventRow, RunRow, SweepRow
from resources.journal import JournalPage, read_journal
from resources.journal.entries import Entry

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def minutes(count: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=count)


def run_row(run: str, at: float, *, project: str = "digits", **changes: Any) -> RunRow:
    """A run that began so many minutes after noon, and finished a minute later."""
    started = minutes(at).timestamp()
    fields: dict[str, Any] = {
        "status": "finished",
        "lifecycle": "active",
        "started": started,
        "ended": started + 60,
        "seconds": 60.0,
        "attempt": 1,
        "revision": 1,
        "look_again": 1e12,
        "signature": "s",
    }
    return RunRow(project=project, run=run, **{**fields, **changes})


def sweep_row(sweep: str, spec: dict[str, Any], at: float, **changes: Any) -> SweepRow:
    """A sweep that was opened so many minutes after noon, on the snapshot ``sha256:a``."""
    fields: dict[str, Any] = {
        "name": spec["name"],
        "project": spec["name"],
        "spec": spec,
        "spec_digest": sweep,
        "snapshot": "sha256:a",
        "driver": "job",
        "ordinal": 0,
        "status": "searching",
        "created_at": minutes(at),
    }
    return SweepRow(id=sweep, **{**fields, **changes})


def note_row(text: str, at: float, **changes: Any) -> NoteRow:
    """A note on the project digits."""
    fields: dict[str, Any] = {
        "at": minutes(at),
        "actor": "ada",
        "project": "digits",
        "kind": "project",
        "subject": "digits",
    }
    return NoteRow(text=text, **{**fields, **changes})


def event_row(kind: str, at: float, model: str = "digits", **changes: Any) -> RegistryEventRow:
    """An event of a model."""
    fields: dict[str, Any] = {"actor": "ada", "at": minutes(at), "model": model, "kind": kind}
    return RegistryEventRow(**{**fields, **changes})


def read_all(catalog: Catalog, limit: int = 1_000, **options: Any) -> list[Entry]:
    """All entries, page by page."""
    entries: list[Entry] = []
    with catalog.read() as session:
        page = read_journal(session, limit=limit, **options)
        while True:
            entries += page.entries
            if page.older is None:
                return entries
            page = read_journal(session, limit=limit, before=_sent(page), **options)


def _sent(page: JournalPage) -> Any:
    """The end of a page as a client sends it back: as text."""
    assert page.older is not None
    return type(page.older).decode(page.older.encode())


def words(entries: list[Entry]) -> list[tuple[str, str]]:
    """What each entry says, and of what."""
    return [(entry.what, entry.subject) for entry in entries]


def add_all(session: Session, *rows: Any) -> None:
    for row in rows:
        session.add(row)
        session.flush()
