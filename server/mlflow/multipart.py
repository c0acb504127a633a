"""Uploads of artifacts in parts.

A client gets a signed address for each part, puts the part there without a token, and has them joined.

Only the parts of an upload are kept, as blobs of the store. The file that an upload is for is signed into its
id, and a part's number and digest into the ETag that its client brings back. So any replica takes any part,
and a server that is killed loses nothing. Before and after the joining the parts are blobs that no record
names, which are collected a week later.
"""

import hashlib
import re
import secrets
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.datastructures import Headers
from starlette.responses import Response

from halving.errors import NotFound
from halving.store.files import CHUNK
from halving.store.local_files import path_of, temporary_file
from server.ingest.bodies import body_file
from server.mlflow import artifacts
from server.mlflow.call import Call, integer, invalid
from server.state import State

SECONDS = 24 * 3600
"""How long an upload may take. Blobs that nothing names live longer."""
PATH = "/api/v1/signed/parts"

_MAX_PARTS = 10_000  # as S3 takes


async def create(call: Call, address: str) -> dict[str, Any]:
    """Begin an upload into a folder; returns an address for each part."""
    count = call.number("num_parts", 1)
    if not 1 <= count <= _MAX_PARTS:
        raise invalid("num_parts", count, f"give 1 to {_MAX_PARTS}")
    target = _target(call, address)
    await run_in_threadpool(artifacts.check, call, target)
    upload = secrets.token_hex(16)
    addresses = await run_in_threadpool(_addresses, call, upload, count)
    return {
        "upload_id": _signer(call.state, "upload").dumps([upload, count, target]),
        "credentials": [
            {"url": url, "part_number": number, "headers": {}} for number, url in enumerate(addresses, 1)
        ],
    }


async def put_part(state: State, signed: str, request: Request) -> Response:
    """Store a part; its ETag names the upload, the part and its content.

    Raises:
        NotFound: the address was not made by this server, or is too old.
    """
    try:
        upload, number = _signer(state, "address").loads(signed, max_age=SECONDS)
    except BadSignature:
        raise NotFound("this address does not hold, or no longer: begin the upload again") from None
    async with body_file(request) as (file, digest):
        await state.ingest_threads.run(state.store.put_hashed_blob, file, digest)
    return Response(headers={"ETag": f'"{_signer(state, "part").dumps([upload, number, digest])}"'})


async def complete(call: Call, address: str) -> dict[str, Any]:
    """Join the parts. Repeated, it changes nothing."""
    upload, count, target = _upload(call, address)
    await run_in_threadpool(artifacts.check, call, target)
    items = call.objects("parts")
    parts = await run_in_threadpool(
        lambda: [_part(call, upload, place, item) for place, item in enumerate(items)]
    )
    numbers = [number for number, _ in parts]
    if numbers != list(range(1, count + 1)):
        raise invalid("parts", numbers, f"give all {count} parts of the upload, in their order")
    await call.state.ingest_threads.run(_join, call, target, [digest for _, digest in parts])
    return {}


async def abort(call: Call, address: str) -> dict[str, Any]:
    """Abort an upload; its parts are collected later."""
    _, _, target = _upload(call, address)
    await run_in_threadpool(artifacts.check, call, target)
    return {}


def _addresses(call: Call, upload: str, count: int) -> list[str]:
    """Signed addresses for the parts."""
    signer = _signer(call.state, "address")
    base = _own_address(call)
    return [f"{base}{PATH}/{signer.dumps([upload, number])}" for number in range(1, count + 1)]


def _join(call: Call, target: str, digests: list[str]) -> None:
    joined = hashlib.sha256()
    with temporary_file() as whole:
        for digest in digests:
            with call.state.store.blob_file(digest) as path, path.open("rb") as part:
                while piece := part.read(CHUNK):
                    whole.write(piece)
                    joined.update(piece)
        whole.flush()
        artifacts.put_file(call, target, path_of(whole), f"sha256:{joined.hexdigest()}")


def _target(call: Call, address: str) -> str:
    """The address of the joined file.

    ``path`` is the file's name on the client, which may run Windows.
    """
    name = re.split(r"[/\\]", call.text("path"))[-1]
    return f"{address.rstrip('/')}/{name}"


def _upload(call: Call, address: str) -> tuple[str, int, str]:
    upload_id = call.text("upload_id")
    target = _target(call, address)
    try:
        upload, count, owner = _signer(call.state, "upload").loads(upload_id, max_age=SECONDS)
    except BadSignature:
        raise invalid(
            "upload_id",
            upload_id,
            "it is not that of an upload of this server, or is too old: begin the upload again",
        ) from None
    if owner != target:
        raise invalid("upload_id", upload_id, "it is that of another file's upload")
    return upload, count, target


def _part(call: Call, upload: str, place: int, item: dict[str, Any]) -> tuple[int, str]:
    """Number and digest of a part, from its signed ETag."""
    name = f"parts[{place}].etag"
    etag = item.get("etag")
    try:
        owner, number, digest = _signer(call.state, "part").loads(str(etag).strip('"'), max_age=SECONDS)
    except BadSignature:
        raise invalid(name, etag, "give the ETag with which this server answered the part") from None
    if owner != upload or number != integer(f"parts[{place}].part_number", item.get("part_number"), 0):
        raise invalid(name, etag, "it is that of another part")
    return number, digest


def _signer(state: State, purpose: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(state.signing_key, salt=f"multipart {purpose}")


def _own_address(call: Call) -> str:
    """The server's address as the client sees it.

    What a proxy says of that is only sent back to the same client.
    """
    headers = Headers(scope=call.scope)
    scheme = headers.get("x-forwarded-proto", "").partition(",")[0].strip()
    host = headers.get("x-forwarded-host", "").partition(",")[0].strip() or headers.get("host", "")
    if scheme not in ("http", "https"):
        scheme = call.scope["scheme"]
    return f"{scheme}://{host}{call.state.settings.base_path}"
