"""Entries of alerts that runs raised themselves; what other alerts tell of is in the journal anyway."""

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from resources.analysis.run_index.select import time_of
from resources.catalog import AlertRow
from resources.journal.entries import Entry, Question
from resources.journal.order import Cursor

ALERT = "alert"


def find_alerts(session: Session, question: Question) -> list[Entry]:
    """Alerts by ``halving.alert``, in the order in which the server read them."""
    query: Select[AlertRow] = select(AlertRow).where(AlertRow.event == "logged", AlertRow.kind == "run")
    subject = question.subject
    if subject is None:
        if question.projects is not None:
            query = query.where(AlertRow.project.in_(question.projects))
    elif subject.kind == "project":
        query = query.where(AlertRow.project.in_(subject.names))
    elif subject.kind == "sweep":
        query = query.where(
            AlertRow.subject.startswith(f"{subject.project}/{subject.name}.", autoescape=True)
        )
    elif subject.kind == "run":
        query = query.where(AlertRow.subject == subject.name)
    else:
        return []
    query = question.window.cut(session, query, ALERT, AlertRow.at, [AlertRow.id], in_seconds=True)
    return [_entry_of(row) for row in session.scalars(query)]


def _entry_of(row: AlertRow) -> Entry:
    at = time_of(row.at)
    assert at is not None
    place = Cursor(row.at, ALERT, (row.id,))
    # The subject names the run, so the summary need not.
    summary = f"alert: {row.title.removeprefix(f'{row.subject}: ')}"
    return Entry(place, at, ALERT, row.kind, row.subject, row.project, None, summary, row.text or None)
