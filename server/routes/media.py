"""Media of runs, and the bytes of what their records name: images, tables, artifacts, checkpoints."""

import hashlib
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from halving.errors import InvalidInput, NotFound
from halving.store.store import blob_name
from server.answers import IfNoneMatch, answer, is_known
from server.checkpoint_downloads import checkpoint_response
from server.chosen_runs import parse_runs
from server.errors import problem
from server.identity.caller import Viewer
from server.media.inert import KEPT, PAGE_HEADERS, inert_headers
from server.media.pieces import pieces
from server.media.records import media_of, named_blob
from server.media.tables import MAX_ROWS, table_rows
from server.state import Shared
from server.store_threads import reads_store

router = APIRouter(tags=["media"])
MAX_RUNS = 100
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Nothing is new since the answer that If-None-Match names."}
}
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}},
    206: {"description": "The range asked for."},
}
Digest = Annotated[
    str,
    Path(
        description="sha256:HEX",
        examples=["sha256:5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"],
    ),
]
Namer = Annotated[
    str,
    Query(description="The run whose records name it, PROJECT/RUN.", examples=["digits/digits-7f3a.0007"]),
]


@router.get(
    "/media", response_class=Response, responses={200: {"content": {"application/json": {}}}, **_UNCHANGED}
)
@reads_store
def media(
    state: Shared,
    caller: Viewer,
    run: Annotated[
        list[str],
        Query(description="Ids, PROJECT/RUN.", max_length=MAX_RUNS, examples=[["digits/digits-7f3a.0007"]]),
    ],
    key: Annotated[tuple[str, ...], Query(description="Only these keys.", examples=[["samples"]])] = (),
    limit: Annotated[int, Query(ge=1, le=10_000, description="The most to give.")] = 1_000,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """What runs have logged besides numbers, by run, key and step; ``url`` gives the bytes.

    ``more``: there are others than these.

    Asked again with ``If-None-Match`` it answers 304 as long as there is nothing new.
    """
    rows: list[dict[str, Any]] = []
    for project, name in sorted(parse_runs(caller, run)):
        rows += media_of(state.store, state.records, project, name, frozenset(key), limit + 1 - len(rows))
        if len(rows) > limit:
            break
    response = answer({"media": rows[:limit], "more": len(rows) > limit})
    headers = {
        "ETag": f'"{hashlib.sha256(bytes(response.body)).hexdigest()[:32]}"',
        "Cache-Control": "private, no-cache",
    }
    if is_known(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


@router.get("/blobs/{digest}", response_class=Response, responses=_BYTES)
@reads_store
def blob(
    state: Shared,
    caller: Viewer,
    digest: Digest,
    run: Namer,
    artifact: Annotated[
        str, Query(description="The artifact's name, where several of the run have this content.")
    ] = "",
    range_header: Annotated[str, Header(alias="Range")] = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The bytes of a medium, an artifact, a checkpoint of a run, or of a part of one.

    Nothing in them runs in a browser.
    """
    ((project, name),) = parse_runs(caller, [run])
    kind, file_name = named_blob(state.store, state.records, project, name, digest, artifact)
    headers = {**inert_headers(kind, file_name), "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
    try:
        with state.store.open_file(blob_name(digest)) as file:
            size = file.size()
    except NotFound:
        raise NotFound(f"{digest} of run {run!r} is no longer in the store") from None
    if is_known(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    part = _part(range_header, size)
    first, end = part or (0, size)
    content = state.store_threads.stream(pieces(state.store, digest, first, end))
    if part is None:
        return StreamingResponse(content, 200, {**headers, "Content-Length": str(size)})
    if first >= end:
        return problem(
            416,
            f"the range {range_header!r} is not accepted: there are {size} bytes",
            {"Content-Range": f"bytes */{size}"},
        )
    headers |= {"Content-Length": str(end - first), "Content-Range": f"bytes {first}-{end - 1}/{size}"}
    return StreamingResponse(content, 206, headers)


@router.get(
    "/checkpoints/{digest}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def checkpoint(state: Shared, caller: Viewer, digest: Digest, run: Namer) -> Response:
    """A checkpoint of a run as one file, however many processes wrote it.

    It is what ``torch.load`` reads, or JSON of a checkpoint without torch.
    """
    ((project, name),) = parse_runs(caller, [run])
    kind, file_name = await state.store_threads.read(
        named_blob, state.store, state.records, project, name, digest
    )
    return await checkpoint_response(state, digest, inert_headers(kind, file_name))


@router.get(
    "/blobs/{digest}/rows", response_class=Response, responses={200: {"content": {"application/json": {}}}}
)
@reads_store
def blob_rows(
    state: Shared,
    caller: Viewer,
    digest: Digest,
    run: Namer,
    offset: Annotated[int, Query(ge=0, le=2**53, description="The first row to give, from 0.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="The most to give.")] = 100,
) -> Response:
    """Rows of a table that a run logged, or of a Parquet file among its artifacts.

    ``columns`` with their types, ``rows`` and ``total``.
    """
    ((project, name),) = parse_runs(caller, [run])
    _, file_name = named_blob(state.store, state.records, project, name, digest)
    if not file_name.endswith(".parquet"):
        raise InvalidInput(f"digest = {digest!r} is not accepted: it is {file_name} of the run, give a table")
    response = answer(table_rows(state.store, digest, offset, limit))
    response.headers["Cache-Control"] = KEPT
    return response


@router.get("/blobs/{digest}/page", response_class=Response, responses={200: {"content": {"text/html": {}}}})
@reads_store
def blob_page(
    state: Shared,
    caller: Viewer,
    digest: Digest,
    run: Namer,
    artifact: Annotated[
        str, Query(description="The artifact's name, where several of the run have this content.")
    ] = "",
) -> Response:
    """HTML that a run logged, or an HTML file among its artifacts, as a page to be looked at.

    The page can reach neither this server nor any network.
    """
    ((project, name),) = parse_runs(caller, [run])
    _, file_name = named_blob(state.store, state.records, project, name, digest, artifact)
    if not file_name.lower().endswith((".html", ".htm")):
        raise InvalidInput(f"digest = {digest!r} is not accepted: it is {file_name} of the run, give HTML")
    try:
        content = state.store.get_blob(digest)
    except NotFound:
        raise NotFound(f"{digest} of run {run!r} is no longer in the store") from None
    return Response(content, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)


def _part(range_header: str, size: int) -> tuple[int, int] | None:
    """The first byte and the end of the requested range.

    None is the whole blob: for several ranges, or for a header that is no range.
    """
    match = _RANGE.fullmatch(range_header)
    if match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        return max(0, size - int(match[2])), size
    end = size
    if match[2]:
        end = min(size, int(match[2]) + 1)
    return int(match[1]), end
