"""Errors as MLflow's clients know them: ``{"error_code", "message"}``.

Problems of other layers are translated into this form, too.
"""

import json
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import MEDIA_TYPE

PREFIXES = tuple(
    f"/{api}/{version}/{service}"
    for api in ("api", "ajax-api")
    for version in ("2.0", "3.0")
    for service in ("mlflow", "mlflow-artifacts")
)
"""Of the paths of MLflow's API."""
OUTSIDE_OF_THE_PREFIXES = ("/get-artifact", "/model-versions/get-artifact")
"""Of the files that its page reads, two lie beside them."""
_TRANSLATED = (*PREFIXES, *OUTSIDE_OF_THE_PREFIXES)

_STATUS = {
    "INVALID_PARAMETER_VALUE": 400,
    "RESOURCE_ALREADY_EXISTS": 400,
    "BAD_REQUEST": 400,
    "PERMISSION_DENIED": 403,
    "RESOURCE_DOES_NOT_EXIST": 404,
    "ENDPOINT_NOT_FOUND": 404,
    "NOT_IMPLEMENTED": 501,
}
# Of our own errors by their statuses; MLflow's client tries 429, 500 and 503 again, and others not.
_CODES = {
    400: ("INVALID_PARAMETER_VALUE", 400),
    401: ("UNAUTHENTICATED", 401),
    403: ("PERMISSION_DENIED", 403),
    404: ("RESOURCE_DOES_NOT_EXIST", 404),
    405: ("ENDPOINT_NOT_FOUND", 405),
    409: ("RESOURCE_ALREADY_EXISTS", 400),
    413: ("BAD_REQUEST", 413),
    421: ("BAD_REQUEST", 421),
    422: ("INVALID_PARAMETER_VALUE", 400),
    429: ("REQUEST_LIMIT_EXCEEDED", 429),
    503: ("TEMPORARILY_UNAVAILABLE", 503),
}
_MAX_PROBLEM_BYTES = 1_000_000


_AWAY = ("ftp", "sftp", "hdfs", "viewfs", "http", "https", "r2", "b2", "abfss")


class Refused(Exception):
    """A request that is refused, with MLflow's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def answer(self) -> JSONResponse:
        return refusal(self.code, self.message, _STATUS.get(self.code, 500))


def check_host(uri: str, field: str) -> None:
    """Refuse an address on another host, as MLflow's server does."""
    parsed = urlsplit(uri)
    if parsed.scheme in _AWAY or (parsed.scheme == "mlflow-artifacts" and parsed.netloc):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"'{field}' cannot use the '{parsed.scheme}' scheme: it addresses a host",
        )


def refusal(code: str, message: str, status: int) -> JSONResponse:
    """An error as an answer."""
    return JSONResponse({"error_code": code, "message": message}, status)


class MlflowProblems:
    """ASGI middleware outside of all others that translates problems on MLflow's paths into MLflow's form."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_TRANSLATED):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def translate(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message["headers"]):
                start = message
            elif start is not None and message["type"] == "http.response.body":
                body += message.get("body", b"")[: _MAX_PROBLEM_BYTES - len(body)]
                if not message.get("more_body"):
                    begun = start
                    start = None
                    await _send(begun, body, send)
            else:
                await send(message)

        await self._app(scope, receive, translate)


def _is_problem(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return Headers(raw=list(headers)).get("content-type", "").startswith(MEDIA_TYPE)


async def _send(start: Message, body: bytes, send: Send) -> None:
    code, status = _CODES.get(start["status"], ("INTERNAL_ERROR", start["status"]))
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError):  # the body of a HEAD, which has none
        detail = ""
    content = b""
    if body:
        content = json.dumps({"error_code": code, "message": detail}).encode()
    new = {b"content-type": b"application/json", b"content-length": str(len(content)).encode()}
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in new]
    await send({**start, "status": status, "headers": [*headers, *new.items()]})
    await send({"type": "http.response.body", "body": content, "more_body": False})
