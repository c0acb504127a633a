"""Alerts of sweeps: how they ended, attempts at their trials that failed, and launches that were refused."""

from collections.abc import Callable, Iterator
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.alerts.alert import Alert, Level
from resources.catalog import IntentRow
from resources.journal.entries import Entry, Question
from resources.journal.order import Cursor, Window, seconds_of
from resources.journal.run_entries import find_failures
from resources.journal.sweep_entries import find_ended
from resources.scheduling.intents import FAILED, project_of

Source = Callable[[Session, Question], list[Entry]]
_ENDS: dict[str, tuple[str, Level, str]] = {
    "finished": ("sweep finished", "info", "halving leaderboard {subject}"),
    "failed": ("sweep failed", "error", "Why its trials failed: halving leaderboard {subject}"),
    "rejected": ("gate failed", "warn", "The gates and their figures: halving leaderboard {subject}"),
    "held": ("gate failed", "warn", "The gates and their figures: halving leaderboard {subject}"),
}
_FAILURES: dict[str, tuple[str, Level]] = {
    "crashed": ("crashed", "warn"),
    "failed": ("failed", "error"),
    "diverged": ("diverged", "warn"),
}
_OUT_OF_MEMORY = "out of memory"
_PAGE = 500


def alerts_of_sweeps(session: Session, since: datetime) -> Iterator[Alert]:
    """Sweeps that ended, attempts that failed and launches that were refused from a time on."""
    for entry in _all(find_ended, session, since):
        if entry.what in _ENDS:
            yield _end_alert(entry)
    for entry in _all(find_failures, session, since):
        yield _failure_alert(entry)
    refused = select(IntentRow).where(IntentRow.status == FAILED, IntentRow.created_at >= since)
    for row in session.scalars(refused):
        yield Alert(
            key=f"intent:{row.id}:failed",
            event="sweep failed",
            kind="sweep",
            subject=row.sweep,
            title=f"{row.sweep} could not be opened: {row.error}",
            level="error",
            project=project_of(row),
        )


def _all(find: Source, session: Session, since: datetime) -> Iterator[Entry]:
    """All entries of a source from a time on, page by page."""
    before: Cursor | None = None
    while True:
        entries = find(session, Question(Window(_PAGE, seconds_of(since), before)))
        yield from entries
        if len(entries) < _PAGE:
            return
        before = entries[-1].place


def _end_alert(entry: Entry) -> Alert:
    event, level, advice = _ENDS[entry.what]
    return Alert(
        key=f"{entry.id}:{entry.what}",
        event=event,
        kind="sweep",
        subject=entry.subject,
        title=f"{entry.subject} {entry.summary}",
        text=advice.format(subject=entry.subject),
        level=level,
        project=entry.project,
    )


def _failure_alert(entry: Entry) -> Alert:
    event, level = _FAILURES[entry.what]
    if _OUT_OF_MEMORY in entry.summary.lower():
        event = _OUT_OF_MEMORY
    trial = entry.subject.partition("/")[2]
    return Alert(
        key=entry.id,
        event=event,
        kind="run",
        subject=entry.subject,
        title=f"{entry.subject} {entry.summary}",
        text=f"Its attempts and why each ended: halving trial {trial}",
        level=level,
        project=entry.project,
    )
