"""HEAD, which is answered as its GET without the body."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.policy import policy_of


class HeadAsGet:
    """ASGI middleware that makes a GET of each HEAD, and drops the body of its answer.

    Clients and proxies send HEAD, and no route has to know. The page answers it by itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or policy_of(scope) is None:
            await self._app(scope, receive, send)
            return
        has_ended = False

        async def send_without_body(message: Message) -> None:
            nonlocal has_ended
            if message["type"] == "http.response.body":
                if has_ended:
                    return
                has_ended = True
                message = {**message, "body": b"", "more_body": False}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)
