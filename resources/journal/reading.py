"""A page of the journal: notes and what happened, newest first, in one order."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.journal.alert_entries import find_alerts
from resources.journal.entries import Entry, Question
from resources.journal.notes import NOTED_KINDS, find_notes
from resources.journal.order import Cursor, Window, seconds_of
from resources.journal.registry_entries import find_registry_events, find_snapshots
from resources.journal.run_entries import find_begins, find_ends, find_failures
from resources.journal.subjects import Subject
from resources.journal.sweep_entries import (
    find_controls,
    find_created,
    find_ended,
    find_reports,
    find_requests,
)
from resources.tenancy.projects import all_names_of

MAX_ENTRIES = 1_000
"""On a page."""
Source = Callable[[Session, Question], list[Entry]]
# Each gives at most a page of entries, and they are merged. Another kind of entry is another function, with
# the kinds of its entries' subjects.
_SOURCES: dict[Source, tuple[str, ...]] = {
    find_notes: NOTED_KINDS,
    find_begins: ("run",),
    find_ends: ("run",),
    find_failures: ("run",),
    find_alerts: ("run",),
    find_requests: ("run", "sweep"),
    find_created: ("sweep",),
    find_controls: ("sweep",),
    find_ended: ("sweep",),
    find_reports: ("sweep",),
    find_registry_events: ("model",),
    find_snapshots: ("snapshot",),
}
KINDS_OF_ENTRIES = tuple(dict.fromkeys(kind for kinds in _SOURCES.values() for kind in kinds))
"""Of the subjects that entries are about."""


@dataclass(frozen=True)
class JournalPage:
    """Some entries of the journal.

    Attributes:
        entries: newest first.
        older: the ``before`` of the page with older entries; None if there are none.
    """

    entries: list[Entry]
    older: Cursor | None

    def as_dict(self) -> dict[str, Any]:
        """The page as plain data: ``entries``, and ``older`` as text."""
        return {
            "entries": [entry.as_dict() for entry in self.entries],
            "older": self.older and self.older.encode(),
        }


def read_journal(
    session: Session,
    *,
    projects: Collection[str] | None = None,
    subject: Subject | None = None,
    since: datetime | None = None,
    before: Cursor | None = None,
    limit: int = 100,
    kind: str | None = None,
    notes_only: bool = False,
) -> JournalPage:
    """Read a page of the journal, newest first.

    Without a subject, or of a project, it has runs of scripts, and of trials only those that failed; of a
    sweep it has all its trials. Archived and deleted runs are left out unless they are the subject, but notes
    on them are there.

    Args:
        projects: the projects whose entries are wanted, by any name that they have or had; None for all. The
            project of a subject has been checked by the caller.
        subject: the only subject, with what belongs to it: a sweep's trials and version, a model's versions.
        since: entries of this time and later ones, a time with a zone; None for all.
        before: where the page before ended (``older``); None for the newest page.
        limit: entries on the page, from 1 to 1,000.
        kind: the kind of subject whose entries are wanted; None for all.
        notes_only: whether only notes are wanted, not what happened.

    Raises:
        InvalidInput: the limit, the kind or the time is not accepted, or ``before`` is of another version.
    """
    if kind is not None and kind not in KINDS_OF_ENTRIES:
        raise InvalidInput(f"kind = {kind!r:.80} is not accepted: give one of {', '.join(KINDS_OF_ENTRIES)}")
    if not 1 <= limit <= MAX_ENTRIES:
        raise InvalidInput(f"limit = {limit} is not accepted: give 1 to {MAX_ENTRIES}")
    since_seconds = None
    if since is not None:
        try:
            since_seconds = seconds_of(since.astimezone(UTC))
        except OverflowError:
            raise InvalidInput(f"since = {since.isoformat()} is not accepted: no calendar has it") from None
    names = None
    if projects is not None:
        names = all_names_of(session, projects)
    question = Question(Window(limit + 1, since_seconds, before), names, subject, kind)
    entries: list[Entry] = []
    for find, kinds in _SOURCES.items():
        is_wanted = (kind is None or kind in kinds) and (find is find_notes or not notes_only)
        if is_wanted:
            entries += find(session, question)
    entries.sort(key=lambda entry: entry.place, reverse=True)
    older = None
    if len(entries) > limit:
        older = entries[limit - 1].place
    return JournalPage(entries[:limit], older)
