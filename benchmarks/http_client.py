"""An HTTP client that sends one request after the other over one connection, as a browser's tab does."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple


class Reply(NamedTuple):
    """An answer; the headers' names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """A client of a server on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: str, **headers: str) -> Reply:
        """POST a body; ``headers`` have underscores for hyphens.

        Raises:
            RuntimeError: it is neither 2xx nor 304.
        """
        fields = {
            "Host": f"127.0.0.1:{self._port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
        }
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        request = f"POST {path} HTTP/1.1\r\n{lines}\r\n{body}".encode()
        kept = self._streams is not None
        try:
            reply = await self._exchange(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            if not kept:
                raise
            self._streams = None  # the server closes a connection that was idle for some seconds
            reply = await self._exchange(request)
        if reply.status // 100 != 2 and reply.status != 304:
            raise RuntimeError(f"{path}: {reply.status} {reply.body[:1_000]!r}")
        return reply

    async def _exchange(self, request: bytes) -> Reply:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(request)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value for name, value in (line.split(": ", 1) for line in lines if ": " in line)
        }
        return Reply(
            int(first.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))
        )


async def end_clients(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """End the tasks of clients; the error of one that has ended by itself is raised."""
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
