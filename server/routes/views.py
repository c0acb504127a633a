"""Saved views: what Compare shows, under a name for a project."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.tenancy.projects import project_exists
from resources.views.saved_views import MAX_NAME, delete_view, list_views, load_view, save_view
from resources.views.view_query import MAX_LENGTH
from server.access.idempotency import Idempotent
from server.answers import answer
from server.identity.caller import Viewer
from server.state import Shared

router = APIRouter(prefix="/views", tags=["views"])

Project = Annotated[str, Path(description="The view's project, by any of its names.", examples=["digits"])]
Name = Annotated[
    str, Path(description=f"The view's name: 1 to {MAX_NAME} characters without /.", examples=["best by lr"])
]


class View(BaseModel):
    """A view of Compare with its name."""

    project: str = Field(examples=["digits"])
    name: str = Field(examples=["best by lr"])
    query: str = Field(
        description="Of Compare's address: /?QUERY shows the view.",
        examples=["filter=status+=+finished&tab=parameters"],
    )
    revision: str = Field(description="Another one after each save.", examples=["5f0c7a1e22b4"])
    by: str = Field(description="Who saved it.", examples=["ada"])
    at: datetime = Field(description="When it was saved.")


class Views(BaseModel):
    """Saved views, by project and name."""

    views: list[View]


class NewView(BaseModel):
    """A view to be saved."""

    query: str = Field(
        max_length=MAX_LENGTH,
        description="Of Compare's address. A name that Compare does not have, or a wrong value, is refused.",
        examples=["filter=status = finished&tab=parameters"],
    )
    revision: str | None = Field(
        default=None,
        max_length=100,
        description="Of the view that this one replaces; null: there is none of this name yet.",
        examples=["5f0c7a1e22b4"],
    )


@router.get("", response_model=Views)
def list_saved(
    state: Shared,
    caller: Viewer,
    project: Annotated[
        str | None, Query(description="Only this project's, by any of its names.", examples=["digits"])
    ] = None,
) -> Response:
    """The views that are saved for projects."""
    projects = caller.visible_projects
    if project is not None:
        projects = [project]
    with state.catalog.read() as session:
        views = list_views(session, projects)
    return answer({"views": [view.as_dict() for view in views]})


@router.get("/{project}/{view}", response_model=View)
def one_view(project: Project, view: Name, state: Shared, caller: Viewer) -> Response:
    """A saved view."""
    with state.catalog.read() as session:
        saved = load_view(session, project, view)
    return answer(saved.as_dict())


@router.put("/{project}/{view}", response_model=View)
def save(
    project: Project, view: Name, body: NewView, state: Shared, caller: Viewer, run_once: Idempotent
) -> Response:
    """Save a view under a name.

    A view of this name is replaced only by who has seen it, and gives its ``revision``: where another one was
    saved meanwhile, the answer is 409 and says by whom.
    """

    def write(session: Session) -> tuple[int, object]:
        if not project_exists(session, project):
            raise NotFound(f"no project {project!r}: it has no run and no sweep")
        saved = save_view(session, project, view, body.query, revision=body.revision, by=caller.actor)
        return 200, saved.as_dict()

    return run_once(write)


@router.delete("/{project}/{view}", response_model=View)
def delete(
    project: Project,
    view: Name,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    revision: Annotated[
        str | None,
        Query(description="Delete it only if it still is this one.", max_length=100),
    ] = None,
) -> Response:
    """Delete a saved view; gives what it was. Links to it go on: they have its query."""

    def write(session: Session) -> tuple[int, object]:
        return 200, delete_view(session, project, view, revision=revision).as_dict()

    return run_once(write)
