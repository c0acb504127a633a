"""``Idempotency-Key``: a write that is sent again with its key is answered as before, and not done again.

A route that writes takes :data:`Idempotent` and does its work in the transaction that it is given::

    @router.post("/training-runs", status_code=202)
    def start(body: NewRun, state: Shared, run_once: Idempotent) -> Response:
        def write(session: Session) -> tuple[int, Any]:
            row = add_intent(session, body)          # nothing but what belongs to this transaction
            return 202, {"run_id": row.id}

        return run_once(write)

The answer is stored in the same transaction as the work, and so is the write log's entry: a server that is
killed has either done all of it or nothing. Without the header the work is done each time. A route that reads
anything before its work, such as what a reference means now, asks for the stored answer first
(:meth:`IdempotentWrite.find_stored`), because what has changed since must not change the answer. The same key
with another path, query or body is answered with 422; a write that raised has left nothing, and is tried
again. Keys belong to who sent them, and are forgotten after a day.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from sqlalchemy import delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from halving.query.json_values import jsonable
from resources.catalog import AnswerRow, Catalog, utcnow
from server.access.write_log import RECORDED, WriteLog
from server.answers import answer
from server.identity.caller import caller_of
from server.state import Shared

KEPT = timedelta(days=1)
REPLAYED = "Idempotency-Replayed"
"""The header of an answer that was given before."""

_MAX_KEY_LETTERS = 255
_IN_WORK = 0  # the status of a row whose transaction has not ended
Write = Callable[[Session], tuple[int, Any]]
"""What a route does in its transaction; gives the status and the data of its answer."""


class IdempotentWrite:
    """Does a request's work once for its ``Idempotency-Key``; see the module."""

    def __init__(self, catalog: Catalog, request: Request, key: str | None, body: bytes) -> None:
        self._catalog = catalog
        self._scope = request.scope
        self._key = key
        self._write_log: WriteLog = request.app.state.write_log
        self._actor = caller_of(request).actor
        self._request = sha256(
            f"{request.method} {request.url.path}?{request.url.query}\n".encode() + body
        ).hexdigest()

    def __call__(self, write: Write) -> Response:
        """Do the work, or return the stored answer if it was done before.

        Raises:
            InvalidInput: the key was sent with another request before.
        """
        with self._catalog.write() as session:
            # First, so that another request with this key waits here until the transaction has ended.
            if self._key is not None and not self._is_first(session, self._key):
                response = self._repeat_answer(session.get_one(AnswerRow, (self._actor, self._key)))
            else:
                status, data = write(session)
                self._write_log.add(session, self._scope, status)
                if self._key is not None:
                    row = session.get_one(AnswerRow, (self._actor, self._key))
                    row.status = status
                    row.body = json.dumps(jsonable(data), allow_nan=False)
                response = answer(data, status)
        self._scope[RECORDED] = True
        return response

    def find_stored(self) -> Response | None:
        """The stored answer of a write that was done before; None if it was not. Nothing is written.

        Raises:
            InvalidInput: the key was sent with another request before.
        """
        if self._key is None:
            return None
        with self._catalog.read() as session:
            since = AnswerRow.created_at >= utcnow() - KEPT
            row = session.scalar(
                select(AnswerRow).where(AnswerRow.actor == self._actor, AnswerRow.key == self._key, since)
            )
            if row is None:
                return None
            response = self._repeat_answer(row)
        self._scope[RECORDED] = True
        return response

    def _is_first(self, session: Session, key: str) -> bool:
        now = utcnow()
        session.execute(delete(AnswerRow).where(AnswerRow.created_at < now - KEPT))
        values = {
            "actor": self._actor,
            "key": key,
            "request": self._request,
            "status": _IN_WORK,
            "body": "null",
            "created_at": now,
        }
        adding: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}.get(
            session.get_bind().dialect.name, insert
        )(AnswerRow)
        added = session.execute(adding.values(values).on_conflict_do_nothing().returning(AnswerRow.key))
        return added.first() is not None

    def _repeat_answer(self, row: AnswerRow) -> Response:
        if row.request != self._request:
            raise InvalidInput(
                f"Idempotency-Key {self._key!r} is not accepted: it came with another request before; give "
                "each write a key of its own"
            )
        return answer(json.loads(row.body), row.status, {REPLAYED: "true"})


async def _once(
    request: Request,
    state: Shared,
    idempotency_key: Annotated[
        str | None,
        Header(
            description=(
                "Any text of your own, such as a UUID: the same request with the same key is done once "
                "within a day."
            ),
            min_length=1,
            max_length=_MAX_KEY_LETTERS,
        ),
    ] = None,
) -> IdempotentWrite:
    # The routes' own functions are called in threads, which cannot wait for the body; it has been read when
    # this is called.
    return IdempotentWrite(state.catalog, request, idempotency_key, await request.body())


Idempotent = Annotated[IdempotentWrite, Depends(_once)]
"""In a route's arguments: does its work once for the request's ``Idempotency-Key``."""
