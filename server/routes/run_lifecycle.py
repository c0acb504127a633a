"""What becomes of runs: tagged, archived, deleted and restored."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from halving.identifiers import check_name
from halving.records.amendments import ACTIVE, ARCHIVED, DELETED, Lifecycle
from resources.retention.lifecycle import MAX_TAG_LENGTH, set_lifecycle, set_tags
from server.access.idempotency import Idempotent, IdempotentWrite
from server.identity.caller import Caller, Viewer
from server.state import Shared, State
from server.store_threads import reads_store_and_writes

router = APIRouter(prefix="/runs", tags=["runs"])

MAX_TAGS = 100
Project = Annotated[str, Path(description="The run's project.", examples=["digits"])]
RunId = Annotated[str, Path(description="The run's id.", examples=["digits-7f3a.0007"])]
Tag = Annotated[str, Field(max_length=MAX_TAG_LENGTH)]


class Changed(BaseModel):
    """A run after a change."""

    id: str = Field(description="project/run", examples=["digits/digits-7f3a.0007"])
    lifecycle: str = Field(description="active, archived or deleted.", examples=["archived"])
    changed: bool = Field(description="False: it was so already.")


class Tagged(BaseModel):
    """A run's tags after a change."""

    id: str = Field(description="project/run", examples=["digits/digits-7f3a.0007"])
    tags: dict[str, str] = Field(description="All that it has.", examples=[{"paper": "figure 3"}])


@router.post("/{project}/{run}/archive", response_model=Changed)
@reads_store_and_writes
def archive(project: Project, run: RunId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Take a run out of the lists; nothing of it goes away. A filter that names ``lifecycle`` finds it."""
    return _become(state, caller, run_once, project, run, ARCHIVED)


@router.post("/{project}/{run}/delete", response_model=Changed)
@reads_store_and_writes
def delete(project: Project, run: RunId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Put a run into the trash.

    It can be restored until the days of the retention policy are over, and is removed then.

    One that is running, or that a champion, a staging version, a report or an open sweep reaches, is not
    deleted (422).
    """
    return _become(state, caller, run_once, project, run, DELETED)


@router.post("/{project}/{run}/restore", response_model=Changed)
@reads_store_and_writes
def restore(project: Project, run: RunId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Take a run back out of the trash or the archive."""
    return _become(state, caller, run_once, project, run, ACTIVE)


@router.post("/{project}/{run}/tags", response_model=Tagged)
@reads_store_and_writes
def tag(
    project: Project,
    run: RunId,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    tags: Annotated[
        dict[str, Tag | None],
        Body(
            embed=True,
            max_length=MAX_TAGS,
            description="By name; null takes one away.",
            examples=[{"paper": "figure 3", "wip": None}],
        ),
    ],
) -> Response:
    """Set a run's tags; those that are not named stay."""
    _check(project, run)

    def write(session: Session) -> tuple[int, dict[str, object]]:
        written = set_tags(session, state.store, project, run, tags, actor=caller.actor)
        return 200, {"id": f"{project}/{run}", "tags": written}

    return run_once(write)


def _become(
    state: State, caller: Caller, run_once: IdempotentWrite, project: str, run: str, lifecycle: Lifecycle
) -> Response:
    _check(project, run)

    def write(session: Session) -> tuple[int, dict[str, object]]:
        changed = set_lifecycle(session, state.store, project, run, lifecycle, actor=caller.actor)
        return 200, {"id": f"{project}/{run}", "lifecycle": lifecycle, "changed": changed}

    return run_once(write)


def _check(project: str, run: str) -> None:
    check_name("project", project)
    check_name("run id", run)
