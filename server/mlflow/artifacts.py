"""Artifacts: lists of files, and the proxy that reads and writes them.

Through the proxy clients need none of the store's credentials.
"""

import mimetypes
import re
import unicodedata
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.responses import Response, StreamingResponse

from halving.checkpoints.download import download
from halving.errors import NotFound
from halving.store.files import CHUNK
from halving.store.store import Store, blob_name
from resources.registry.client_versions import find_version
from resources.tracking import artifacts
from resources.tracking.logged_models import find_model
from resources.tracking.runs import Tracked, check_run_active, find_run, free_run
from server.ingest.bodies import body_file
from server.mlflow.call import Call
from server.mlflow.forms import artifact_form, artifact_uri, without_empty
from server.mlflow.logged_models import FOLDER
from server.mlflow.refusals import Refused
from server.mlflow.runs import visible_run

_VERSIONS = "registered-models/"
_CHECKPOINT = "checkpoint"
_DIGITS = 10  # a longer number may not fit into the catalog
_OWNED = re.compile(
    r"(?P<root>(?:(?P<before>.+?)/)??(?:(?P<run>[0-9a-f]{32})|models/(?P<model>m-[0-9a-f]{32}))/artifacts)(?:/(?P<path>.*))?"
)
_ID = re.compile(r"(^|/)(m-)?[0-9a-f]{32}(/|$)")
_TOKEN = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_TEXTS = frozenset(  # extensions, and names without one, that MLflow sends as plain text
    {
        "txt",
        "log",
        "err",
        "cfg",
        "conf",
        "cnf",
        "cf",
        "ini",
        "properties",
        "prop",
        "hocon",
        "toml",
        "yaml",
        "yml",
        "xml",
        "json",
        "js",
        "py",
        "py3",
        "csv",
        "tsv",
        "md",
        "rst",
        "ipynb",
        "MLmodel",
        "MLproject",
    }
)


def list_of_run(call: Call) -> dict[str, Any]:
    path = artifacts.normal_path((call.maybe_text("path") or "").rstrip("/"))
    with call.state.catalog.read() as session:
        tracked = visible_run(call, session)
        files = artifacts.list_artifacts(session, tracked.row.id, path)
    if not path:
        files = [file for file in files if file[0] != FOLDER]
    entries = [artifact_form(f"{path}/{name}".lstrip("/"), size) for name, size in files]
    return {
        "root_uri": artifact_uri(tracked.artifacts, tracked.row.id),
        **without_empty(files=entries),
    }


def list_of_proxy(call: Call) -> dict[str, Any]:
    address = (call.maybe_text("path") or "").strip("/")
    with call.state.catalog.read() as session:
        if address.startswith(_VERSIONS):
            digest = _checkpoint(call, session, address)
            if address.endswith(f"/{_CHECKPOINT}"):
                return {}
            return {"files": [artifact_form(_CHECKPOINT, download(call.state.store, digest).size)]}
        tracked, path = _find_named(call, session, address)
        files = artifacts.list_artifacts(session, tracked.row.id, path)
    if not path:
        files = [file for file in files if file[0] != FOLDER]
    entries = [artifact_form(name, size) for name, size in files]
    return without_empty(files=entries)


async def get(call: Call, address: str) -> Response:
    """Send a file as a download; it is not shown, because its content may be hostile."""

    def find() -> tuple[str, int, Iterator[bytes]]:
        with call.state.catalog.read() as session:
            if address.startswith(_VERSIONS):
                checkpoint = download(call.state.store, _checkpoint(call, session, address))
                return address, checkpoint.size, checkpoint.pieces
            tracked, path = _find_named(call, session, address)
            try:
                row = artifacts.find_artifact(session, tracked.row.id, path)
            except NotFound:
                if artifacts.list_artifacts(session, tracked.row.id, path):
                    message = f"Artifact path refers to a directory, not a file: '{address}'"
                    raise Refused("INVALID_PARAMETER_VALUE", message) from None
                raise
            return path, row.bytes, _blob(call.state.store, row.digest)

    path, size, parts = await run_in_threadpool(find)
    # The first is read before the answer begins, so that a fault of the store is answered as one.
    first = await call.state.store_threads.run(next, parts, b"")
    rest = call.state.store_threads.stream(parts)
    name = path.rpartition("/")[2]
    headers = {
        "Content-Length": str(size),
        "Content-Type": _media_type(name),
        "Content-Disposition": _disposition(name),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_join(first, rest), 200, headers)


async def put(call: Call, address: str, request: Request) -> dict[str, Any]:
    """Store a request's body as an artifact, whole or not at all.

    A client that leaves in the middle has written nothing.
    """
    await run_in_threadpool(check, call, address)  # before a large body is read
    async with body_file(request) as (file, digest):
        await call.state.ingest_threads.run(put_file, call, address, file, digest)
    return {}


def delete(call: Call, address: str) -> dict[str, Any]:
    """Delete a file, or a folder with everything in it.

    The path must be plain, because ``folder/..`` would be everything.
    """
    if not address.strip("/"):  # all that is free, of everybody
        raise Refused("INVALID_PARAMETER_VALUE", "Invalid path")
    artifacts.check_path(address)
    with call.state.catalog.write() as session:
        tracked, path = _find_writable(call, session, address, lock=True)
        names = artifacts.delete_artifacts(session, tracked.row.id, path)
    artifacts.delete_records(call.state.store, tracked, names)
    return {}


def put_file(call: Call, address: str, file: Path, digest: str) -> None:
    """Store a local file at an address; ``digest`` is that of its content."""
    store = call.state.store
    size = file.stat().st_size
    store.put_hashed_blob(file, digest)
    with call.state.catalog.write(exclusive=_OWNED.fullmatch(address) is None) as session:
        tracked, path = _find_writable(call, session, address, lock=True)
        session.add(tracked.row)  # the run of free addresses is new with its first file
        before = artifacts.put_artifact(session, store, tracked, path, digest, size)
    if before is not None:
        artifacts.delete_records(store, tracked, [before])


def check(call: Call, address: str) -> None:
    """Refuse an address at which nothing may be written."""
    with call.state.catalog.read() as session:
        _, path = _find_writable(call, session, address)
        if not path:
            message = "Invalid path: the file has no name (MLflow's clients send nothing of a name from # on)"
            raise Refused("INVALID_PARAMETER_VALUE", message)


def _find_writable(call: Call, session: Session, address: str, *, lock: bool = False) -> tuple[Tracked, str]:
    """As :func:`_find_named`, for a run that may be changed."""
    tracked = _find_named(call, session, address, lock=lock, deleted=False)
    check_run_active(tracked[0].row)
    return tracked


def _find_named(
    call: Call, session: Session, address: str, *, lock: bool = False, deleted: bool = True
) -> tuple[Tracked, str]:
    """Find the run and the path in it that an address names.

    Below the location of a run's experiment these are ``RUN/artifacts/PATH`` and
    ``models/MODEL/artifacts/PATH``. Any other address is free: its files lie in a run that is made for them,
    and the empty address is the folder of all of those.

    The path in a run may have any form that stays in the run, ``./a`` or ``deep/../a``; the rest of the
    address must be plain.

    Args:
        deleted: whether a deleted model is accepted, of which there may be versions.
    """
    parsed = _OWNED.fullmatch(address)
    if parsed is None:
        if address:
            artifacts.check_path(address)
        if f"{address}/".startswith(_VERSIONS) or _ID.search(address):
            # A path out of a run's artifacts leads nowhere.
            raise Refused("INVALID_PARAMETER_VALUE", "Invalid path")
        tracked = free_run(session, lock=lock)
        call.check(tracked.project, f"artifact {address!r}")
        return tracked, address
    artifacts.check_path(parsed["root"])
    path = artifacts.normal_path(parsed["path"] or "")
    run = parsed["run"]
    below = ""
    if model := parsed["model"]:
        run = find_model(session, model, deleted=deleted).run
        below = f"{FOLDER}/{model}/"
    tracked = find_run(session, run, lock=lock)
    place = urlsplit(tracked.artifacts)
    if place.scheme != "mlflow-artifacts" or place.path.strip("/") != (parsed["before"] or ""):
        raise Refused("RESOURCE_DOES_NOT_EXIST", f"Run with id={run} not found")
    call.check(tracked.project, f"run {run!r}")
    return tracked, f"{below}{path}".rstrip("/")


def _checkpoint(call: Call, session: Session, address: str) -> str:
    """The digest of the checkpoint of a sweep's winner.

    Its address is ``registered-models/MODEL/NUMBER``, with or without ``/checkpoint``.
    """
    artifacts.check_path(address)
    model, _, rest = address.removeprefix(_VERSIONS).partition("/")
    number, _, name = rest.partition("/")
    call.check(model, f"model {model!r}")
    row = None
    if number.isdecimal() and len(number) < _DIGITS and name in ("", _CHECKPOINT):
        row = find_version(session, model, int(number))
    if row is None or row.checkpoint is None:
        raise Refused("RESOURCE_DOES_NOT_EXIST", f"No such artifact: {address!r}")
    return row.checkpoint


def _blob(store: Store, digest: str) -> Iterator[bytes]:
    with store.open_file(blob_name(digest)) as file:
        while part := file.read(CHUNK):
            yield part


async def _join(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def _media_type(name: str) -> str:
    _, dot, extension = name.lstrip(".").rpartition(".")
    if not dot:
        extension = name
    if extension in _TEXTS:
        return "text/plain"
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _disposition(name: str) -> str:
    """The header that names the file to save, with an ASCII form for old clients."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode() or "download"
    quoted = ascii_name
    if not _TOKEN.fullmatch(ascii_name):
        quoted = '"{}"'.format(ascii_name.replace('"', '\\"'))
    if name.isascii():
        return f"attachment; filename={quoted}"
    exact = quote(name, safe="!#$&+-.^_`|~")
    return f"attachment; filename={quoted}; filename*=UTF-8''{exact}"
