"""Curves of many runs at once, as typed arrays for the page, as Arrow for Python, as JSON for people.

The routes are coroutines, because a request that waits for its turn must not hold one of the server's
threads.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from halving.errors import InvalidInput, NotFound
from server.access.policy import RoutePolicy
from server.answers import IfNoneMatch, chosen_type
from server.chosen_runs import find_runs, parse_runs
from server.curves.answer import ARROW, BINARY, JSON
from server.curves.limits import Overloaded
from server.curves.question import Axis, Question
from server.errors import RETRY_SECONDS, error_responses, problem
from server.identity.caller import Caller, Viewer
from server.state import Shared, State

router = APIRouter(tags=["curves"])
POLICIES = [RoutePolicy("/curves", reads=True)]
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The curves, in the encoding that Accept names.",
        "content": {kind: {} for kind in (BINARY, ARROW, JSON)},
    },
    304: {"description": "Nothing is new since the answer that If-None-Match names."},
    404: {"description": "No such run."},
    **error_responses(406),
    503: {"description": "It took too long; Retry-After says when to ask again."},
}
_MAX_HEADER_LETTERS = 200  # characters of a header
_Accept = Annotated[str, Header(description="The encoding, with qualities; JSON where nothing decides.")]


@router.get("/curves", responses=_ANSWERS, response_class=Response)
async def get_curves(
    state: Shared,
    caller: Viewer,
    key: Annotated[list[str], Query(description="Names of metrics.", examples=[["val_loss"]])],
    run: Annotated[
        tuple[str, ...], Query(description="Ids, PROJECT/RUN.", examples=[["digits/digits-7f3a.0007"]])
    ] = (),
    filter_text: Annotated[
        str | None, Query(alias="filter", description="Instead of run: the runs that a filter finds.")
    ] = None,
    top: Annotated[int, Query(description="How many of them, in the filter's order.")] = 100,
    x: Axis = "step",
    max_points: int = 1_000,
    low: float | None = None,
    high: float | None = None,
    edges: Literal["whole", "exact"] = "whole",
    accept: _Accept = JSON,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Curves of runs by their ids or by a filter.

    Runs come in the order in which they are asked for or found, and the curves of a run by key.
    """
    fields: dict[str, Any] = {
        "runs": run,
        "filter": filter_text,
        "top": top,
        "keys": key,
        "x": x,
        "max_points": max_points,
    }
    fields |= {"low": low, "high": high, "edges": edges}
    try:
        question = Question.model_validate(fields)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise RequestValidationError(
            [{**entry, "loc": ("query", *entry["loc"])} for entry in errors]
        ) from None
    return await _answer(state, caller, question, accept, if_none_match)


@router.post("/curves", responses=_ANSWERS, response_class=Response)
async def post_curves(
    state: Shared,
    caller: Viewer,
    question: Question,
    accept: _Accept = JSON,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """As the GET, for more ids than a URL holds. It changes nothing."""
    return await _answer(state, caller, question, accept, if_none_match)


async def _answer(
    state: State, caller: Caller, question: Question, accept: str, if_none_match: str | None
) -> Response:
    kind = chosen_type(accept, (JSON, BINARY, ARROW))
    if kind is None:
        return problem(
            406,
            f"Accept {accept[:_MAX_HEADER_LETTERS]!r} names nothing that curves are given as: "
            f"send {JSON}, {BINARY} or {ARROW}",
        )
    if bool(question.runs) == (question.filter is not None):
        raise InvalidInput(
            f"{len(question.runs)} runs and the filter {question.filter!r} are not accepted: give either "
            "of them"
        )
    runs: Sequence[str] = question.runs
    if question.filter is not None:
        runs = await find_runs(state, caller, question.filter, question.top)
    try:
        answer = await state.curves.answer(question, parse_runs(caller, runs), kind, if_none_match)
    except NotFound as error:
        if caller.projects is None:
            raise
        # The message may name what others have.
        raise NotFound("no such run, or no such metric of it") from error
    except Overloaded as error:
        return problem(503, str(error), {"Retry-After": str(RETRY_SECONDS)})
    headers = {"ETag": answer.tag, "Cache-Control": "private, no-cache", "Vary": "Accept"}
    if answer.body is None:
        return Response(status_code=304, headers=headers)
    return Response(answer.body, headers=headers, media_type=kind)
