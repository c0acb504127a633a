"""View-only links: made, listed and revoked. What opens one is :mod:`server.links`."""

import json
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from halving.errors import NotFound
from halving.identifiers import check_name
from resources.links.shared_links import (
    DAYS,
    MAX_DAYS,
    MAX_NOTE,
    SharedLink,
    create_link,
    list_links,
    load_link,
    revoke_link,
)
from resources.links.targets import MAX_PROJECTS, Kind, check_target
from resources.views.view_query import MAX_LENGTH
from server.access.idempotency import REPLAYED, Idempotent
from server.answers import answer
from server.identity.caller import LOCAL, Caller, Viewer
from server.routes.sweeps import sweep_of
from server.state import Shared, State
from server.store_threads import reads_store_and_writes

router = APIRouter(prefix="/links", tags=["links"])

PATH = "/shared/"
"""Below which links are opened, outside of the API."""


class Link(BaseModel):
    """A view-only link, without its secret."""

    id: str = Field(examples=["9b1e2f400f3a5c7d"])
    kind: Kind
    target: str = Field(
        description="A run's project/run, a sweep's id, or the query that a view had when the link was made.",
        examples=["digits/digits-7f3a.0007"],
    )
    projects: list[str] = Field(description="The only projects that it may show.", examples=[["digits"]])
    note: str = Field(examples=["for the review on Friday"])
    by: str = Field(description="Who made it.", examples=["ada"])
    token: str | None = Field(description="The token that it ends with; null: none.", examples=["ada"])
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None = Field(description="To ten minutes.")
    ended: Literal["revoked", "expired", "token"] | None = Field(
        description=(
            "Why it shows nothing any more; token: the token that made it was revoked, is too old, or may no "
            "longer see its projects. Null: it holds."
        )
    )


class NewLink(BaseModel):
    """What a link is to show, and until when."""

    kind: Kind = Field(examples=["run"])
    target: str = Field(
        max_length=MAX_LENGTH,
        description=(
            "A run's project/run; a sweep's id, also of a report; of a view the query of Compare's address, "
            "or project/name of a saved one."
        ),
        examples=["digits/digits-7f3a.0007"],
    )
    projects: list[str] | None = Field(
        default=None,
        max_length=MAX_PROJECTS,
        description="Of a view: whose runs it may show. Without them a saved view shows its project's.",
        examples=[["digits"]],
    )
    days: float = Field(default=DAYS, description=f"After which it ends; at most {MAX_DAYS}.", examples=[7])
    note: str = Field(default="", max_length=MAX_NOTE, examples=["for the review on Friday"])


class CreatedLink(Link):
    """A new link, with the address that is shown only now."""

    path: str | None = Field(
        description=(
            "Of the link, below the server's address. Null where the same request was answered before: it is "
            "shown once, and kept nowhere."
        ),
        examples=["/shared/hlk_…"],
    )


class Links(BaseModel):
    """The newest links first."""

    links: list[Link]


@router.post("", response_model=CreatedLink, status_code=201)
@reads_store_and_writes
def create(body: NewLink, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Make a view-only link to a run, a view, a sweep or a report.

    Whoever has it sees that, without a token, and nothing beside it. So this needs the scope ``write``. It
    ends at its time, when it is revoked, or with the token that makes it.
    """
    stored = run_once.find_stored()
    if stored is not None:
        return stored
    for project in body.projects or ():
        caller.check(project)
    _check_seen(state, caller, body)
    target = check_target(state.catalog, state.store, body.kind, body.target, body.projects)
    token = None if caller is LOCAL else caller.actor
    secrets: list[str] = []

    def write(session: Session) -> tuple[int, object]:
        link, secret = create_link(
            session, target, by=caller.actor, token=token, days=body.days, note=body.note
        )
        secrets.append(secret)
        return 201, {**link.as_dict(), "path": None}  # as it is stored for a repeated request

    response = run_once(write)
    if REPLAYED in response.headers:
        return response
    return answer({**json.loads(bytes(response.body)), "path": f"{PATH}{secrets[-1]}"}, 201)


@router.get("", response_model=Links)
def list_made(
    state: Shared,
    caller: Viewer,
    project: Annotated[
        str | None,
        Query(description="Only links that may show this project, by any name.", examples=["digits"]),
    ] = None,
    kind: Annotated[Kind | None, Query(description="Only links of this kind.")] = None,
    target: Annotated[
        str | None, Query(description="Only links to this run or sweep.", max_length=MAX_LENGTH)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Links, the newest first, without their secrets; those that have ended stay for ninety days."""
    projects = None
    if project is not None:
        projects = [project]
    with state.catalog.read() as session:
        links = list_links(session, projects, limits=caller.visible_projects)
    chosen = [link for link in links if kind in (None, link.kind) and target in (None, link.target)]
    return answer({"links": [link.as_dict() for link in chosen[:limit]]})


@router.delete("/{link}", response_model=Link)
def revoke(
    link: Annotated[str, Path(description="The link's id, not its secret.", examples=["9b1e2f400f3a5c7d"])],
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
) -> Response:
    """Revoke a link: from now on it shows nothing, on any server. Revoked again it stays as it was."""

    def write(session: Session) -> tuple[int, object]:
        _check_link(caller, load_link(session, link))
        return 200, revoke_link(session, link, by=caller.actor).as_dict()

    return run_once(write)


def _check_seen(state: State, caller: Caller, body: NewLink) -> None:
    """Refuse what is of another project, before anything says whether it is there."""
    if body.kind in ("sweep", "report"):
        sweep_of(state, caller, body.target)
        return
    project, slash, _ = body.target.partition("/")
    is_saved_view = body.kind == "view" and slash and "=" not in body.target
    if (body.kind == "run" and slash) or is_saved_view:
        check_name("project", project)
        caller.check(project, f"{body.kind} {body.target!r:.200}")


def _check_link(caller: Caller, link: SharedLink) -> None:
    if not all(caller.sees(project) for project in link.projects):
        raise NotFound(f"no link {link.id!r}; halving links list shows all")
