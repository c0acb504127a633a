"""Errors as answers: ``application/problem+json`` (RFC 9457) with the library's own message."""

import errno
import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halving.errors import AlreadyExists, HalvingError, InvalidInput, NotFound, StoreError, StoreUnavailable
from halving.query.json_values import jsonable
from resources.catalog.retry import catalog_is_away
from resources.sweep_spec.parsing import describe_error
from server.identity.tokens import without_tokens

RETRY_SECONDS = 5
MEDIA_TYPE = "application/problem+json"
_MAX_VALUE_LETTERS = 100  # characters of a value
CATALOG_AWAY = "the catalog does not answer; try again"
STORE_AWAY = "the store does not answer: why is in the server's log; try again in a few seconds"
_STORE_UNREAD = (
    "the store could not be read: it refuses this server, or a file in it is damaged; the server's log "
    "says which; try again later"
)
DISK_FULL = (
    "there is no room left on the server's disk, and nothing of this was kept: free some, then send it again"
)
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_log = logging.getLogger(__name__)


class Busy(HalvingError):
    """Too many requests at a time; the same request may succeed a little later.

    Attributes:
        status: of the answer.
        retry_seconds: after which it may be asked again.
    """

    status = 503
    retry_seconds = RETRY_SECONDS


_STATUS = {NotFound: 404, AlreadyExists: 409, InvalidInput: 422, StoreError: 503}


class Problem(BaseModel):
    """Why a request was not done."""

    status: int = Field(description="The HTTP status.", examples=[422])
    detail: str = Field(
        description="One sentence: the field, the value, and what is accepted.",
        examples=["max_trials = 9 is not accepted: give more than the 9 of now, at most 90000"],
    )
    column: int | None = Field(default=None, description="Of a filter: where it is wrong, from 1.")


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **more: object) -> JSONResponse:
    """An error as a response; ``more`` are additional members, such as the column of a filter."""
    body = {"status": status, "detail": without_tokens(detail), **more}
    return JSONResponse(jsonable(body), status, headers, media_type=MEDIA_TYPE)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of errors, for the ``responses`` of a router."""
    content = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def add_error_handlers(app: FastAPI, root: str) -> None:
    """Answer errors with their messages; an unexpected one is logged and says nothing of the inside.

    Args:
        root: of the store; see :func:`without_root`.
    """

    def answer_error(_: Request, error: Exception) -> JSONResponse:
        return answer_of(error, root)

    for kind in (HalvingError, DBAPIError, NoConnectionLeft, HTTPException, RequestValidationError, OSError):
        app.add_exception_handler(kind, answer_error)


class AnswerErrors:
    """ASGI middleware that answers what no handler inside of it has answered.

    An error in the middle of an answer is raised: the connection ends.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def watch(message: Message) -> None:
            nonlocal has_begun
            await send(message)
            has_begun = True

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            if has_begun:
                raise
            await answer_of(error)(scope, receive, send)


def answer_of(error: Exception, root: str | None = None) -> JSONResponse:
    """The response to a request that raised this error.

    ``root`` is the store's address, which not everybody who may ask is to see.
    """
    if disk_is_full(error):
        _log.error("the disk is full: %s", error)
        return problem(507, DISK_FULL)
    if isinstance(error, HalvingError):
        return _library_answer(error, root)
    if isinstance(error, RequestValidationError):
        return problem(422, _sentence(error))
    if isinstance(error, HTTPException):
        return problem(error.status_code, _http_words(error), dict(error.headers or {}))
    if catalog_is_away(error):
        return problem(503, CATALOG_AWAY, {"Retry-After": str(RETRY_SECONDS)})
    _log.error("a request failed", exc_info=error)
    return problem(500, "the server made an error; its log has more")


def disk_is_full(error: BaseException) -> bool:
    """Whether a disk is full: this server's own, the store's, or that of a catalog in a file."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return True
    if isinstance(error, DBAPIError) and "database or disk is full" in str(error.orig):
        return True
    return isinstance(error, StoreError) and error.__cause__ is not None and disk_is_full(error.__cause__)


def without_root(text: str, root: str) -> str:
    """A message of the library without the store's address.

    For callers who see neither the server's disk nor its bucket.
    """
    for address in (root, root.partition("?")[0]):  # on S3 its options follow
        text = re.sub(rf"(?:\bthe store )?(?<![\w/]){re.escape(address)}(?![\w-])", "the store", text)
    return text


# Fields of answers that hold messages of the library.
_REASONS = ("error", "reason", "why", "texts")


def reasons_without_root(value: Any, root: str, name: str = "") -> Any:
    """An answer, or a part of it, whose messages do not name the store's address.

    Only fields that say why something ended or was left out are changed.
    """
    if isinstance(value, dict):
        return {key: reasons_without_root(part, root, key) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [reasons_without_root(part, root, name) for part in value]
    if isinstance(value, str) and name in _REASONS:
        return without_root(value, root)
    return value


def store_fault(error: Exception | str) -> str:
    """The message for a fault of the store.

    Its own words, which name buckets, hosts and folders, are for the log alone.
    """
    _log.warning("the store: %s", error)
    if isinstance(error, StoreError) and not isinstance(error, StoreUnavailable):
        return _STORE_UNREAD
    return STORE_AWAY


def _library_answer(error: HalvingError, root: str | None) -> JSONResponse:
    if isinstance(error, Busy):
        return problem(error.status, str(error), {"Retry-After": str(error.retry_seconds)})
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 409)
    more: dict[str, Any] = {}
    if (column := getattr(error, "column", None)) is not None:
        more = {"column": column}
    detail = str(error)
    if isinstance(error, StoreError):
        detail = store_fault(error)
    elif root is not None:
        detail = without_root(detail, root)
    headers = None
    if status == 503:
        headers = {"Retry-After": str(RETRY_SECONDS)}
    return problem(status, detail, headers, **more)


def _http_words(error: HTTPException) -> str:
    """The message of a framework error; its default words are replaced by ours, which say what to do."""
    if error.detail != HTTPStatus(error.status_code).phrase:
        return str(error.detail)
    sentences = {
        404: "there is nothing at this address",
        405: "this address does not know this method",
        413: "the body is too large",
    }
    return sentences.get(error.status_code, error.detail)


def _sentence(error: RequestValidationError) -> str:
    """Describe the first validation error: field, value, and what is accepted."""
    first = error.errors()[0]
    place, *names = first["loc"]
    if first["type"] == "json_invalid":
        character = next(iter(names), 0)
        return f"the body is not JSON: {first['ctx']['error']} at character {character}"
    field = ".".join(str(name) for name in names) or f"the {place}"
    if first["type"] == "missing":
        return f"{field} is missing: give it in the {place}"
    message = describe_error(first)
    if message.startswith("Input should"):
        message = message[0].lower() + message[1:]
    return (
        f"{field}{_value_text(first.get('input'))} is not accepted: "
        f"{message.replace('input should', 'it should', 1)}"
    )


def _value_text(value: Any) -> str:
    """A simple value as text; empty for containers, which hold more than what is wrong."""
    if not isinstance(value, str | int | float | bool):
        return ""
    text = repr(value)
    if len(text) > _MAX_VALUE_LETTERS:
        text = f"{text[:_MAX_VALUE_LETTERS]}…"
    return f" = {text}"
