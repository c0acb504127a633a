"""The guard before every request.

It finds out who asks, whether they may, and from where. Behind every answer it completes the headers and adds
writes to the write log.
"""

import asyncio
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.authentication import Authentication, token_in
from server.access.headers import add_headers
from server.access.write_log import WriteLog
from server.errors import answer_of, problem
from server.identity.caller import Caller
from server.identity.caller import Scope as TokenScope
from server.identity.origins import foreign_origin, host_name, is_loopback
from server.identity.sessions import Session

API = ("/api/", "/ajax-api/", "/get-artifact", "/model-versions/get-artifact")

MAX_MLFLOW_BYTES = 16_000_000
"""Bytes of a body that MLflow's clients send, where it is not a file."""

_V1 = "/api/v1"
# Nobody has to be known here.
_OPEN = {("GET", f"{_V1}/health"), ("GET", f"{_V1}/ready"), ("POST", f"{_V1}/session")}
_SIGNED = f"{_V1}/signed/"  # The address is signed for somebody who may.
_MLFLOW = [f"{api}{version}/mlflow" for api in API[:2] for version in ("2.0", "3.0")]
_UPLOADS = (
    f"{_V1}/ingest",
    f"{_SIGNED}parts/",
    f"{_V1}/files/",
    f"{_V1}/blobs/",
    *(f"{prefix}-artifacts/" for prefix in _MLFLOW),
    "/ajax-api/2.0/mlflow/upload-artifact",
)  # Their routes limit their bodies.
_MLFLOW_API = tuple(f"{prefix}/" for prefix in _MLFLOW)
_SEARCHES = (
    "runs/search",
    "experiments/search",
    "experiments/search-datasets",
    "logged-models/search",
    "registered-models/get-latest-versions",
)
_READS_BY_POST = {  # They ask for more than fits into a URL, and change nothing.
    f"{_V1}/curves",
    *(f"{prefix}/{search}" for prefix in _MLFLOW for search in _SEARCHES),
}
_ADMIN = (f"{_V1}/audit",)
_SAFE = {"GET", "HEAD", "OPTIONS"}
_PROXY = ("x-forwarded-for", "x-forwarded-host", "forwarded")
_MAX_DIGITS = 18
_LOOK_AGAIN_SECONDS = 30.0  # how often the token of a stream is looked at again


class Guard:
    """ASGI middleware that checks every request; see the module.

    Args:
        policy: the page's content security policy.
        max_bytes: of a request's body, by its ``Content-Length``; a route may set ``max_body_size`` to take
            less.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authentication: Authentication,
        write_log: WriteLog,
        policy: str,
        streams: "OpenStreams",
        max_bytes: int,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self.authentication = authentication
        self.write_log = write_log
        self.policy = policy
        self.streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        try:
            refusal = await self._refusal(exchange)
            if refusal is not None:
                await exchange.answer(refusal)
                return
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except _NoLongerHolds:
            pass
        except Exception as error:  # the last place where one can be answered
            if exchange.begun:
                raise
            await exchange.answer(answer_of(error))
        finally:
            self.streams.remove(exchange.leave)
        await exchange.end()

    async def _refusal(self, exchange: "_Exchange") -> Response | None:
        """The response that refuses a request; None lets it in."""
        headers = exchange.headers
        method = exchange.method
        path = exchange.path
        if not self.authentication.asks and (foreign := _why_not_local(headers)):
            return problem(421, foreign)
        if path.startswith(API) and (wrong := _why_not_utf8(exchange.scope)):
            return problem(400, wrong)  # elsewhere the page says that nothing is there
        if not _is_text(path):
            return problem(404, "nothing has an address with NUL or half of a surrogate pair in it")
        if b"%00" in exchange.scope["query_string"]:
            return problem(422, "the query holds NUL, which is not accepted: no text that is kept has one")
        if not path.startswith(API):
            return None
        length = headers.get("content-length", "0")
        limit = self._max_bytes
        if path.startswith(_MLFLOW_API):
            limit = MAX_MLFLOW_BYTES
        limited = not path.startswith(_UPLOADS)
        if len(length) > _MAX_DIGITS or (limited and length.isdecimal() and int(length) > limit):
            return problem(413, f"the body has {length[:_MAX_DIGITS]} bytes: give at most {limit}")
        # With a token in its header a request was made by who knows the token: neither a browser nor a proxy
        # adds one of ours by itself.
        by_token = self.authentication.asks and token_in(headers) is not None
        site = foreign_origin(headers.get("origin"), headers.get("sec-fetch-site"), headers.get("host", ""))
        if site is not None and method not in _SAFE and not by_token:
            return problem(
                403,
                f"origin {site!r} is not accepted: changes are made from this server's own page, or with a "
                "token",
            )
        if (exchange.scope["method"], path) in _OPEN or path.startswith(_SIGNED):
            return None
        caller, session = await self.authentication.caller(headers)
        if caller is None:
            return await self._refuse_unknown(exchange)
        exchange.set_caller(caller, session)
        needed = _needed_scope(method, path)
        if not caller.may(needed):
            return problem(
                403,
                f"the token {caller.actor!r} may {' and '.join(caller.scopes)}: this needs the scope "
                f"{needed}",
            )
        if (
            session
            and exchange.writes
            and not self.authentication.sessions.proves(session, headers.get("x-csrf-token"))
        ):
            return problem(
                403, "X-CSRF-Token is missing or not that of this session: GET /api/v1/session gives it"
            )
        return None

    async def _refuse_unknown(self, exchange: "_Exchange") -> Response:
        if token_in(exchange.headers) is None:
            is_foreign = "authorization" in exchange.headers
            needed = "a token is needed"
            if is_foreign:
                needed = "what Authorization holds is not a token of this server"
            return problem(
                401, f"{needed}: send Authorization: Bearer hlv_…, or log in", {"WWW-Authenticate": "Bearer"}
            )
        wait = await self.authentication.delay_refusal(exchange.address)
        if wait is not None:
            return problem(
                429,
                "too many tokens that do not hold were sent from this address",
                {"Retry-After": str(wait)},
            )
        return problem(
            401,
            "this token does not hold: it is wrong, revoked or too old",
            {"WWW-Authenticate": 'Bearer error="invalid_token"'},
        )


class OpenStreams:
    """Answers in progress, so that they can be ended when the server stops."""

    def __init__(self) -> None:
        self._leave: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def add(self, leave: asyncio.Event) -> None:
        self._leave[leave] = asyncio.get_running_loop()

    def remove(self, leave: asyncio.Event) -> None:
        self._leave.pop(leave, None)

    def end(self) -> None:
        """End all of them; may be called from any thread, and from a signal's handler."""
        for leave, loop in list(self._leave.items()):
            loop.call_soon_threadsafe(leave.set)


class _NoLongerHolds(Exception):
    """The token of a stream was revoked, or has become too old."""


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard = guard
        self._receive = receive
        self._send = send
        self.headers = Headers(scope=scope)
        self.method = scope["method"]
        self.path = scope["path"]
        # What a GET answers, without the body: clients and proxies ask so, and no route has to know.
        self._bodiless = self.method == "HEAD" and self.path.startswith(API)
        self.scope: Scope = scope
        if self._bodiless:
            self.scope = {**scope, "method": "GET"}
        self.address = scope["client"][0] if scope.get("client") else ""
        self.begun = self._ended = self._replaced = False
        self.leave = asyncio.Event()
        guard.streams.add(self.leave)
        self._looked = asyncio.get_running_loop().time()

    @property
    def writes(self) -> bool:
        return self.method not in _SAFE and self.path not in _READS_BY_POST

    def set_caller(self, caller: Caller, session: Session | None) -> None:
        self.scope["halving.caller"] = caller
        self.scope["halving.session"] = session

    async def answer(self, response: Response) -> None:
        """Answer without the application."""
        await response(self.scope, self._receive, self.send)

    async def receive(self) -> Message:
        """Receive for the application; a stream that has begun is ended when the server stops."""
        if not self.begun:
            return await self._receive()
        waiting = [asyncio.ensure_future(self._receive()), asyncio.ensure_future(self.leave.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if waiting[0].done():
                return waiting[0].result()  # type: ignore[return-value]
            return {"type": "http.disconnect"}
        finally:
            for task in waiting:
                task.cancel()

    async def send(self, message: Message) -> None:
        """Send for the application.

        Completes the headers, adds writes to the write log, and ends a stream whose token no longer holds.
        """
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            replacement = await self._replacement_of(message)
            if replacement is not None:
                await replacement(self.scope, self._receive, self._complete)
                self._replaced = True
                return
        elif message.get("more_body"):
            await self._look_again()
        await self._complete(message)

    async def end(self) -> None:
        """Complete an answer that was ended by the server."""
        if self.begun and not self._ended:
            await self._complete({"type": "http.response.body", "body": b"", "more_body": False})

    async def _complete(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            add_headers(MutableHeaders(scope=message), self._guard.policy, api=self.path.startswith(API))
        elif message["type"] == "http.response.body":
            if self._ended:
                return
            if self._bodiless:
                message = {**message, "body": b"", "more_body": False}
            self._ended = not message.get("more_body", False)
        await self._send(message)

    async def _replacement_of(self, start: Message) -> Response | None:
        """The answer to send in place of one that is not in our form; None to keep the application's.

        A write is recorded here, before it is answered.
        """
        status = start["status"]
        is_plain_text = Headers(raw=start["headers"]).get("content-type", "").startswith("text/plain")
        if status == 413 and is_plain_text:  # the web framework's own words
            return problem(413, "the body is larger than this route takes")
        if self.writes and "halving.caller" in self.scope and self._is_logged():
            await self._guard.write_log.record(self.scope, status)
        return None

    def _is_logged(self) -> bool:
        endpoint = self.scope.get("endpoint")
        return getattr(endpoint, "is_logged", True) and self.path.startswith(API)

    async def _look_again(self) -> None:
        now = asyncio.get_running_loop().time()
        if (
            self._guard.authentication.asks
            and now - self._looked > _LOOK_AGAIN_SECONDS
            and "halving.caller" in self.scope
        ):
            self._looked = now
            caller, _ = await self._guard.authentication.caller(self.headers)
            if caller is None:
                raise _NoLongerHolds


def _needed_scope(method: str, path: str) -> TokenScope:
    if path.startswith(_ADMIN):
        return "admin"
    # A session may be ended by who may only read.
    if method in _SAFE or path in _READS_BY_POST or path == f"{_V1}/session":
        return "read"
    return "write"


def _why_not_local(headers: Headers) -> str | None:
    """Why a request may come from another machine although the server listens on this one alone.

    It was sent by a page that made its own name mean this machine (DNS rebinding), or by a proxy. None: it
    comes from here.
    """
    host = headers.get("host", "")
    if not is_loopback(host_name(host)):
        return (
            f"host {host!r} is not accepted: no token is asked for, so give 127.0.0.1 or localhost; "
            "halving serve --tokens asks for one"
        )
    if _any(headers, _PROXY):
        return (
            "a proxy has sent this, and no token is asked for: start the server with halving serve --tokens"
        )
    return None


def _why_not_utf8(scope: Scope) -> str | None:
    """Why an address is refused whose bytes are not UTF-8; None: they are.

    Its path would hold �, as the paths of other such addresses do, so several addresses would be one.
    """
    for part in (scope.get("raw_path") or b"", scope["query_string"]):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError as error:
            address = part.decode("latin-1")
            byte = error.object[error.start]
            return (
                f"address {address!r:.200} is not accepted: its byte %{byte:02X} is no UTF-8; write names in "
                "UTF-8 and percent-encode that"
            )
    return None


def _is_text(text: str) -> bool:
    """Whether every database accepts the text: neither NUL nor half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _any(headers: Headers, names: Iterable[str]) -> bool:
    return any(name in headers for name in names)
