"""MLflow's paths as routes.

One route for each prefix looks the endpoint up in a table, because clients ask many times a second.
"""

import importlib.metadata
import json
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from server.access.policy import ANY_METHOD, RoutePolicy
from server.access.write_log import RECORDED
from server.identity.caller import caller_of
from server.ingest.bodies import read_body
from server.mlflow import artifacts, multipart, page_endpoints
from server.mlflow.call import Call
from server.mlflow.endpoints import ENDPOINTS, Endpoint, find_endpoint, reason_of
from server.mlflow.grammar import import_soon
from server.mlflow.refusals import OUTSIDE_OF_THE_PREFIXES, PREFIXES, Refused, refusal

VERSION = "3.17.2"
"""Of MLflow, whose API this is, where its package is not installed."""

MAX_BODY = 16_000_000
"""Bytes of a body that MLflow's clients send, where it is not a file."""

# Bytes from which on a body is parsed in a thread, and the most objects and lists in one.
_LARGE = 100_000
_MAX_OBJECTS = 500_000

_API_PREFIXES = [prefix for prefix in PREFIXES if not prefix.endswith("-artifacts")]
_PROXY_PREFIXES = [prefix for prefix in PREFIXES if prefix.endswith("-artifacts")]
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_INFO = {  # asked by 3.x clients before they use optional features
    "store_type": "SqlStore",
    "workspaces_enabled": False,
    "trace_archival_enabled": False,
    "multipart_uploads_enabled": False,
    "multipart_downloads_enabled": False,
    "presigned_upload_run_id_supported": False,
    "presigned_upload_model_id_supported": False,
    "features_enabled": {"gateway": False},
}

_MPU = {"create": multipart.create, "complete": multipart.complete, "abort": multipart.abort}

api, proxy, page, text = (APIRouter(include_in_schema=False) for _ in range(4))


async def answer_api(request: Request) -> Response:
    """Answer a request by the table of endpoints."""
    path = request.path_params["path"]
    method = request.method
    import_soon()
    if (method, path) == ("GET", "server-info"):
        return _message(_INFO)
    endpoint, named = find_endpoint(method, path)
    if endpoint is None:
        return _refuse_unknown(method, path)
    try:
        async with read_body(request, request.app.state.halving.ingest_memory, MAX_BODY) as body:
            fields = {}
            if method == "GET":
                fields = _query(request)
            fields = fields or await _object(request, body)
            call = _call(request, {**fields, **named}, is_logged=endpoint.is_logged)
            return _message(await _answer(endpoint, call))
    except Refused as error:
        return error.answer()


async def answer_proxy(request: Request) -> Response:
    """Answer a request to the proxy of artifacts."""
    path = request.path_params["path"]
    method = request.method
    begin, _, address = path.partition("/")
    if begin == "mpu" and method == "POST":
        return await _answer_upload(request, address)
    if begin != "artifacts" or method not in ("GET", "PUT", "DELETE"):
        return _refuse_unknown(method, path)
    if address and request.url.query:  # none of these has a query: a name with a ? arrives in two parts
        address = f"{address}?{unquote(request.url.query)}"
    try:
        call = _call(request, _query(request), is_logged=False)
        if method == "PUT":
            return _message(await artifacts.put(call, address, request))
        if method == "DELETE":
            return _message(await call.state.store_threads.run(artifacts.delete, call, address))
        if address:
            return await artifacts.get(call, address)
        return _message(await run_in_threadpool(artifacts.list_of_proxy, call))
    except Refused as error:
        return error.answer()


async def _answer_upload(request: Request, path: str) -> Response:
    action, _, address = path.partition("/")
    if action not in _MPU:
        return _refuse_unknown(request.method, request.path_params["path"])
    try:
        async with read_body(request, request.app.state.halving.ingest_memory, MAX_BODY) as body:
            call = _call(request, await _object(request, body), is_logged=False)
            return _message(await _MPU[action](call, address))
    except Refused as error:
        return error.answer()


@proxy.put(f"{multipart.PATH}/{{address}}")
async def put_part(request: Request) -> Response:
    """Store a part of an upload, sent to its signed address."""
    return await multipart.put_part(request.app.state.halving, request.path_params["address"], request)


for prefix in _API_PREFIXES:
    api.add_api_route(f"{prefix}/{{path:path}}", answer_api, methods=_METHODS)
for prefix in _PROXY_PREFIXES:
    proxy.add_api_route(f"{prefix}/{{path:path}}", answer_proxy, methods=_METHODS)


_FILES = {
    "/get-artifact": page_endpoints.file_of_run,
    "/model-versions/get-artifact": page_endpoints.file_of_version,
    "/ajax-api/2.0/mlflow/logged-models/{model_id}/artifacts/files": page_endpoints.file_of_model,
}
"""Of MLflow's own page: addresses of single files."""
_UPLOAD = "/ajax-api/2.0/mlflow/upload-artifact"


async def send_file(request: Request) -> Response:
    """Send a file as a download."""
    try:
        call = _call(request, {**_query(request), **request.path_params}, is_logged=False)
        return await _FILES[request.scope["route"].path](call)
    except Refused as error:
        return error.answer()


for address in _FILES:
    page.add_api_route(address, send_file, methods=["GET"])


@page.post(_UPLOAD)
async def upload_file(request: Request) -> Response:
    """Store the body as a file."""
    try:
        return _message(
            await page_endpoints.upload_file(_call(request, _query(request), is_logged=False), request)
        )
    except Refused as error:
        return error.answer()


POLICIES = [
    RoutePolicy("/ajax-api/"),
    *(RoutePolicy(address) for address in OUTSIDE_OF_THE_PREFIXES),
    *(RoutePolicy(f"{prefix}/", max_body=MAX_BODY) for prefix in _API_PREFIXES),
    *(
        RoutePolicy(f"{prefix}/{path}", reads=True, max_body=MAX_BODY)
        for prefix in _API_PREFIXES
        for (_, path), endpoint in ENDPOINTS.items()
        if endpoint.reads
    ),
    # Files are limited by their routes.
    *(RoutePolicy(f"{prefix}/", max_body=None) for prefix in _PROXY_PREFIXES),
    RoutePolicy(_UPLOAD, max_body=None),
    RoutePolicy(f"{multipart.PATH}/", max_body=None, open=ANY_METHOD),
]


@text.get("/health")
async def health() -> Response:
    """MLflow's health check."""
    return PlainTextResponse("OK")


@text.get("/version")
async def version() -> Response:
    """The version of MLflow whose API this is."""
    try:
        return PlainTextResponse(importlib.metadata.version("mlflow-skinny"))
    except importlib.metadata.PackageNotFoundError:
        return PlainTextResponse(VERSION)


async def _answer(endpoint: Endpoint, call: Call) -> dict[str, Any] | bytes:
    if endpoint.looks:
        async with call.state.index_queue.turn(call.caller.actor):
            return await run_in_threadpool(endpoint.answer, call)
    answer = await call.state.store_threads.run(endpoint.answer, call)
    if endpoint.publishes:
        await run_in_threadpool(call.state.publisher.publish)
    return answer


def _call(request: Request, fields: dict[str, Any], *, is_logged: bool) -> Call:
    if not is_logged:
        request.scope[RECORDED] = True
    return Call(
        request.app.state.halving, caller_of(request), request.app.state.write_log, request.scope, fields
    )


async def _object(request: Request, body: bytes) -> dict[str, Any]:
    """Parse a body's fields.

    A large body is parsed in a thread; one that would keep all other threads waiting is refused.
    """
    if request.method in ("POST", "PUT"):
        content_type = request.headers.get("content-type")
        if content_type is None:
            raise Refused("INVALID_PARAMETER_VALUE", "Bad Request. Content-Type header is missing.")
        if content_type.partition(";")[0] != "application/json":
            raise Refused(
                "INVALID_PARAMETER_VALUE", "Bad Request. Content-Type must be one of ['application/json']."
            )
    if body.count(b"[") + body.count(b"{") > _MAX_OBJECTS:
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"the body is not accepted: it has more than {_MAX_OBJECTS} objects and lists",
        )
    try:
        if not body:
            content = {}
        elif len(body) < _LARGE:
            content = json.loads(body)
        else:
            content = await run_in_threadpool(json.loads, body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refused("INVALID_PARAMETER_VALUE", "the body is not accepted: give a JSON object")
    return content


def _query(request: Request) -> dict[str, Any]:
    values: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        values.setdefault(name, []).append(value)
    return {name: texts if len(texts) > 1 else texts[0] for name, texts in values.items()}


def _message(content: dict[str, Any] | bytes) -> Response:
    if isinstance(content, dict):
        content = json.dumps(content, allow_nan=False).encode()
    return Response(content, media_type="application/json")


def _refuse_unknown(method: str, path: str) -> Response:
    if any(endpoint_path == path for _, endpoint_path in ENDPOINTS):
        return refusal("ENDPOINT_NOT_FOUND", f"The method {method} is not allowed for {path}", 405)
    if reason := reason_of(path):
        return refusal("NOT_IMPLEMENTED", f"{path} is not answered by this server: {reason}", 501)
    return refusal("ENDPOINT_NOT_FOUND", f"There is no endpoint {path}", 404)
