"""The tool ``journal``: notes and what happened, newest first, and a note of the agent's own."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from halving.errors import InvalidInput
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean
from resources.journal import Cursor, Subject, add_note, read_journal, resolve_subject
from resources.journal.entries import Entry

MAX_ENTRIES = 200
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def journal(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Read the journal since a time, or write a note about a subject."""
    about = asked_for["about"]
    if asked_for["note"]:
        desk.agent.check_writes("a note")
        if not about:
            raise InvalidInput("about is missing: say which run, sweep, model or project the note is about")
        with desk.catalog.write() as session:
            subject = _subject(desk, session, about)
            row = add_note(session, subject, asked_for["note"], actor=desk.agent.actor)
            desk.note_write(session, "journal", f"{subject.kind}/{subject.name}")
            reply.add(f"note {row.id} on {subject.kind} {clean(subject.name)} is written")
        return
    since = parse_since(asked_for["since"], datetime.now(UTC))
    before = None
    if asked_for["before"]:
        before = Cursor.decode(asked_for["before"])
    with desk.catalog.read() as session:
        chosen = None
        if about:
            chosen = _subject(desk, session, about)
        page = read_journal(
            session,
            projects=desk.agent.visible_projects,
            subject=chosen,
            since=since,
            before=before,
            limit=MAX_ENTRIES,
        )
    if not page.entries:
        reply.add("nothing")
        return
    rows = [_line_of(entry) for entry in page.entries]
    places = [entry.place.encode() for entry in page.entries]
    more = len(rows) + (page.older is not None)
    reply.add_rows(
        rows, "or more entries", lambda added: f"ask with before={places[max(added - 1, 0)]}", total=more
    )


def parse_since(text: str, now: datetime) -> datetime | None:
    """A time from ``2h``, ``3d`` or ISO 8601, which is UTC where it has no zone; None of an empty text.

    Raises:
        InvalidInput: it is neither.
    """
    if not text:
        return None
    number = text[:-1]
    try:
        if text[-1] in _UNITS and number.isdecimal():
            return now - int(number) * _UNITS[text[-1]]
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidInput(f"since = {text!r:.40} is not accepted: give 2h, 3d or 2026-11-28T09:00") from None
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time


def _subject(desk: Desk, session: Any, name: str) -> Subject:
    return resolve_subject(session, name, projects=desk.agent.visible_projects)


def _line_of(entry: Entry) -> str:
    words = [f"{entry.at:%Y-%m-%dT%H:%M}", clean(entry.what, 10), f"{entry.kind}:{clean(entry.subject)}"]
    if entry.actor:
        words.append(f"by {clean(entry.actor, 20)}")
    if entry.summary:
        words.append(clean(entry.summary, 40))
    if entry.text:
        words.append(f"- {clean(entry.text, 120)}")
    return " ".join(words)


TOOLS = (
    Tool(
        "journal",
        "Notes and events (finished, failed, paused, promoted...), newest first; note writes one.",
        (
            Argument("about", about="project/run, sweep, MODEL, MODEL@1.0.0 or project", default=""),
            Argument("since", about="2h, 3d or a UTC time", default=""),
            Argument("before", default=""),
            Argument("note", about="Markdown", default=""),
        ),
        journal,
        effect="may write",
    ),
)
