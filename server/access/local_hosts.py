"""Requests to a server without tokens: they come from this machine alone."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from server.access.authentication import Authentication
from server.errors import problem
from server.identity.origins import host_name, is_loopback

_PROXY_HEADERS = ("x-forwarded-for", "x-forwarded-host", "forwarded")


class LocalHosts:
    """ASGI middleware that refuses requests that may come from another machine (421).

    Where tokens are asked for it refuses nothing. Elsewhere the server listens on this machine alone, and yet
    a request may have been sent by a page that made its own name mean this machine (DNS rebinding), or by a
    proxy.
    """

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self._app = app
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not self._authentication.asks:
            reason = _why_not_local(Headers(scope=scope))
            if reason is not None:
                app = problem(421, reason)
        await app(scope, receive, send)


def _why_not_local(headers: Headers) -> str | None:
    host = headers.get("host", "")
    if not is_loopback(host_name(host)):
        return (
            f"host {host!r} is not accepted: no token is asked for, so give 127.0.0.1 or localhost; "
            "halving serve --tokens asks for one"
        )
    if any(name in headers for name in _PROXY_HEADERS):
        return (
            "a proxy has sent this, and no token is asked for: start the server with halving serve --tokens"
        )
    return None
