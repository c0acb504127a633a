"""The journal: notes on runs, sweeps, models and projects, beside what happened to them."""

from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BaseModel, Field
from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.journal import (
    MAX_NOTE_CHARACTERS,
    Cursor,
    Subject,
    add_note,
    read_journal,
    resolve_subject,
    subject_of,
)
from resources.journal.notes import entry_of
from resources.journal.reading import MAX_ENTRIES
from resources.journal.subjects import run_of_store
from resources.tenancy.projects import all_names_of
from server.access.idempotency import Idempotent
from server.answers import IfNoneMatch, answer, is_known
from server.errors import without_root
from server.identity.caller import Caller, Viewer
from server.routes.sweeps import NOT_MODIFIED
from server.state import Shared, State
from server.store_threads import reads_store, reads_store_and_writes

router = APIRouter(prefix="/journal", tags=["journal"])

_MAX_NAME = 400  # characters: of a project and a run, or a model and a version
NotedKind = Literal["run", "sweep", "model", "project"]


class JournalEntry(BaseModel):
    """A note, or something that happened."""

    id: str = Field(description="Stays the same.", examples=["note:17"])
    at: datetime
    what: str = Field(
        description="note, or what happened: began, finished, failed, diverged, created, paused, promoted, …",
        examples=["note"],
    )
    kind: str = Field(description="Of the subject: run, sweep, model, project or snapshot.", examples=["run"])
    subject: str = Field(
        description="project/run, a sweep's id, model or model@version, a project, dataset@digest.",
        examples=["digits/digits-7f3a.0007"],
    )
    project: str | None = Field(
        description="Of the subject; of a model its name; a snapshot has none.", examples=["digits"]
    )
    actor: str | None = Field(
        description="Who did it: a token's or a person's name, or a sweep; null: that is not recorded.",
        examples=["ada"],
    )
    summary: str = Field(
        description="What happened, without the subject; empty for a note.", examples=["finished after 3 min"]
    )
    text: str | None = Field(
        description="A note in Markdown, or the reason that somebody gave.",
        examples=["*overfits* from 40 on"],
    )


class Journal(BaseModel):
    """Entries of the journal, newest first."""

    entries: list[JournalEntry]
    older: str | None = Field(
        description="What to ask for as `before` for older entries; null: there are none.", examples=[None]
    )


class NewNote(BaseModel):
    """A note that is to be written."""

    kind: NotedKind = Field(description="What it is about.", examples=["run"])
    subject: str = Field(
        min_length=1,
        max_length=_MAX_NAME,
        description="project/run, a sweep's id, model or model@version, or a project.",
        examples=["digits/digits-7f3a.0007"],
    )
    text: str = Field(
        min_length=1,
        max_length=MAX_NOTE_CHARACTERS,
        description="In Markdown; HTML in it is shown as text.",
        examples=["*overfits* from epoch 40 on"],
    )


@router.get("", response_model=Journal, responses=NOT_MODIFIED)
@reads_store
def journal(
    state: Shared,
    caller: Viewer,
    project: Annotated[
        str | None, Query(max_length=_MAX_NAME, description="Only of this project.", examples=["digits"])
    ] = None,
    kind: Annotated[
        str | None,
        Query(
            max_length=20,
            description="Only about subjects of this kind; with `subject`, what that is.",
            examples=["run"],
        ),
    ] = None,
    subject: Annotated[
        str | None,
        Query(
            max_length=_MAX_NAME,
            description=(
                "Only about this and what belongs to it: a sweep's trials, a model's versions. Named as in "
                "a note; without `kind` also by a run's id or its beginning."
            ),
            examples=["digits-7f3a"],
        ),
    ] = None,
    since: Annotated[
        AwareDatetime | None, Query(description="Only entries from then on; a time with a zone.")
    ] = None,
    before: Annotated[
        str | None, Query(max_length=4_000, description="`older` of the page before; without it the newest.")
    ] = None,
    notes: Annotated[bool, Query(description="Only notes, not what happened.")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES, description="How many entries at most.")] = 100,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Notes and what happened, newest first.

    Of a sweep's trials the journal of a project has those that failed, crashed or diverged; the sweep's own
    has all of them. Asked again with `If-None-Match` it answers 304 as long as the page is the same.
    """
    place = None
    if before is not None:
        place = Cursor.decode(before)
    projects = caller.visible_projects
    if project is not None:
        projects = [project]
    with state.catalog.read() as session:
        about = None
        if subject is not None:
            about = _find(session, state, caller, subject, kind)
            if project is not None and about.project not in all_names_of(session, [project]):
                raise NotFound(f"no {about.kind} {subject!r} in project {project!r}")
        page = read_journal(
            session,
            projects=projects,
            subject=about,
            kind=kind if about is None else None,
            since=since,
            before=place,
            limit=limit,
            notes_only=notes,
        )
    data = page.as_dict()
    for entry in data["entries"]:  # the reasons for failures may have paths
        entry["summary"] = without_root(entry["summary"], state.store.root)
    tag = f'"{sha256(repr(data).encode()).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if is_known(tag, if_none_match):
        return Response(status_code=304, headers=headers)
    return answer(data, headers=headers)


@router.post("", status_code=201, response_model=JournalEntry)
@reads_store_and_writes
def write_note(body: NewNote, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Write a note, in the name of the token. It can be neither changed nor deleted."""
    if (stored := run_once.find_stored()) is not None:
        return stored
    with state.catalog.read() as session:
        subject = _find(session, state, caller, body.subject, body.kind)

    def write(session: Session) -> tuple[int, dict[str, Any]]:
        row = add_note(session, subject, body.text, actor=caller.actor)
        return 201, entry_of(row).as_dict()

    return run_once(write)


def _find(session: Session, state: State, caller: Caller, name: str, kind: str | None) -> Subject:
    """The subject of a name, if the caller may see it.

    Raises:
        NotFound: there is none, or it is of another project than the caller's.
        InvalidInput: several are meant.
    """
    description = f"{kind or 'subject'} {name!r:.200}"
    try:
        if kind is None:
            visible = None
            if caller.projects is not None:
                visible = all_names_of(session, caller.projects)
            return resolve_subject(session, name, projects=visible)
        subject = subject_of(session, kind, name)
    except NotFound:
        in_store = None
        if kind in (None, "run"):
            in_store = run_of_store(session, state.store, name)
        if in_store is None or not caller.sees(in_store.project):
            caller.check(None, description)
            raise
        return in_store
    caller.check(subject.project, description)
    return subject
