"""A run, a view or a sweep as one HTML file to take along."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from halving.errors import InvalidInput
from server.identity.caller import Viewer
from server.media.inert import OCTETS, inert_headers
from server.sharing.page import build_page
from server.sharing.target import Target
from server.state import Shared

router = APIRouter(tags=["sharing"])
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The page, as a file to save.", "content": {"text/html": {}}},
    404: {"description": "No such run or sweep, or none that the view shows."},
}
_NOT_NAME = re.compile(r"[^\w.-]+")
_MAX_NAME = 80


@router.get("/shared-page", response_class=Response, responses=_ANSWERS)
async def shared_page(
    state: Shared,
    caller: Viewer,
    run: Annotated[
        str | None, Query(description="A run, PROJECT/RUN.", examples=["digits/digits-7f3a.0007"])
    ] = None,
    sweep: Annotated[str | None, Query(description="A sweep's id.", examples=["digits-7f3a"])] = None,
    view: Annotated[
        str | None,
        Query(
            description="Runs, by the query of the Compare page.",
            examples=["filter=project = digits order by metrics.loss&top=20"],
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        Query(description="The metrics of the charts; else those of the view.", examples=[["loss"]]),
    ] = None,
    title: Annotated[str, Query(max_length=200, examples=["Baselines"])] = "",
) -> Response:
    """One HTML file with runs, their curves and tables, which opens without a network.

    Give one of ``run``, ``sweep`` and ``view``. The file has at most 3 MB; curves have as many rows as fit,
    at most 1,000 each.
    """
    named = {"run": run, "sweep": sweep, "view": view}
    chosen = [(kind, name) for kind, name in named.items() if name is not None]
    if len(chosen) != 1:
        kinds = " and ".join(kind for kind, _ in chosen)
        raise InvalidInput(f"{kinds or 'nothing'} is not accepted: give one of run, sweep and view")
    kind, name = chosen[0]
    target = Target(
        kind=kind,  # type: ignore[arg-type]
        name=name,
        metrics=tuple(key or ()),
        projects=caller.projects,
        title=title,
        made_by=caller.actor,
    )
    async with state.page_queue.turn(caller.actor):
        html = await state.store_threads.read(build_page, state.store, state.catalog, target)
    headers = inert_headers(OCTETS, f"{_file_name(title or name)}.html")
    headers |= {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "private, no-store"}
    return Response(html, headers=headers)


def _file_name(text: str) -> str:
    return _NOT_NAME.sub("-", text).strip("-.")[:_MAX_NAME] or "runs"
