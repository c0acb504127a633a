"""The notes on a page's runs, or on its sweep, newest first."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import select

from resources.catalog import Catalog, NoteRow
from resources.journal.notes import entry_of
from server.sharing.secret_values import without_secrets

MAX_NOTES = 200
"""On a page."""
_MAX_LETTERS = 200_000  # of all of them
_FIELDS = ("at", "kind", "subject", "actor", "text")


class PackedNotes(NamedTuple):
    """Notes of a page, and why others are not on it."""

    notes: list[dict[str, Any]]
    left_out: list[str]


def read_notes(catalog: Catalog, runs: Collection[str], sweep: str | None = None) -> PackedNotes:
    """The newest notes on the runs of a page, ``project/run``, and on the sweep that it shows.

    Their projects were checked before. The sweep that a run says it is of was not: anybody who may write into
    any project can record one.
    """
    about = (NoteRow.kind == "run") & NoteRow.subject.in_(sorted(runs))
    if sweep is not None:
        about |= (NoteRow.kind == "sweep") & (NoteRow.subject == sweep)
    query = select(NoteRow).where(about).order_by(NoteRow.at.desc(), NoteRow.id.desc())
    with catalog.read() as session:
        rows = session.scalars(query.limit(MAX_NOTES + 1)).all()
    notes: list[dict[str, Any]] = []
    letters = 0
    for row in rows[:MAX_NOTES]:
        letters += len(row.text)
        if letters > _MAX_LETTERS:
            break
        entry = entry_of(row).as_dict()
        notes.append(without_secrets({name: entry[name] for name in _FIELDS}))
    left_out = []
    if len(notes) < len(rows):
        left_out.append(f"older notes than the newest {len(notes)}: halving journal has them")
    return PackedNotes(notes, left_out)
