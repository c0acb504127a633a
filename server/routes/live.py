"""Live streams as server-sent events: the points that runs log, their states and their ends.

Events: ``run``, a run's state, at first and when it changes; ``points`` of one run and key, in the order of
logging; ``ready``, when what is there already has been sent; ``end`` of a run; ``at``, which only carries the
``id`` of all before it; ``resync``, after which curves must be read again, of one run where the data names
it.

Open the stream, wait for ``ready``, then ask for the curves: what is logged meanwhile is in the stream. After
a cut the stream goes on behind the last ``id``. A point may come twice. So keep, at each step, the value of
the highest attempt, and within it the one that came last.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Query
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from halving.errors import InvalidInput
from server.chosen_runs import find_runs, parse_runs
from server.errors import RETRY_SECONDS
from server.identity.caller import LOCAL, Caller, Viewer
from server.live.cursor import cursor_of, positions_of
from server.live.hub import MAX_KEYS, MAX_RUNS, TooManyStreams
from server.live.subscription import Subscription
from server.state import Shared, State

router = APIRouter(tags=["live"])
_PING_SECONDS = 15.0
# The second header keeps nginx from holding events back.
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {}}}
}
_Keys = Annotated[
    list[str], Query(description="Names of metrics.", max_length=MAX_KEYS, examples=[["val_loss"]])
]
_Last = Annotated[
    str | None, Header(description="The id of the last event that was seen; a browser sends it by itself.")
]
_Cursor = Annotated[str | None, Query(description="The same, for a client that cannot set a header.")]


async def _subscribe_to_runs(
    state: Shared,
    caller: Viewer,
    key: _Keys,
    run: Annotated[
        tuple[str, ...], Query(description="Ids, PROJECT/RUN.", examples=[["digits/digits-7f3a.0007"]])
    ] = (),
    filter_text: Annotated[
        str | None, Query(alias="filter", description="Instead of run: the runs that a filter finds now.")
    ] = None,
    top: Annotated[
        int, Query(ge=1, le=MAX_RUNS, description="How many of them, in the filter's order.")
    ] = 100,
    cursor: _Cursor = None,
    last_event_id: _Last = None,
) -> AsyncIterator[Subscription]:
    if bool(run) == (filter_text is not None):
        raise InvalidInput(
            f"{len(run)} runs and the filter {filter_text!r} are not accepted: give either of them"
        )
    runs: Sequence[str] = run
    if filter_text is not None:
        runs = await find_runs(state, caller, filter_text, top)
    async with _subscribe(state, caller, runs, key, last_event_id or cursor, history=False) as subscription:
        yield subscription


async def _subscribe_to_run(
    state: Shared,
    caller: Viewer,
    project: str,
    run: str,
    key: _Keys,
    cursor: _Cursor = None,
    last_event_id: _Last = None,
) -> AsyncIterator[Subscription]:
    async with _subscribe(
        state, caller, [f"{project}/{run}"], key, last_event_id or cursor, history=True
    ) as subscription:
        yield subscription


@asynccontextmanager
async def _subscribe(
    state: State,
    caller: Caller,
    runs: Sequence[str],
    keys: Sequence[str],
    cursor: str | None,
    *,
    history: bool,
) -> AsyncIterator[Subscription]:
    """Open a stream, and end it when the client has gone."""
    chosen = parse_runs(caller, runs)
    if len(chosen) > MAX_RUNS:
        raise InvalidInput(f"{len(chosen)} runs are not accepted: a stream is of at most {MAX_RUNS}")
    client = None
    if caller != LOCAL:
        client = caller.actor
    try:
        after = None
        if cursor:
            after = positions_of(cursor)
        subscription = await state.live.open(chosen, keys, after, client=client, history=history)
    except TooManyStreams as error:
        raise HTTPException(429, str(error), {"Retry-After": str(RETRY_SECONDS)}) from None
    try:
        yield subscription
    finally:
        state.live.leave(subscription)


@router.get("/live", response_class=StreamingResponse, responses=_STREAM)
async def live(
    _: Viewer, subscription: Annotated[Subscription, Depends(_subscribe_to_runs)]
) -> EventSourceResponse:
    """What several runs log from now on, in one stream, because a browser keeps six connections at most."""
    return EventSourceResponse(_stream(subscription), headers=_HEADERS)


@router.get("/training-runs/{project}/{run}/metrics", response_class=StreamingResponse, responses=_STREAM)
async def metrics(subscription: Annotated[Subscription, Depends(_subscribe_to_run)]) -> EventSourceResponse:
    """What one run has logged and logs, from its beginning to its end."""
    return EventSourceResponse(_stream(subscription, until="end"), headers=_HEADERS)


async def _stream(subscription: Subscription, until: str | None = None) -> AsyncIterator[bytes]:
    """The bytes of a stream.

    All events that wait for a client are sent together, which takes a tenth of the time of sending them one
    by one.

    The cursor is in an event after them: a stream that is cut before it gets all of them again. Many events
    come in several parts, the cursor after the last.

    Args:
        until: the event that is the last.
    """
    name: str | None = "ready"
    over = False
    waiting = asyncio.ensure_future(subscription.next())
    try:
        while True:
            await asyncio.wait([waiting], timeout=_PING_SECONDS)
            if not waiting.done():
                yield KEEPALIVE_COMMENT
                continue
            if (batch := waiting.result()) is None:
                return
            events, positions = batch
            sent = [event.sent for event in events]
            if positions is not None:
                sent.append(format_sse_event(event=name or "at", data_str="{}", id=cursor_of(positions)))
                name = None
            over = over or any(event.name == until for event in events)
            yield b"".join(sent)
            if over and positions is not None:
                return
            waiting = asyncio.ensure_future(subscription.next())
    finally:
        waiting.cancel()
