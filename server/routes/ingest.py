"""Runs of clients that have no credentials of the store: begun, streamed in batches, ended.

See ``docs/ingest.md``.
"""

import hashlib
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from halving.errors import AlreadyExists
from halving.identifiers import check_name, new_id
from halving.query.runs import read_json
from halving.records.provenance import NOT_CAPTURED
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.sweep_spec.base import NoFlags
from server.access.policy import RoutePolicy
from server.access.project_limits import foreign_is_forbidden
from server.access.write_log import without_write_log
from server.answers import answer
from server.errors import problem
from server.identity.caller import Viewer
from server.ingest.batch import ARROW, JSON, MAX_BYTES, columns_of, decompress
from server.ingest.bodies import read_body
from server.ingest.points import Attempt, OutOfOrder
from server.ingest.record_files import check_status, check_storable
from server.state import Shared, State
from server.store_threads import reads_store_and_writes

router = APIRouter(prefix="/ingest", tags=["ingest"])
POLICIES = [RoutePolicy("/ingest", max_body=None), RoutePolicy("/ingest/", max_body=None)]

_BATCH: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            JSON: {
                "schema": {"type": "object"},
                "example": {
                    "points": [{"key": "loss", "step": 0, "value": 0.5, "wall_time": 1_763_900_000_000}]
                },
            },
        },
    }
}
Project = Annotated[str, Query(description="The run's project.", examples=["digits"])]
RunId = Annotated[str, Query(description="The run's id.", examples=["20261120-120000-0f3a5c"])]
Number = Annotated[
    int, Query(ge=1, le=999_999_999, description="The attempt, as the beginning gave it.", examples=[1])
]


class NewRun(NoFlags):
    """A run, or one more attempt at one, that begins."""

    model_config = ConfigDict(extra="forbid")

    project: str = Field(description="A name that groups runs.", examples=["digits"])
    run: str | None = Field(
        default=None, description="Its id; one that exists is continued. Null: a new one.", examples=[None]
    )
    params: dict[str, JsonValue] = Field(
        default={}, description="The hyperparameters; they never change.", examples=[{"lr": 0.01}]
    )
    tags: dict[str, str] = Field(default={}, description="Labels.", examples=[{"team": "vision"}])
    seed: int | None = Field(
        default=None, ge=-(2**63), lt=2**63, description="What the random generators were seeded with."
    )
    token: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description=(
            "Any text of your own: sent again with it, and with the run's id, this gives the same attempt "
            "and begins nothing."
        ),
        examples=["0f3a5c7d9b1e2f40"],
    )


class Begun(BaseModel):
    """An attempt that has begun, and the sequence of its next batch."""

    project: str = Field(examples=["digits"])
    run: str = Field(examples=["20261120-120000-0f3a5c"])
    attempt: int = Field(examples=[1])
    next: int = Field(description="The sequence of the next batch.", examples=[0])


class Taken(BaseModel):
    """A batch that is in the store."""

    points: int = Field(examples=[1000])
    next: int = Field(description="The sequence of the next batch.", examples=[1])


class End(NoFlags):
    """How an attempt ended."""

    model_config = ConfigDict(extra="forbid")

    project: str = Field(examples=["digits"])
    run: str = Field(examples=["20261120-120000-0f3a5c"])
    attempt: int = Field(ge=1, le=999_999_999, examples=[1])
    status: str = Field(
        default="finished", description="finished, failed, or another word.", examples=["finished"]
    )


@router.post("/begin", status_code=201, response_model=Begun)
@foreign_is_forbidden
@reads_store_and_writes
def begin(body: NewRun, state: Shared, caller: Viewer) -> Response:
    """Begin a run, or another attempt at one. It is on record when this is answered."""
    caller.check_writes(check_name("project", body.project))
    check_storable(body.params, "params")
    check_storable(body.tags, "tags")
    run = new_id()
    if body.run is not None:
        run = check_name("run id", body.run)
    began = {
        "provenance": NOT_CAPTURED,
        "seed": body.seed,
        "determinism": {},
        "started": now(),
        "token": body.token or secrets.token_hex(8),
    }
    parent = {}
    if body.tags:
        parent["tags"] = body.tags
    attempt = RunRecords(state.store, body.project, run).start(body.params, parent, None, began)
    following = state.ingested.next_sequence(Attempt(body.project, run, attempt))
    return answer({"project": body.project, "run": run, "attempt": attempt, "next": following}, 201)


@router.post("", response_model=Taken, openapi_extra=_BATCH, max_body_size=MAX_BYTES)
@without_write_log
@foreign_is_forbidden
async def ingest(
    request: Request,
    state: Shared,
    caller: Viewer,
    project: Project,
    run: RunId,
    attempt: Number,
    sequence: Annotated[
        int,
        Query(
            ge=0,
            le=999_999_999,
            description="Of the batch in its attempt, from 0 without gaps.",
            examples=[0],
        ),
    ],
    content_type: Annotated[str, Header(description=f"{ARROW} or {JSON}.")] = "",
    content_encoding: Annotated[str, Header(description="zstd, gzip or nothing.")] = "",
) -> Response:
    """Take a batch of points. It is durable when this is answered; sent again, it is there once.

    A batch whose sequence is not the next one is refused with 409, and ``next`` says which is. Where too much
    is being taken the answer is 429: send the same again after ``Retry-After`` seconds.
    """
    whose = Attempt(check_name("project", project), check_name("run id", run), attempt)
    async with read_body(request, state.ingest_memory, MAX_BYTES) as body:
        try:
            points = await state.ingest_threads.run(
                _append, state, whose, sequence, body, content_type, content_encoding
            )
        except OutOfOrder as error:
            return problem(409, str(error), next=error.next)
    return answer({"points": points, "next": sequence + 1})


@router.post("/end")
@foreign_is_forbidden
@reads_store_and_writes
def end(body: End, state: Shared, caller: Viewer) -> Response:
    """Say how an attempt ended, after its last batch. Said again it changes nothing."""
    caller.check_writes(check_name("project", body.project))
    status = check_status(body.status)
    whose = Attempt(body.project, check_name("run id", body.run), body.attempt)
    state.ingested.next_sequence(whose)
    records = RunRecords(state.store, whose.project, whose.run)
    try:
        records.end(whose.number, {"status": status})
    except AlreadyExists:
        ended = read_json(state.store, f"{records.folder}/end-{whose.number:04d}.json")
        if ended.get("status") != status:
            raise AlreadyExists(
                f"attempt {whose.number} of {whose.project}/{whose.run} has ended already, as "
                f"{ended.get('status')!r}"
            ) from None
    return answer({"project": whose.project, "run": whose.run, "attempt": whose.number, "status": status})


@router.get("", response_model=Begun)
@reads_store_and_writes
def position(state: Shared, caller: Viewer, project: Project, run: RunId, attempt: Number) -> Response:
    """The sequence of an attempt's next batch: where a client that was ended goes on."""
    whose = Attempt(check_name("project", project), check_name("run id", run), attempt)
    return answer(
        {"project": project, "run": run, "attempt": attempt, "next": state.ingested.next_sequence(whose)}
    )


def _append(state: State, whose: Attempt, sequence: int, body: bytes, media_type: str, encoding: str) -> int:
    content = decompress(body, encoding.strip().lower())
    columns = columns_of(content, media_type)
    digest = hashlib.sha256(content).hexdigest()
    state.ingested.append(whose, sequence, columns, digest)
    return len(columns.values)
