"""How large a request's body may be."""

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.policy import MAX_BODY, policy_of
from server.access.write_log import RECORDED
from server.errors import problem

_MAX_DIGITS = 18


class BodyLimit:
    """ASGI middleware that refuses bodies larger than their policy allows (413).

    It looks at ``Content-Length``. A body that does not say how long it is is counted by the web framework,
    whose own refusal is replaced by one in our form.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := _refusal(scope):
            await refusal(scope, receive, send)
            return
        is_replaced = False

        async def send_in_our_form(message: Message) -> None:
            nonlocal is_replaced
            if _is_refusal_of_framework(message):
                is_replaced = True
                scope[RECORDED] = True  # nothing was changed
                await problem(413, "the body is larger than this route takes")(scope, receive, send)
            elif not is_replaced:
                await send(message)

        await self._app(scope, receive, send_in_our_form)


def _refusal(scope: Scope) -> Response | None:
    policy = policy_of(scope)
    if policy is None:
        return None
    length = Headers(scope=scope).get("content-length", "0")
    if len(length) > _MAX_DIGITS or _exceeds(length, policy.max_body):
        limit = policy.max_body or MAX_BODY
        return problem(413, f"the body has {length[:_MAX_DIGITS]} bytes: give at most {limit}")
    return None


def _exceeds(length: str, limit: int | None) -> bool:
    return limit is not None and length.isdecimal() and int(length) > limit


def _is_refusal_of_framework(message: Message) -> bool:
    if message["type"] != "http.response.start" or message["status"] != 413:
        return False
    return Headers(raw=message["headers"]).get("content-type", "").startswith("text/plain")
