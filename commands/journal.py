"""``halving journal``: notes, beside what happened; and ``halving journal note``.

:func:`note_run` is the latter for the SDK (:mod:`halving.run.lifecycle`).
"""

import argparse
import re
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from commands.shared import answer, existing_backend
from halving.cli.parser import add_command
from halving.errors import InvalidInput, NotFound, StoreError
from halving.text import parse_time

if TYPE_CHECKING:
    from rich.console import Console
    from sqlalchemy.orm import Session

    from halving import Store
    from resources.backend import Backend
    from resources.catalog import Catalog
    from resources.journal import Subject

_SUBJECT = (
    "a run (project/run, its id or the beginning of one), SWEEP, SWEEP.0007, MODEL, MODEL@1.0.0 or a "
    "project; its kind may stand before it, as in model:digits"
)
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(min|h|d|w)")
_SECONDS = {"min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_REFRESH_SECONDS = 5.0
"""How long new runs are read before the journal is shown."""
_INDENT = 7


def add_journal_commands(commands: Any) -> None:
    """Add ``halving journal`` and ``halving journal note``."""
    journal: Any = add_command(
        commands,
        "journal",
        "show notes and what happened to runs, sweeps and models, in one order",
        run_journal,
    )
    journal.add_argument("subject", nargs="?", metavar="SUBJECT", help=f"only about this: {_SUBJECT}")
    _add_kind(journal)
    journal.add_argument("--project", "-p", metavar="NAME", help="only of this project")
    journal.add_argument(
        "--since", metavar="TIME", help="only from then on: 30min, 12h, 2d, 1w ago, or 2026-11-01 (UTC)"
    )
    journal.add_argument("--notes", action="store_true", help="only notes, not what happened")
    journal.add_argument(
        "--limit", "-n", type=int, default=50, metavar="N", help="the newest N (default 50, at most 1000)"
    )
    journal.add_argument("--before", metavar="CURSOR", help="older ones: `older` of an earlier answer")
    note = add_command(
        journal.inner,
        "note",
        "write a note in Markdown; it can be neither changed nor deleted",
        run_note,
        subject=_SUBJECT,
        text="the note, or - to read it from the standard input",
    )
    _add_kind(note)


def _add_kind(command: argparse.ArgumentParser) -> None:
    kinds = ("run", "sweep", "model", "project")
    command.add_argument("--kind", choices=kinds, help="what SUBJECT is, where its name means several things")


def run_journal(arguments: argparse.Namespace) -> int:
    """Show a page of the journal.

    JSON: ``{"entries": [{"id", "at", "what", "kind", "subject", "project", "actor", "summary", "text"}],
    "older"}``, newest first; ``older`` is for ``--before``, or null. On a terminal the newest are last.
    """
    from resources.journal import Cursor, read_journal
    from resources.tenancy.projects import all_names_of

    since = None
    if arguments.since is not None:
        since = _time_of(arguments.since)
    before = None
    if arguments.before is not None:
        before = Cursor.decode(arguments.before)
    if arguments.kind and arguments.subject is None:
        raise InvalidInput("--kind is not accepted without a SUBJECT: it says what the subject is")
    backend = existing_backend(arguments)
    _refresh_index(backend)
    projects = None
    if arguments.project is not None:
        projects = [arguments.project]
    with backend.catalog.read() as session:
        subject = None
        if arguments.subject is not None:
            subject = _find(session, backend.store, arguments.subject, arguments.kind)
        elif arguments.project is not None:
            subject = _find(session, backend.store, arguments.project, "project")
        if subject is not None and projects and subject.project not in all_names_of(session, projects):
            raise NotFound(f"no {subject.kind} {arguments.subject!r} in project {arguments.project!r}")
        page = read_journal(
            session,
            subject=subject,
            since=since,
            before=before,
            limit=arguments.limit,
            notes_only=arguments.notes,
        )
    data = page.as_dict()
    return answer(arguments, data, lambda console: _print_page(console, data))


def run_note(arguments: argparse.Namespace) -> int:
    """Write a note. JSON: the note, as an entry of ``halving journal --json``."""
    from resources.journal.notes import check_text

    text = arguments.text
    if text == "-":
        text = sys.stdin.read()
    check_text(text)
    backend = existing_backend(arguments)
    write = partial(_write_note, backend.store, backend.catalog, arguments.subject, text, arguments.kind)
    try:
        data = write()
    except NotFound:  # It may be of runs that the index does not have yet.
        _refresh_index(backend)
        data = write()
    message = f"noted on {data['kind']} {data['subject']}, by {data['actor']}"
    return answer(arguments, data, lambda console: console.print(message, highlight=False, markup=False))


def note_run(store: "Store", run: str, text: str) -> dict[str, Any]:
    """Write a note on a run of a store, in its catalog; returns the note as the journal has it."""
    from halving.query.runs import find_run
    from resources.catalog.opening import open_catalog
    from resources.journal.notes import check_text

    check_text(text)
    # The run is looked up first, because opening the catalog makes one, even where there is no store.
    project, name = find_run(store, run)
    return _write_note(store, open_catalog(store), f"{project}/{name}", text, "run")


def _write_note(store: "Store", catalog: "Catalog", name: str, text: str, kind: str | None) -> dict[str, Any]:
    from resources.journal import add_note
    from resources.journal.notes import entry_of
    from resources.registry.by_hand import user

    with catalog.read() as session:
        subject = _find(session, store, name, kind)
    with catalog.write() as session:
        return entry_of(add_note(session, subject, text, actor=user())).as_dict()


def _find(session: "Session", store: "Store", name: str, kind: str | None) -> "Subject":
    """The subject that a person means; a new run may be in the store alone."""
    from halving.query.runs import find_run
    from resources.journal import resolve_subject
    from resources.journal.subjects import run_of_store

    try:
        return resolve_subject(session, name, kind)
    except NotFound:
        name = name.removeprefix("run:")
        if kind not in (None, "run") or not name:
            raise
        with suppress(NotFound):
            project, run = find_run(store, name)
            subject = run_of_store(session, store, f"{project}/{run}")
            if subject is not None:
                return subject
        raise


def _refresh_index(backend: "Backend") -> None:
    """Read new runs, as a server does every few seconds, so that the journal has them."""
    from resources.analysis.run_index import Refresher

    try:
        done = Refresher(backend.store, backend.catalog).refresh(_REFRESH_SECONDS)
    except StoreError as error:
        print(f"note: the store is away, so runs are shown as they were last read: {error}", file=sys.stderr)
        return
    if not done.complete:
        print(
            f"note: {done.left} new runs are not in the index yet; halving index reads all of them",
            file=sys.stderr,
        )


def _time_of(text: str) -> datetime:
    """The time that ``--since`` names: so long ago, or a day or a time in UTC."""
    from resources.catalog import utcnow

    match = _AGO.fullmatch(text.strip().removesuffix("ago").strip())
    try:
        if match is not None:
            return utcnow() - timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
        return parse_time(text)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"since = {text!r:.100} is not accepted: give 30min, 12h, 2d or 1w, or a day such as 2026-11-01"
        ) from None


def _print_page(console: "Console", data: dict[str, Any]) -> None:
    """Print entries by their days, oldest first, so that the newest stand above the prompt."""
    entries = list(reversed(data["entries"]))
    if not entries:
        console.print("nothing has happened, and nobody has written a note", highlight=False)
        return
    if data["older"]:
        text = f"[dim]older ones: a higher --limit, or --before {data['older']}[/]"
        console.print(text, highlight=False, soft_wrap=True)
    for day, of_day in groupby(entries, key=lambda entry: entry["at"].astimezone().date()):
        console.print(f"[bold]{day:%A, %Y-%m-%d}[/]", highlight=False)
        for entry in of_day:
            _print_entry(console, entry)


def _print_entry(console: "Console", entry: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.padding import Padding
    from rich.text import Text

    who = ""
    if entry["actor"]:
        who = f"{entry['actor']}: "
    what = escape(who + (entry["summary"] or entry["what"]))
    time = f"[dim]{entry['at'].astimezone():%H:%M}[/]"
    console.print(f"{time}  [cyan]{escape(entry['subject'])}[/]  {what}", highlight=False, soft_wrap=True)
    if entry["text"]:
        console.print(Padding(Text(entry["text"]), (0, 0, 0, _INDENT), expand=False), highlight=False)
