"""Bodies of requests as they come: in parts, too slowly, or broken off."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest
from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.types import Message

from server.ingest.bodies import body_file, read_body
from server.ingest.memory_budget import BudgetExhausted, MemoryBudget


def _request(parts: list[bytes | None], announced: int | None = None) -> Request:
    """A request whose body comes in parts.

    At None nothing more comes, and at the end of the list the client has left.
    """
    coming = iter(parts)

    async def receive() -> Message:
        part = next(coming, b"")
        if part is None:
            await asyncio.Event().wait()
        return (
            {"type": "http.request", "body": part, "more_body": True} if part else {"type": "http.disconnect"}
        )

    headers = [] if announced is None else [(b"content-length", str(announced).encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


async def _read(request: Request, budget: MemoryBudget, max_bytes: int = 100) -> bytes:
    async with read_body(request, budget, max_bytes, seconds=0.05) as body:
        return body


def test_a_body_that_does_not_come_gives_its_room_back() -> None:
    budget = MemoryBudget(100)

    async def ask() -> None:
        with pytest.raises(HTTPException) as late:
            await _read(_request([b"a", None], announced=100), budget)
        assert late.value.status_code == 408

    asyncio.run(ask())
    with budget.reserve(1), budget.reserve(99):
        pass


def test_a_client_that_leaves_gives_its_room_back() -> None:
    budget = MemoryBudget(100)

    async def ask() -> None:
        with pytest.raises(ClientDisconnect):
            await _read(_request([b"a" * 50], announced=100), budget)

    asyncio.run(ask())
    with budget.reserve(1), budget.reserve(99):
        pass


def test_a_body_without_a_length_takes_room_as_it_comes_and_not_before() -> None:
    budget = MemoryBudget(100)

    async def ask() -> None:
        with budget.reserve(90), pytest.raises(BudgetExhausted):
            await _read(_request([b"a" * 5, b"b" * 20]), budget)
        with budget.reserve(90), pytest.raises(HTTPException) as silent:
            await _read(_request([b"a" * 10, None]), budget)
        assert silent.value.status_code == 408
        with pytest.raises(HTTPException) as large:
            await _read(_request([b"a" * 60, b"b" * 60]), budget)
        assert large.value.status_code == 413

    asyncio.run(ask())
    with budget.reserve(1), budget.reserve(99):
        pass


def test_a_large_body_is_a_file_with_its_digest_and_is_given_up_where_nothing_comes() -> None:
    parts = [bytes([number]) * 300_000 for number in range(10)]

    async def whole() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def ask() -> None:
        request = _request([])
        request.stream = whole  # type: ignore[method-assign, assignment]
        async with body_file(request) as (path, digest):
            assert path.read_bytes() == b"".join(parts)
            assert digest == f"sha256:{hashlib.sha256(b''.join(parts)).hexdigest()}"
        with pytest.raises(HTTPException) as silent:
            async with body_file(_request([parts[0], None]), silent_seconds=0.05):
                pass
        assert silent.value.status_code == 408

    asyncio.run(ask())
