"""The guard before every request: who asks, and whether they may."""

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.authentication import Authentication, token_in
from server.access.policy import policy_of
from server.errors import problem

_CHECK_SECONDS = 30.0  # how often the token of a stream is checked again


class Guard:
    """ASGI middleware that finds the caller of each request, and refuses who may not make it (401, 403, 429).

    Inside of it the scope holds ``halving.caller`` and ``halving.session``. A stream whose token is revoked,
    or becomes too old, ends.
    """

    def __init__(self, app: ASGIApp, authentication: Authentication) -> None:
        self._app = app
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        policy = policy_of(scope)
        if policy is None or policy.is_open(scope["method"]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        caller, session = await self._authentication.caller(headers)
        if caller is None:
            refusal = await self._refuse_unknown(scope, headers)
            await refusal(scope, receive, send)
            return
        scope["halving.caller"] = caller
        scope["halving.session"] = session
        needed = policy.needed_scope(scope["method"])
        if not caller.may(needed):
            refusal = problem(
                403,
                f"the token {caller.actor!r} may {' and '.join(caller.scopes)}: this needs the scope "
                f"{needed}",
            )
            await refusal(scope, receive, send)
            return
        if self._authentication.asks:
            send = self._while_token_holds(headers, send)
        with suppress(_NoLongerHolds):
            await self._app(scope, receive, send)

    async def _refuse_unknown(self, scope: Scope, headers: Headers) -> Response:
        if token_in(headers) is None:
            problem_text = "a token is needed"
            if "authorization" in headers:
                problem_text = "what Authorization holds is not a token of this server"
            return problem(
                401,
                f"{problem_text}: send Authorization: Bearer hlv_…, or log in",
                {"WWW-Authenticate": "Bearer"},
            )
        address, _ = scope.get("client") or ("", 0)
        wait = await self._authentication.delay_refusal(address)
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

    def _while_token_holds(self, headers: Headers, send: Send) -> Send:
        """Wrap ``send`` so that it raises in a stream whose token no longer holds."""
        loop = asyncio.get_running_loop()
        checked_at = loop.time()

        async def send_while_token_holds(message: Message) -> None:
            nonlocal checked_at
            if message.get("more_body") and loop.time() - checked_at > _CHECK_SECONDS:
                checked_at = loop.time()
                caller, _ = await self._authentication.caller(headers)
                if caller is None:
                    raise _NoLongerHolds
            await send(message)

        return send_while_token_holds


class _NoLongerHolds(Exception):
    """The token of a stream was revoked, or has become too old."""
