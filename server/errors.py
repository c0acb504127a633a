"""Errors as answers: ``application/problem+json`` (RFC 9457) with the library's own message."""

import logging

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError

from halving.errors import AlreadyExists, HalvingError, InvalidInput, NotFound, StoreError
from resources.catalog.retry import is_transient

RETRY_SECONDS = 5
_STATUS = {NotFound: 404, AlreadyExists: 409, InvalidInput: 422, StoreError: 503}
_log = logging.getLogger(__name__)


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **more: object) -> JSONResponse:
    """An error as an answer; ``more`` are members of their own, such as the column of a filter."""
    body = {"status": status, "detail": detail, **more}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def add_error_handlers(app: FastAPI) -> None:
    """Answer the library's errors with their messages; an unexpected one is logged and says nothing of the inside."""
    app.add_exception_handler(HalvingError, _known)
    app.add_exception_handler(DBAPIError, _database)


def _known(_: Request, error: Exception) -> JSONResponse:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 409)
    column = getattr(error, "column", None)
    more = {"column": column} if column is not None else {}
    return problem(status, str(error), {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None, **more)


def _database(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, DBAPIError) and is_transient(error):
        return problem(503, "the catalog does not answer; try again", {"Retry-After": str(RETRY_SECONDS)})
    _log.error("the catalog refused a statement", exc_info=error)
    return problem(500, "the server made an error; its log has more")
