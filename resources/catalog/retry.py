"""Waiting for a database that is unavailable for a moment: it restarts, or has no connection to spare."""

import logging
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

CONNECT_SECONDS = 30.0
"""How long a new connection is waited for; a sensor's tick has 60 seconds."""
WORKER_SECONDS = 300.0
"""How long a worker tries a transaction again: meanwhile its trial waits at its rung, and is not lost."""

# From 0 to a bound that doubles up to 2 s, evenly drawn: workers that lost the database in the same instant
# must not all come back in the same instant. And a worker is back well within the time that its lease is
# doubted.
_PAUSE = wait_random_exponential(multiplier=0.1, max=2.0)
_WARN_EVERY = 10  # tries
# SQLSTATE classes: connection exception, insufficient resources, operator intervention (shutdown, crash,
# starting up); and serialization failure, deadlock.
_TRANSIENT = ("08", "53", "57", "40001", "40P01")
# SQLite's, in its own words: another process writes, or there may be space later. A table that is missing
# stays missing.
_TRANSIENT_IN_SQLITE = ("is locked", "locking protocol", "disk is full")
# psycopg gives no SQLSTATE when a connection is refused, or when nobody answers.
_REFUSED = ("OperationalError", "ConnectionTimeout")
# These refusals last until somebody changes something.
_LASTING = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
)

_log = logging.getLogger(__name__)
_Done = TypeVar("_Done")


def retry_transient(work: Callable[[], _Done], seconds: float) -> _Done:
    """Do ``work``, and do it again from its beginning while the database is unavailable, for at most so many
    seconds.

    ``work`` may be done twice although it was committed: the answer to a COMMIT can be lost.
    """
    return _retry(work, lambda error: isinstance(error, DBAPIError) and is_transient(error), seconds)


def connect_with_retry(connect: Callable[[], _Done], seconds: float = CONNECT_SECONDS) -> _Done:
    """The same for the driver's own connecting; its errors are the driver's."""
    return _retry(connect, _may_connect_later, seconds)


def catalog_is_away(error: Exception) -> bool:
    """Whether the catalog could not be asked, and may be asked again."""
    return isinstance(error, NoConnectionLeft) or (isinstance(error, DBAPIError) and is_transient(error))


def is_transient(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed a moment later."""
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return str(state).startswith(_TRANSIENT)
    if isinstance(error.orig, sqlite3.Error):
        return any(transient in str(error.orig) for transient in _TRANSIENT_IN_SQLITE)
    # psycopg's without a state: the connection was refused, or broke.
    return error.connection_invalidated or _may_connect_later(error.orig)


def _may_connect_later(error: BaseException | None) -> bool:
    return type(error).__name__ in _REFUSED and not any(lasting in str(error) for lasting in _LASTING)


def _retry(work: Callable[[], _Done], may_pass: Callable[[BaseException], bool], seconds: float) -> _Done:
    began = time.monotonic()
    try:
        return work()  # nearly always the end; tenacity would add 12 µs
    except Exception as error:
        if not may_pass(error):
            raise
        failed = [error]

    def again() -> _Done:
        if failed:
            raise failed.pop()
        return work()

    def warn(tried: RetryCallState) -> None:
        if tried.attempt_number % _WARN_EVERY == 1 and tried.outcome:
            error = tried.outcome.exception()
            _log.warning(
                "the catalog does not answer; trying again, for at most %.0f s in all: %s",
                seconds,
                getattr(error, "orig", error),
            )

    stop = stop_after_delay(seconds - (time.monotonic() - began))
    return Retrying(
        retry=retry_if_exception(may_pass), wait=_PAUSE, stop=stop, before_sleep=warn, reraise=True
    )(again)
