"""Writes that another site's page makes a browser send (cross-site request forgery)."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from server.access.authentication import Authentication, token_in
from server.access.policy import SAFE_METHODS, policy_of
from server.errors import problem
from server.identity.origins import foreign_origin


class SameOrigin:
    """ASGI middleware that refuses methods that may write where another site's page sent them (403).

    A request with a token in its header was made by who knows the token: neither a browser nor a proxy adds
    one of ours by itself.
    """

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self._app = app
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if (site := self._foreign_site(scope)) is not None:
            app = problem(
                403,
                f"origin {site!r} is not accepted: changes are made from this server's own page, or with a "
                "token",
            )
        await app(scope, receive, send)

    def _foreign_site(self, scope: Scope) -> str | None:
        if policy_of(scope) is None or scope["method"] in SAFE_METHODS:
            return None
        headers = Headers(scope=scope)
        if self._authentication.asks and token_in(headers) is not None:
            return None
        return foreign_origin(headers.get("origin"), headers.get("sec-fetch-site"), headers.get("host", ""))


class CsrfTokens:
    """ASGI middleware that refuses writes by a browser's session without the session's own token (403).

    It stands inside of the guard, which finds the session.
    """

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self._app = app
        self._sessions = authentication.sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if not self._is_proven(scope):
            app = problem(
                403, "X-CSRF-Token is missing or not that of this session: GET /api/v1/session gives it"
            )
        await app(scope, receive, send)

    def _is_proven(self, scope: Scope) -> bool:
        session = scope.get("halving.session")
        policy = policy_of(scope)
        if session is None or policy is None or not policy.writes(scope["method"]):
            return True
        return self._sessions.proves(session, Headers(scope=scope).get("x-csrf-token"))
