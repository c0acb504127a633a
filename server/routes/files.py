"""Files of runs in the store, and blobs, for clients without the store's credentials.

``halving.init(url=…)`` is such a client.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from halving.errors import InvalidInput, NotFound
from halving.store.store import blob_name
from server.access.policy import RoutePolicy
from server.access.project_limits import foreign_is_forbidden
from server.access.write_log import without_write_log
from server.answers import answer
from server.identity.caller import Caller, Viewer
from server.ingest.bodies import body_file, read_body
from server.ingest.record_files import check_record, create_record, run_file
from server.media.inert import OCTETS, inert_headers
from server.media.pieces import file_pieces
from server.routes.media import Digest
from server.state import Shared
from server.store_threads import reads_store

router = APIRouter(tags=["files"])
POLICIES = [RoutePolicy("/files/", max_body=None), RoutePolicy("/blobs/", max_body=None)]
MAX_BYTES = 4 << 20
"""Of a record."""
MAX_BLOB_BYTES = 1 << 42
"""4 TiB: the disk, or the object store, ends earlier."""
_EXAMPLE = "runs/project=digits/digits-7f3a.0007/record.json"
Name = Annotated[str, Path(description="The file's name in the store.", examples=[_EXAMPLE])]


@router.get("/files", response_model=dict[str, list[str]])
@reads_store
def files(
    state: Shared,
    caller: Viewer,
    folder: Annotated[
        str,
        Query(
            description="A folder of a run.", examples=["metrics/project=digits/run=digits-7f3a.0007/live"]
        ),
    ],
) -> Response:
    """The names of what is directly in a folder of a run; none where there is no such folder."""
    _check_reads(caller, folder)
    return answer({"names": state.store.names(folder)})


@router.get("/files/{name:path}", response_class=Response, responses={200: {"content": {OCTETS: {}}}})
@reads_store
def file(state: Shared, caller: Viewer, name: Name) -> Response:
    """A file of a run: one of its records, a segment of its points, a manifest."""
    _check_reads(caller, name)
    with state.store.open_file(name) as opened:
        size = opened.size()
    headers = {**inert_headers(OCTETS, name.rpartition("/")[2]), "Content-Length": str(size)}
    return StreamingResponse(
        state.store_threads.stream(file_pieces(state.store, name, 0, size)), 200, headers
    )


@router.put("/files/{name:path}", status_code=201, response_model=dict[str, str], max_body_size=MAX_BYTES)
@without_write_log
@foreign_is_forbidden
async def create_file(request: Request, state: Shared, caller: Viewer, name: Name) -> Response:
    """Create a record of a run, once.

    Sent again with the same content it is there already; with other content it is refused (409).
    """
    caller.check_writes(run_file(name).project)
    async with read_body(request, state.ingest_memory, MAX_BYTES) as body:
        check_record(name, body)
        await state.ingest_threads.run(create_record, state.store, name, body)
    return answer({"name": name}, 201)


@router.put("/blobs/{digest}", status_code=201, response_model=dict[str, str], max_body_size=MAX_BLOB_BYTES)
@without_write_log
@foreign_is_forbidden
async def put_blob(request: Request, state: Shared, caller: Viewer, digest: Digest) -> Response:
    """Store bytes by their content, of any size: a checkpoint, an artifact, an image.

    A record then names them.
    """
    blob_name(digest)
    async with body_file(request) as (path, actual):
        if actual != digest:
            raise InvalidInput(f"digest = {digest!r} is not accepted: the body's is {actual}")
        await state.ingest_threads.run(state.store.put_hashed_blob, path, digest)
    return answer({"digest": digest}, 201)


def _check_reads(caller: Caller, name: str) -> None:
    try:
        project = run_file(name).project
    except InvalidInput:
        raise NotFound(f"no file {name!r:.200}: give that of a run") from None
    caller.check(project)
