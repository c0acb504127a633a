"""Artifacts: their lists, and the proxy through which clients read and write them without the store's credentials."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.responses import Response, StreamingResponse

from halving.store.files import CHUNK
from halving.store.store import Store, blob_name
from resources.registry.client_versions import find_version
from resources.tracking import artifacts
from resources.tracking.logged_models import find_model
from resources.tracking.runs import Tracked, check_run_active, find_run
from server.ingest.bodies import body_file
from server.mlflow.call import Call
from server.mlflow.forms import artifact_uri
from server.mlflow.logged_models import FOLDER
from server.mlflow.refusals import Refused
from server.mlflow.runs import seen

_VERSIONS, _CHECKPOINT = "registered-models/", "checkpoint"


def list_of_run(call: Call) -> dict[str, Any]:
    path = (call.maybe_text("path") or "").rstrip("/")
    if path:
        artifacts.check_path(path)
    with call.state.catalog.read() as session:
        found = seen(call, session)
        files = artifacts.list_artifacts(session, found.row.id, path)
    files = files if path else [file for file in files if file[0] != FOLDER]
    shown = [_file(f"{path}/{name}" if path else name, size) for name, size in files]
    return {"root_uri": artifact_uri(found.artifacts, found.row.id), **({"files": shown} if shown else {})}


def list_of_proxy(call: Call) -> dict[str, Any]:
    address = call.text("path").strip("/")
    with call.state.catalog.read() as session:
        if address.startswith(_VERSIONS):
            _, size = _checkpoint(call, session, address)
            return {"files": [_file(_CHECKPOINT, size)]} if not address.endswith(f"/{_CHECKPOINT}") else {}
        found, path = _named(call, session, address)
        files = artifacts.list_artifacts(session, found.row.id, path)
    files = files if path else [file for file in files if file[0] != FOLDER]
    shown = [_file(name, size) for name, size in files]
    return {"files": shown} if shown else {}


async def get(call: Call, address: str) -> Response:
    def find() -> tuple[str, int]:
        with call.state.catalog.read() as session:
            if address.startswith(_VERSIONS):
                return _checkpoint(call, session, address)
            found, path = _named(call, session, address)
            row = artifacts.find_artifact(session, found.row.id, path)
            return row.digest, row.bytes

    digest, size = await run_in_threadpool(find)
    parts = _blob(call.state.store, digest)
    # The first is read before the answer begins, so that a fault of the store is answered as one.
    first = await call.state.store_threads.run(next, parts, b"")
    rest = call.state.store_threads.stream(parts)
    headers = {"Content-Length": str(size), "Content-Disposition": "attachment"}
    return StreamingResponse(_joined(first, rest), 200, headers, media_type="application/octet-stream")


async def put(call: Call, address: str, request: Request) -> dict[str, Any]:
    """Keep a body as it comes, whole or not at all: a client that leaves in the middle has written nothing."""
    await run_in_threadpool(check, call, address)  # before many bytes are taken
    async with body_file(request) as (file, digest):
        await call.state.ingest_threads.run(put_file, call, address, file, digest)
    return {}


def delete(call: Call, address: str) -> dict[str, Any]:
    with call.state.catalog.write() as session:
        found, path = _named(call, session, address, lock=True)
        check_run_active(found.row)
        names = artifacts.delete_artifacts(session, found.row.id, path)
    artifacts.delete_records(call.state.store, found, names)
    return {}


def put_file(call: Call, address: str, file: Path, digest: str) -> None:
    """Make a local file the content at an address; ``digest`` is its own."""
    store, size = call.state.store, file.stat().st_size
    store.put_hashed_blob(file, digest)
    with call.state.catalog.write() as session:
        found, path = _named(call, session, address, lock=True)
        check_run_active(found.row)
        before = artifacts.put_artifact(session, store, found, path, digest, size)
    if before is not None:
        artifacts.delete_records(store, found, [before])


def check(call: Call, address: str) -> None:
    """Refuse an address at which nothing may be written."""
    with call.state.catalog.read() as session:
        found, path = _named(call, session, address)
        check_run_active(found.row)
        if not path:
            raise Refused("INVALID_PARAMETER_VALUE", "Invalid path")


def _named(call: Call, session: Session, address: str, *, lock: bool = False) -> tuple[Tracked, str]:
    """The run and the path in it that an address means: ``EXPERIMENT/RUN/artifacts/PATH`` or ``EXPERIMENT/models/MODEL/artifacts/PATH``."""
    artifacts.check_path(address)
    experiment, _, rest = address.partition("/")
    run, _, rest = rest.partition("/")
    before = ""
    if run == "models":
        model, _, rest = rest.partition("/")
        run, before = find_model(session, model).run, f"{FOLDER}/{model}/"
    below, _, path = rest.partition("/")
    if below != "artifacts":
        raise Refused("INVALID_PARAMETER_VALUE", "Invalid path")
    found = find_run(session, run, lock=lock)
    if str(found.experiment) != experiment:
        raise Refused("RESOURCE_DOES_NOT_EXIST", f"Run with id={run} not found")
    call.check(found.project, f"run {run!r}")
    return found, f"{before}{path}".rstrip("/")


def _checkpoint(call: Call, session: Session, address: str) -> tuple[str, int]:
    """The digest and the size of the checkpoint of a sweep's winner: ``registered-models/MODEL/NUMBER``, and ``/checkpoint``."""
    artifacts.check_path(address)
    model, _, rest = address.removeprefix(_VERSIONS).partition("/")
    number, _, name = rest.partition("/")
    call.check(model, f"model {model!r}")
    row = find_version(session, model, int(number)) if number.isdecimal() and name in ("", _CHECKPOINT) else None
    if row is None or row.checkpoint is None:
        raise Refused("RESOURCE_DOES_NOT_EXIST", f"No such artifact: {address!r}")
    with call.state.store.open_file(blob_name(row.checkpoint)) as file:
        return row.checkpoint, file.size()


def _blob(store: Store, digest: str) -> Iterator[bytes]:
    with store.open_file(blob_name(digest)) as file:
        while part := file.read(CHUNK):
            yield part


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def _file(path: str, size: int | None) -> dict[str, Any]:
    return {"path": path, "is_dir": True} if size is None else {"path": path, "is_dir": False, "file_size": size}
