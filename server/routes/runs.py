"""The index of runs: which there are by a filter, groups of them, and what they have."""

import hashlib
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from halving.query import run_filter
from halving.query.run_filter import InvalidFilter, RunFilter
from halving.query.run_filter_parser import parse_fields, parse_filter
from resources.analysis.run_index.columns import select_columns
from resources.analysis.run_index.first_view import first_view
from resources.analysis.run_index.groups import select_groups
from resources.analysis.run_index.project_names import with_all_names
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.select import IndexState, select_page, state_of
from resources.tenancy.projects import names_of
from server.answers import IfNoneMatch, Number, answer, is_known
from server.identity.caller import Caller, Viewer
from server.state import Shared, State

router = APIRouter(prefix="/runs", tags=["runs"])

MAX_RUNS = 1_000
MAX_COLUMNS = 100
MAX_KEYS = 8
MAX_MEANS = 30
MAX_GROUPS = 1_000
MAX_LISTED = 20_000
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
        description=(
            f"Params, metrics and tags to give of each run, at most {MAX_COLUMNS}, as a filter names "
            "them, with commas between."
        ),
        examples=["params.lr,metrics.val_loss,min(metrics.val_loss),tags.team"],
    ),
]


class Run(BaseModel):
    """A run in the index. Times are in UTC."""

    id: str = Field(description="project/run", examples=["digits/digits-7f3a.0007"])
    project: str = Field(examples=["digits"])
    run: str = Field(examples=["digits-7f3a.0007"])
    status: str = Field(
        description=(
            "finished, failed, paused, stopped (a trial that never goes on), crashed, running, unfinished, "
            "or the script's choice."
        ),
        examples=["finished"],
    )
    lifecycle: str = Field(
        description="active, archived or deleted; a filter that does not name it chooses active runs.",
        examples=["active"],
    )
    started: datetime
    ended: datetime | None = Field(description="When the newest attempt ended.")
    seconds: float | None = Field(
        description="Time of all attempts together; of a running one, until something was last read of it."
    )
    epoch: int | None = Field(description="Epochs completed.", examples=[9])
    attempt: int = Field(description="The newest attempt, from 1.", examples=[1])
    sweep: str | None = Field(examples=["digits-7f3a"])
    trial: int | None = Field(examples=[7])
    dataset: str | None = Field(examples=["digits"])
    snapshot: str | None = Field(
        description="The digest of the dataset's snapshot.", examples=["sha256:5feceb66…"]
    )
    commit: str | None
    seed: int | None
    model: str | None = Field(
        description="The model that a checkpoint of it was promoted to.", examples=["digits"]
    )
    version: str | None = Field(description="The version of that model.", examples=["1.0.0"])
    stage: str | None = Field(description="That version's stage.", examples=["champion"])
    values: dict[str, int | Number | str | bool] = Field(
        description="What it has of the columns asked for.",
        examples=[{"params.lr": 0.001, "metrics.val_loss": 0.23}],
    )


class View(BaseModel):
    """What the table of runs shows."""

    filter: str = Field(examples=["order by metrics.val_loss"])
    columns: list[str] = Field(examples=[["metrics.val_loss", "params.lr"]])


class Runs(BaseModel):
    """A page of runs."""

    total: int = Field(description="How many runs the filter chooses.", examples=[1])
    revision: int = Field(description="Counts the changes of the index.", examples=[42])
    indexed_at: datetime | None = Field(
        description="When the index was last found complete; a 304 does not say that it was again."
    )
    runs: list[Run]
    view: View | None = Field(
        default=None,
        description="Asked for by first_view: the filter and columns that were chosen, if any were.",
    )


class Statistics(BaseModel):
    """Statistics of the finite numbers that a group's runs have."""

    mean: float = Field(examples=[0.23])
    std: float | None = Field(
        description="The sample's standard deviation; null of a single number.", examples=[0.02]
    )
    count: int = Field(examples=[5])


class Group(BaseModel):
    """Runs that are equal in some fields."""

    key: dict[str, int | Number | str | bool | None] = Field(examples=[{"params.optimizer": "adam"}])
    count: int = Field(description="How many runs.", examples=[5])
    values: dict[str, Statistics] = Field(
        examples=[{"metrics.val_loss": {"mean": 0.23, "std": 0.02, "count": 5}}]
    )


class Groups(BaseModel):
    """The largest groups first."""

    groups: list[Group]
    revision: int = Field(description="Counts the changes of the index.", examples=[42])


class RunField(BaseModel):
    """What every run has."""

    name: str = Field(examples=["status"])
    type: Literal["text", "number", "time"] = Field(examples=["text"])
    about: str = Field(examples=["the project"])


class Name(BaseModel):
    """A param, metric or tag."""

    name: str = Field(examples=["optimizer/lr"])
    count: int = Field(description="How many runs have it.", examples=[27])
    type: Literal["number", "text", "bool", "mixed"] = Field(examples=["number"])


class ColumnNames(BaseModel):
    """What runs can be asked for; of params, metrics and tags those that most runs have come first."""

    fields: list[RunField]
    params: list[Name]
    metrics: list[Name]
    tags: list[Name]
    revision: int = Field(description="Counts the changes of the index.", examples=[42])


async def _index_turn(state: Shared, caller: Viewer) -> AsyncIterator[None]:
    async with state.index_queue.turn(caller.actor):
        yield


# A turn ends with the query, not when a slow client has received its answer.
_IN_TURN = [Depends(_index_turn, scope="function")]


@router.get("", response_model=Runs, dependencies=_IN_TURN)
def list_runs(
    state: Shared,
    caller: Viewer,
    filter_text: FilterText = "",
    project: Project = None,
    columns: Columns = "",
    first: Annotated[
        bool,
        Query(
            alias="first_view",
            description=(
                "Choose filter and columns: the newest sweep's objective, best first, and what it varies."
            ),
        ),
    ] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 200,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A page of the runs that a filter chooses.

    Asked again with ``If-None-Match`` it answers 304 as long as no run has changed.
    """
    if first and (filter_text or columns):
        raise InvalidInput(
            "first_view = true is not accepted beside filter or columns: it chooses both; give one or the "
            "other"
        )
    with reading(state.catalog) as session:
        projects = _projects(session, caller, project)
        view = None
        if first:
            view = first_view(session, projects)
        if view:
            filter_text = view.filter
            columns = ",".join(view.columns)
        chosen = with_all_names(session, _filter(filter_text))
        fields = _fields("columns", columns, MAX_COLUMNS)
        index = state_of(session)
        # A first view has the tag of the question that it chose, so that who asks that next has the answer
        # already.
        tag = etag(state, index, chosen, fields, projects, limit, offset)
        if is_known(tag, if_none_match):
            return Response(status_code=304, headers=_headers(tag))
        page = select_page(session, chosen, columns=fields, projects=projects, limit=limit, offset=offset)
    content: dict[str, Any] = {
        "total": page.total,
        "revision": index.revision,
        "indexed_at": index.refreshed_at,
        "runs": page.runs,
    }
    if view:
        content["view"] = view._asdict()
    return answer(content, headers=_headers(tag))


@router.get("/groups", response_model=Groups, dependencies=_IN_TURN)
def group_runs(
    state: Shared,
    caller: Viewer,
    by: Annotated[
        str,
        Query(
            description=f"What runs of a group are equal in, at most {MAX_KEYS} fields.",
            examples=["params.optimizer"],
        ),
    ],
    filter_text: FilterText = "",
    project: Project = None,
    columns: Annotated[
        str,
        Query(description=f"Numbers to give means of, at most {MAX_MEANS}.", examples=["metrics.val_loss"]),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_GROUPS)] = 200,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Groups of the runs that a filter chooses, with mean and standard deviation of numeric columns."""
    keys = _fields("by", by, MAX_KEYS)
    if not keys:
        raise InvalidInput(
            "by '' is not accepted: give the fields that runs of a group are equal in, with commas between"
        )
    chosen = _filter(filter_text)
    fields = _fields("columns", columns, MAX_MEANS)
    with reading(state.catalog) as session:
        chosen = with_all_names(session, chosen)
        projects = _projects(session, caller, project)
        index = state_of(session)
        tag = etag(state, index, "groups", keys, chosen, fields, projects, limit)
        if is_known(tag, if_none_match):
            return Response(status_code=304, headers=_headers(tag))
        groups = select_groups(session, chosen, keys, columns=fields, projects=projects, limit=limit)
    return answer({"groups": groups, "revision": index.revision}, headers=_headers(tag))


@router.get("/columns", response_model=ColumnNames, dependencies=_IN_TURN)
def list_columns(
    state: Shared,
    caller: Viewer,
    filter_text: FilterText = "",
    project: Project = None,
    prefix: Annotated[
        str,
        Query(description="Only names that begin so, in any case.", max_length=500, examples=["metrics.val"]),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="Names of each kind at most.")] = 1_000,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """What a filter, an order or a column may name: of the runs that a filter chooses, or of all."""
    chosen = _filter(filter_text)
    with reading(state.catalog) as session:
        chosen = with_all_names(session, chosen)
        projects = _projects(session, caller, project)
        index = state_of(session)
        tag = etag(state, index, "columns", chosen, prefix, projects, limit)
        if is_known(tag, if_none_match):
            return Response(status_code=304, headers=_headers(tag))
        names = select_columns(session, chosen, prefix=prefix, projects=projects, limit=limit)
    return answer({**names, "revision": index.revision}, headers=_headers(tag))


def etag(state: State, index: IndexState, *question: Any) -> str:
    """The ETag of an answer from the index.

    The key tells catalogs apart.
    """
    content = repr((state.signing_key, index.versions, *question)).encode()
    return f'"{index.revision}-{hashlib.sha256(content).hexdigest()[:16]}"'


def _headers(tag: str) -> dict[str, str]:
    return {"ETag": tag, "Cache-Control": "private, no-cache"}


def _filter(text: str) -> RunFilter:
    # To the minute: `7d ago` must not be another filter each second, or no answer would ever be known
    # already.
    return parse_filter(text, now=datetime.now(UTC).replace(second=0, microsecond=0))


def _fields(name: str, text: str, limit: int) -> tuple[run_filter.Field, ...]:
    try:
        fields = parse_fields(text)
    except InvalidFilter as error:  # a place in this text, not in the filter
        raise InvalidInput(
            f"{name} {text!r} is not accepted, column {error.column}: {error.reason}"
        ) from None
    if len(fields) > limit:
        raise InvalidInput(f"{name} of {len(fields)} fields is not accepted: give at most {limit}")
    return fields


def _projects(session: Session, caller: Caller, project: str | None) -> Collection[str] | None:
    if project is not None:
        caller.check(project)
        return names_of(session, project)
    return caller.visible_projects
