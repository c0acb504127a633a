"""Runs: which there are by a filter, groups of them, what they have, one as a whole, and what differs between several."""

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from halving.errors import InvalidInput
from halving.query import run_filter
from halving.query.run_filter import RunFilter
from halving.query.run_filter_parser import parse_fields, parse_filter
from resources.analysis.run_index.select import revision_of, select_page
from server.access.caller import Caller, Viewer
from server.answers import answer
from server.state import Shared

router = APIRouter(prefix="/runs", tags=["runs"])

MOST_RUNS, MOST_COLUMNS = 1_000, 100
Number = float | Literal["NaN", "Infinity", "-Infinity"]
FilterText = Annotated[
    str,
    Query(
        alias="filter",
        description="Which runs, in which order: see docs/filter.md. Empty is all, newest first.",
        examples=["params.lr between 1e-4 and 1e-3 and status = finished order by metrics.val_loss"],
    ),
]
Project = Annotated[str | None, Query(description="Only runs of this project.", examples=["digits"])]
Columns = Annotated[
    str,
    Query(
        description=f"Params, metrics and tags to give of each run, at most {MOST_COLUMNS}, as a filter names them, with commas between.",
        examples=["params.lr,metrics.val_loss,min(metrics.val_loss),tags.team"],
    ),
]
Known = Annotated[str | None, Header(alias="If-None-Match", description="The ETag of the answer that is known already.")]


class Run(BaseModel):
    """A run in the index. Times are in UTC."""

    id: str = Field(description="project/run", examples=["digits/digits-7f3a.0007"])
    project: str = Field(examples=["digits"])
    run: str = Field(examples=["digits-7f3a.0007"])
    status: str = Field(
        description="finished, failed, paused, crashed, running, unfinished, or what the script chose.", examples=["finished"]
    )
    started: datetime
    ended: datetime | None = Field(description="When the newest attempt ended.")
    seconds: float | None = Field(description="Time of all attempts together; of a running one, until something was last read of it.")
    epoch: int | None = Field(description="Epochs completed.", examples=[9])
    attempt: int = Field(description="The newest attempt, from 1.", examples=[1])
    sweep: str | None = Field(examples=["digits-7f3a"])
    trial: int | None = Field(examples=[7])
    dataset: str | None = Field(examples=["digits"])
    snapshot: str | None = Field(description="The digest of the dataset's snapshot.", examples=["sha256:5feceb66…"])
    commit: str | None
    seed: int | None
    model: str | None = Field(description="The model that a checkpoint of it was promoted to.", examples=["digits"])
    version: str | None = Field(description="The version of that model.", examples=["1.0.0"])
    stage: str | None = Field(description="That version's stage.", examples=["champion"])
    values: dict[str, Number | str | bool] = Field(
        description="What it has of the columns asked for.", examples=[{"params.lr": 0.001, "metrics.val_loss": 0.23}]
    )


class Runs(BaseModel):
    """A page of runs."""

    total: int = Field(description="How many runs the filter chooses.", examples=[1])
    revision: int = Field(description="Counts the changes of the index.", examples=[42])
    indexed_at: datetime | None = Field(description="When the index was last found complete.")
    runs: list[Run]


@router.get("", response_model=Runs)
def list_runs(
    state: Shared,
    caller: Viewer,
    filter_text: FilterText = "",
    project: Project = None,
    columns: Columns = "",
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS)] = 200,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    known: Known = None,
) -> Response:
    """A page of the runs that a filter chooses.

    Asked again with ``If-None-Match`` it answers 304 as long as no run has changed.
    """
    chosen, fields, projects = _filter(filter_text), _fields(columns), _projects(caller, project)
    with state.catalog.read() as session:
        revision, refreshed_at = revision_of(session)
        tag = etag(revision, chosen, fields, projects, limit, offset)
        if known and tag in known:
            return Response(status_code=304, headers=_headers(tag))
        page = select_page(session, chosen, columns=fields, projects=projects, limit=limit, offset=offset)
    indexed_at = None if refreshed_at is None else datetime.fromtimestamp(refreshed_at, UTC)
    return answer({"total": page.total, "revision": revision, "indexed_at": indexed_at, "runs": page.runs}, headers=_headers(tag))


def etag(revision: int, *asked: Any) -> str:
    """The tag of an answer from the index: while it is the same, so is the answer."""
    return f'"{revision}-{hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}"'


def _headers(tag: str) -> dict[str, str]:
    return {"ETag": tag, "Cache-Control": "private, no-cache"}


def _filter(text: str) -> RunFilter:
    # To the minute: `7d ago` must not be another filter each second, or no answer would ever be known already.
    return parse_filter(text, now=datetime.now(UTC).replace(second=0, microsecond=0))


def _fields(text: str) -> tuple[run_filter.Field, ...]:
    fields = parse_fields(text)
    if len(fields) > MOST_COLUMNS:
        raise InvalidInput(f"columns are {len(fields)}, which is not accepted: give at most {MOST_COLUMNS}")
    return fields


def _projects(caller: Caller, project: str | None) -> Collection[str] | None:
    if project is not None:
        caller.check(project)
        return [project]
    return None if caller.projects is None else sorted(caller.projects)
