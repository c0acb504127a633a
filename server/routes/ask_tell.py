"""Ask and tell: external loops take a study's trials, and tell what they reach.

Every request may be sent again.
"""

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial, wraps
from hashlib import sha256
from secrets import token_hex
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Body, Depends, Header, Path, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from halving.errors import NotFound
from resources.catalog.pipelined import Statement
from resources.execution.external_loops import LEASE_SECONDS, MAX_LEASE_SECONDS, ExternalLoops, Verdict
from resources.search.decide import Finish, Wait
from resources.sweep_spec.base import Digest, NoFlags
from server.access.write_log import RECORDED, WriteLog, without_write_log
from server.answers import answer
from server.errors import problem
from server.identity.caller import Caller, Viewer
from server.routes.sweeps import StudyId, check_opens, sweep_of
from server.state import Shared, State

router = APIRouter(prefix="/hpo/studies/{study}", tags=["ask and tell"])

RETRY_SECONDS = 1
HELD_BACK = "Held-Back"
MAX_VALUES = 1_000
MAX_NAME_LETTERS = 500
TrialNumber = Annotated[int, Path(ge=0, lt=2**31, description="The trial's number.", examples=[7])]
Lease = Annotated[
    float,
    Field(
        ge=1,
        le=MAX_LEASE_SECONDS,
        description="Seconds that the loop may be silent before the trial is given to another.",
    ),
]
MetricName = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LETTERS)]


class Report(NoFlags):
    """What is said about one attempt at a trial."""

    model_config = ConfigDict(extra="forbid")

    attempt: int = Field(ge=1, lt=2**31, description="As it was handed out.", examples=[1])
    lease_seconds: Lease = LEASE_SECONDS


class Progress(Report):
    """What a trial has reached."""

    epoch: int = Field(ge=1, lt=2**31, description="Epochs that are trained.", examples=[3])
    values: dict[MetricName, Annotated[float | bool, AfterValidator(float)]] = Field(
        description=(
            "The objectives, each as it counts at this epoch, and the metrics that the spec bounds. Others "
            "are kept where finite."
        ),
        max_length=MAX_VALUES,
        examples=[{"val_loss": 0.31}],
    )
    checkpoint: Digest | None = Field(
        default=None, description="Digest of the checkpoint, if there is one; it must be in the store."
    )


class Failure(Report):
    """Why a trial has failed."""

    error: str = Field(min_length=1, max_length=20_000, examples=["CUDA out of memory"])
    final: bool = Field(default=False, description="Whether it would fail again: it is not tried again then.")


class Assignment(BaseModel):
    """A trial to train."""

    trial: int = Field(examples=[7])
    key: str = Field(description="Its run's id, if the loop records one.", examples=["digits-7f3a.0007"])
    attempt: int = Field(examples=[1])
    params: dict[str, Any] = Field(examples=[{"lr": 0.01}])
    seed: int
    epoch: int = Field(description="Epochs that were told of already.", examples=[0])
    epochs: int = Field(description="Train up to this one in all, then tell.", examples=[3])
    checkpoint: str | None = Field(description="The checkpoint that was told last.")
    lease_until: float | None = Field(
        description="Seconds since 1970; tell something by then, or send a heartbeat. Null: the attempt "
        "that was asked for again is over, and nothing is left to train."
    )


class Answer(BaseModel):
    """What to do with a trial."""

    decision: str = Field(
        description="continue (up to `epochs`), pause, stop, complete or retry.", examples=["continue"]
    )
    epochs: int = Field(description="Epochs that are granted in all.", examples=[9])
    lease_until: float | None
    reason: str | None


_OVER: dict[int | str, dict[str, Any]] = {
    204: {
        "description": "Nothing is to be done now; ask again after Retry-After seconds.",
        "headers": {
            HELD_BACK: {
                "description": (
                    "Why the study is paused: its project's GPU-hours are used up, or its user wants that. "
                    "Absent otherwise."
                ),
                "schema": {"type": "string"},
            }
        },
    },
    410: {"description": "The search is over."},
}


def _in_turn(route: Callable[..., Response]) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Answer loops in the order in which they come, and few at a time.

    A thousand loops must not hold all threads while one study decides.
    """

    @wraps(route)
    async def in_turn(**arguments: Any) -> Response:
        async with arguments["state"].loop_queue.turn(arguments["study"]):
            return await anyio.to_thread.run_sync(partial(route, **arguments))

    return in_turn


@router.post("/ask", response_model=Assignment, responses=_OVER)
@without_write_log
@_in_turn
def ask(
    study: StudyId,
    state: Shared,
    caller: Viewer,
    lease_seconds: Annotated[Lease, Body(embed=True)] = LEASE_SECONDS,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Any text of your own: the same key gets the same trial.",
            min_length=1,
            max_length=255,
        ),
    ] = None,
) -> Response:
    """The next trial to train.

    Neither a suggestion nor the study's opening is waited for: 204 says when to ask again, and in `Held-Back`
    why, if the study is paused.
    """
    try:
        loop = _loop(state, caller, study)
    except NotFound:
        check_opens(state, caller, study)
        return _nothing_now()
    key = token_hex(16)
    if idempotency_key:
        key = sha256(idempotency_key.encode()).hexdigest()[:32]
    assignment = loop.ask(f"{caller.actor} {key}", lease_seconds, again=idempotency_key is not None)
    if isinstance(assignment, Finish):
        return problem(410, f"the search of study {study} is over")
    if isinstance(assignment, Wait):
        return _nothing_now(loop.held_back)
    return answer(asdict(assignment))


def _nothing_now(held_back: str | None = None) -> Response:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    if held_back:
        headers[HELD_BACK] = held_back
    return Response(status_code=204, headers=headers)


async def _is_stored(body: Progress, state: Shared) -> bool:
    """Whether the body's checkpoint is in the store; looked up in the store's threads."""
    return body.checkpoint is not None and await state.store_threads.run(
        state.store.has_blob, body.checkpoint
    )


@router.post("/trials/{number}/tell", response_model=Answer)
@without_write_log
@_in_turn
def tell(
    study: StudyId,
    number: TrialNumber,
    body: Progress,
    state: Shared,
    caller: Viewer,
    stored: Annotated[bool, Depends(_is_stored)],
) -> Response:
    """Say what a trial has reached.

    At the granted epoch it is decided whether it goes on; before, only its lease is renewed.
    """
    loop = _loop(state, caller, study)
    return _answer(
        loop.tell(
            number, body.attempt, body.epoch, body.values, body.checkpoint, body.lease_seconds, stored=stored
        )
    )


@router.post("/trials/{number}/heartbeat", response_model=Answer)
@without_write_log
@_in_turn
def heartbeat(study: StudyId, number: TrialNumber, body: Report, state: Shared, caller: Viewer) -> Response:
    """Renew the lease of a trial in training. `pause`: the study's user wants it back."""
    return _answer(_loop(state, caller, study).heartbeat(number, body.attempt, body.lease_seconds))


@router.post("/trials/{number}/fail", response_model=Answer)
@_in_turn
def fail(
    study: StudyId, number: TrialNumber, body: Failure, state: Shared, caller: Viewer, request: Request
) -> Response:
    """Say that a trial has failed.

    `retry`: it will be handed out again, at most `max_retries` times; `stop`: it is given up.
    """
    loop = _loop(state, caller, study)
    return _end(
        request, lambda also: loop.fail(number, body.attempt, body.error, final=body.final, also=also)
    )


@router.post("/trials/{number}/release", response_model=Answer)
@_in_turn
def release(
    study: StudyId, number: TrialNumber, body: Report, state: Shared, caller: Viewer, request: Request
) -> Response:
    """Give a trial back, which is no failure: it will be handed out again."""
    loop = _loop(state, caller, study)
    return _end(request, lambda also: loop.release(number, body.attempt, also=also))


def _loop(state: State, caller: Caller, study: str) -> ExternalLoops:
    if caller.projects is not None:
        sweep_of(state, caller, study)
    return state.studies.of(study)


def _end(request: Request, end: Callable[[list[Statement]], Verdict]) -> Response:
    """End an attempt and record in the same transaction who ended it.

    Sent again, it does nothing and records nothing.
    """
    write_log: WriteLog = request.app.state.write_log
    verdict = end([write_log.entry(request.scope, 200)])
    request.scope[RECORDED] = True
    return _answer(verdict)


def _answer(verdict: Verdict) -> Response:
    return answer(asdict(verdict))
