"""The write log: every write that was requested, and how it was answered."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import delete, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from resources.catalog import Catalog, WriteLogRow, utcnow
from resources.catalog.pipelined import Statement
from server.access.policy import policy_of
from server.access.project_limits import Routes
from server.identity.caller import Caller
from server.identity.tokens import without_tokens

RECORDED = "halving.write_recorded"
"""In a request's scope: it needs no further entry, because its work added one, or nothing was changed."""

BATCH = 1_000
"""Old entries that are deleted in one transaction: on SQLite workers wait for it."""

REPEAT_SECONDS = 60.0
"""Refusals that are alike within this time are one entry."""

LOOK_SECONDS = 2.0
"""How often entries that could not be written are tried again."""

# characters
_MAX_TARGET_LETTERS = 500
_MAX_METHOD_LETTERS = 20
_FORGET_SECONDS = 3600.0  # how often what is old is deleted
_MAX_WAITING = 1_000  # entries that could not be written yet
_ADD = insert(WriteLogRow)
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_log = logging.getLogger(__name__)


def without_write_log(endpoint: _Endpoint) -> _Endpoint:
    """Leave a route out of the write log.

    For routes that programs call many times a second (ask, tell): the trial's own rows say what they did.
    """
    endpoint.is_logged = False  # type: ignore[attr-defined]
    return endpoint


class WriteLog:
    """Adds writes to the write log.

    What changes the catalog is added in the transaction of its work (:meth:`add`): neither is ever there
    without the other. The rest, refused writes and browsers that log in, changes nothing (:meth:`record`):
    alike ones are recorded once a minute, so that nobody who may not write can keep the catalog's writers
    waiting; the log has how many there were.

    Args:
        catalog: with connections of its own, so that slow questions do not hold it up.
        days: after which an entry is deleted; None keeps all.
    """

    def __init__(self, catalog: Catalog, routes: Routes, days: float | None) -> None:
        self._catalog = catalog
        self._routes = routes
        self._days = days
        self._thread = anyio.CapacityLimiter(1)
        self._waiting: deque[dict[str, Any]] = deque()
        self._repeats: dict[tuple[str, str, int], _Repeat] = {}

    def add(self, session: Session, scope: Scope, status: int) -> None:
        """Add a write in the transaction that does it.

        Once the transaction has ended, the caller marks the scope with :data:`RECORDED`.
        """
        session.execute(*self.entry(scope, status))

    def entry(self, scope: Scope, status: int) -> Statement:
        """The statement that :meth:`add` executes, for transactions without a session."""
        return _ADD, self._entry(scope, status)

    async def record(self, scope: Scope, status: int) -> None:
        """Add a request that was answered without a transaction of its own.

        A catalog that does not take it now gets it later: what was answered stays answered.
        """
        entry = self._entry(scope, status)
        if scope.get(RECORDED) or self._is_repeated(entry):
            return
        if not self._waiting:  # else the catalog is known to be away
            try:
                await anyio.to_thread.run_sync(self._write, [entry], limiter=self._thread)
                return
            except (DBAPIError, NoConnectionLeft) as error:
                _log.error(
                    "the write log could not be written, and will be tried again: %s: %s",
                    type(error).__name__,
                    _line_of(entry),
                )
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(entry)
        else:
            _log.error(
                "the write log lacks an entry, because too many wait for the catalog: %s", _line_of(entry)
            )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Retry failed entries and delete old ones, for the length of the ``with`` block."""
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await anyio.to_thread.run_sync(self._catch_up)
            for entry in self._waiting:
                _log.error(
                    "the write log lacks an entry, because the catalog did not take it before the server "
                    "ended: %s",
                    _line_of(entry),
                )

    async def _keep(self) -> None:
        forget_at = time.monotonic()
        while True:
            await anyio.to_thread.run_sync(self._catch_up, limiter=self._thread)
            self._end_repeats()
            if time.monotonic() >= forget_at:
                while await anyio.to_thread.run_sync(self._forget, limiter=self._thread) == BATCH:
                    await asyncio.sleep(0.1)  # lets other writers in
                forget_at = time.monotonic() + _FORGET_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    def _catch_up(self) -> None:
        entries = list(self._waiting)
        try:
            if entries:
                self._write(entries)
        except (DBAPIError, NoConnectionLeft):
            return  # tried again next time
        for _ in entries:
            self._waiting.popleft()

    def _forget(self) -> int:
        if self._days is None:
            return 0
        try:
            return forget(self._catalog, utcnow() - timedelta(days=self._days))
        except (DBAPIError, NoConnectionLeft) as error:
            _log.warning(
                "old entries of the write log were not deleted, next try in an hour: %s", type(error).__name__
            )
            return 0

    def _write(self, entries: list[dict[str, Any]]) -> None:
        with self._catalog.write() as session:
            session.execute(_ADD, entries)

    def _entry(self, scope: Scope, status: int) -> dict[str, Any]:
        caller: Caller = scope["halving.caller"]
        return {
            "at": utcnow(),
            "actor": caller.actor,
            "method": scope["method"][:_MAX_METHOD_LETTERS],
            "route": self._routes.template(scope.get("endpoint")),
            "target": without_tokens(scope["path"])[:_MAX_TARGET_LETTERS],
            "status": status,
        }

    def _is_repeated(self, entry: dict[str, Any]) -> bool:
        # Neither method nor path: a client can send any number of different ones.
        alike = (entry["actor"], entry["route"], entry["status"])
        now = time.monotonic()
        repeat = self._repeats.get(alike)
        if repeat is None or now - repeat.began >= REPEAT_SECONDS:
            self._repeats[alike] = _Repeat(now)
            return False
        repeat.again += 1
        return True

    def _end_repeats(self) -> None:
        now = time.monotonic()
        for alike, repeat in list(self._repeats.items()):
            if now - repeat.began >= REPEAT_SECONDS:
                del self._repeats[alike]
                if repeat.again:
                    actor, route, status = alike
                    _log.warning(
                        "%s asked for %s %d more times within a minute, answered with %d",
                        actor,
                        route,
                        repeat.again,
                        status,
                    )


class LogWrites:
    """ASGI middleware that adds every write of a known caller to the write log, before it is answered."""

    def __init__(self, app: ASGIApp, write_log: WriteLog) -> None:
        self._app = app
        self._write_log = write_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        policy = policy_of(scope)
        if policy is None or not policy.writes(scope["method"]):
            await self._app(scope, receive, send)
            return

        async def record_and_send(message: Message) -> None:
            if message["type"] == "http.response.start" and "halving.caller" in scope:
                is_logged = getattr(scope.get("endpoint"), "is_logged", True)
                if is_logged:
                    await self._write_log.record(scope, message["status"])
            await send(message)

        await self._app(scope, receive, record_and_send)


class _Repeat:
    """A recorded refusal, and how many like it came afterwards and were not recorded."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.again = 0


def entries(
    catalog: Catalog,
    *,
    actor: str | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 200,
) -> list[dict[str, Any]]:
    """Entries of the write log, newest first.

    Args:
        actor: only this one's.
        since: only from then on.
        before: only entries with a smaller ``id``: the next page after one that ended with it.
    """
    query = select(WriteLogRow).order_by(WriteLogRow.id.desc()).limit(limit)
    if actor is not None:
        query = query.where(WriteLogRow.actor == actor)
    if since is not None:
        query = query.where(WriteLogRow.at >= since)
    if before is not None:
        query = query.where(WriteLogRow.id < before)
    names = ("id", "at", "actor", "method", "route", "target", "status")
    with catalog.read() as session:
        return [{name: getattr(row, name) for name in names} for row in session.scalars(query)]


def forget(catalog: Catalog, before: datetime, limit: int = BATCH) -> int:
    """Delete up to ``limit`` of the oldest entries before a time; returns how many were deleted."""
    with catalog.read() as session:  # first, because writers need not wait where nothing is old
        old = list(
            session.scalars(
                select(WriteLogRow.id).where(WriteLogRow.at < before).order_by(WriteLogRow.at).limit(limit)
            )
        )
    if old:
        with catalog.write() as session:
            session.execute(delete(WriteLogRow).where(WriteLogRow.id.in_(old)))
    return len(old)


def _line_of(entry: dict[str, Any]) -> str:
    return f"{entry['actor']} {entry['method']} {entry['target']} {entry['status']}"
