"""Answers in progress, which end when the server stops."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class OpenStreams:
    """Answers in progress, so that they can be ended when the server stops."""

    def __init__(self) -> None:
        self._leave: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def add(self) -> asyncio.Event:
        """Add an answer; the event is set when it is to end."""
        leave = asyncio.Event()
        self._leave[leave] = asyncio.get_running_loop()
        return leave

    def remove(self, leave: asyncio.Event) -> None:
        """Remove an answer that has ended."""
        del self._leave[leave]

    def end(self) -> None:
        """End all of them; may be called from any thread, and from a signal's handler."""
        for leave, loop in list(self._leave.items()):
            loop.call_soon_threadsafe(leave.set)


class EndStreams:
    """ASGI middleware that ends answers in progress when the server stops, and completes those cut short."""

    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False
        has_ended = False
        leave = self._streams.add()

        async def receive_until_stop() -> Message:
            if not has_begun:
                return await receive()
            message = asyncio.ensure_future(receive())
            stop = asyncio.ensure_future(leave.wait())
            try:
                await asyncio.wait((message, stop), return_when=asyncio.FIRST_COMPLETED)
                if message.done():
                    return message.result()
                return {"type": "http.disconnect"}
            finally:
                message.cancel()
                stop.cancel()

        async def watch(message: Message) -> None:
            nonlocal has_begun, has_ended
            if message["type"] == "http.response.start":
                has_begun = True
            elif message["type"] == "http.response.body":
                has_ended = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive_until_stop, watch)
        finally:
            self._streams.remove(leave)
        if has_begun and not has_ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
