"""Reading request bodies.

A small body goes into memory, within a budget; a large one into a file without a name.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import anyio.to_thread
from fastapi import HTTPException, Request

from halving.store.local_files import path_of, temporary_file
from server.ingest.memory_budget import MemoryBudget

BODY_SECONDS = 60.0
SILENT_SECONDS = 30.0
"""How long a body that takes room in memory may take to come, and how long nothing may come of a large
one.
"""

_PIECE = 1 << 20
_DIGITS = 18


@asynccontextmanager
async def read_body(
    request: Request, budget: MemoryBudget, max_bytes: int, seconds: float = BODY_SECONDS
) -> AsyncIterator[bytes]:
    """Read a body of at most ``max_bytes`` bytes, reserving memory for the length of the ``with`` block.

    What the client announces is reserved from the beginning, the rest as it comes.

    Raises:
        BudgetExhausted: there is none now.
        HTTPException: it is larger, or takes too long: the others wait for its room.
    """
    announced = min(_announced_size(request), max_bytes)
    with budget.reserve(announced) as more:
        try:
            async with asyncio.timeout(seconds):
                body = await _read_whole(request, max_bytes, announced, more)
        except TimeoutError:
            raise HTTPException(
                408, f"the body did not come within {seconds:g} s: send the same again, or smaller parts"
            ) from None
        yield body


@asynccontextmanager
async def body_file(
    request: Request, silent_seconds: float = SILENT_SECONDS
) -> AsyncIterator[tuple[Path, str]]:
    """Read a body of any size into a local file; yields its path and digest, ``sha256:<64 hex>``.

    Nothing of it is left at the end of the ``with`` block, nor when the process is killed.

    Raises:
        HTTPException: nothing has come for too long.
        OSError: the disk has no room for it.
    """
    digest = hashlib.sha256()
    with temporary_file() as file:
        waiting = []
        size = 0
        parts = aiter(request.stream())
        try:
            while (part := await asyncio.wait_for(anext(parts, None), silent_seconds)) is not None:
                waiting.append(part)
                size += len(part)
                if size >= _PIECE:
                    await anyio.to_thread.run_sync(_write, file, digest, b"".join(waiting))
                    waiting = []
                    size = 0
        except TimeoutError:
            raise HTTPException(
                408, f"nothing of the body has come for {silent_seconds:g} s: send it again"
            ) from None
        await anyio.to_thread.run_sync(_write, file, digest, b"".join(waiting))
        file.flush()
        yield path_of(file), f"sha256:{digest.hexdigest()}"


async def _read_whole(request: Request, max_bytes: int, reserved: int, more: Callable[[int], None]) -> bytes:
    parts = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise HTTPException(
                413, f"the body has more than {max_bytes} bytes, which is the most: send it in smaller parts"
            )
        if size > reserved:
            more(size - reserved)
            reserved = size
    return b"".join(parts)


def _write(file: IO[bytes], digest: "hashlib._Hash", content: bytes) -> None:
    file.write(content)
    digest.update(content)


def _announced_size(request: Request) -> int:
    """The body's size according to ``Content-Length``; 0 where it is not given."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and len(length) <= _DIGITS:
        return int(length)
    return 0
