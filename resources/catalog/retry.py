"""Retrying while a database is unavailable, because it restarts or has no free connection."""

import logging
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

CONNECT_SECONDS = 30.0
"""How long opening a connection is retried; less than the 60 seconds of a sensor's tick."""
WORKER_SECONDS = 300.0
"""How long a worker retries a transaction; meanwhile its trial waits at its rung, and is not lost."""

# A random pause up to a bound that doubles to 2 s, because workers that lost the database at the same moment
# must not all come back at the same moment. It is much shorter than the time for which a lease is doubted.
_PAUSE = wait_random_exponential(multiplier=0.1, max=2.0)
_WARN_EVERY = 10  # tries
# SQLSTATE classes: connection exception, insufficient resources, operator intervention (shutdown, crash,
# starting up); and serialization failure, deadlock.
_TRANSIENT = ("08", "53", "57", "40001", "40P01")
# Parts of SQLite's messages while another process writes, or while there is no space. All its other errors,
# such as that of a missing table, last.
_TRANSIENT_IN_SQLITE = ("is locked", "locking protocol", "disk is full")
# psycopg gives no SQLSTATE when a connection is refused, or when the server does not answer.
_REFUSED = ("OperationalError", "ConnectionTimeout")
# Refusals with these messages last until somebody changes the configuration.
_LASTING = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
)

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


def retry_transient(work: Callable[[], _Result], seconds: float) -> _Result:
    """Call ``work``, again from its beginning while the database is unavailable, for at most ``seconds``.

    ``work`` may be called again although it was committed, because the answer to a COMMIT can be lost.
    """
    return _retry(work, lambda error: isinstance(error, DBAPIError) and is_transient(error), seconds)


def connect_with_retry(connect: Callable[[], _Result], seconds: float = CONNECT_SECONDS) -> _Result:
    """Call ``connect``, again while the database is unavailable; errors are the driver's own."""
    return _retry(connect, _may_connect_later, seconds)


def catalog_is_away(error: Exception) -> bool:
    """Whether an error says that the catalog is unavailable for now."""
    return isinstance(error, NoConnectionLeft) or (isinstance(error, DBAPIError) and is_transient(error))


def is_transient(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed if it is tried again."""
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return str(state).startswith(_TRANSIENT)
    if isinstance(error.orig, sqlite3.Error):
        return any(transient in str(error.orig) for transient in _TRANSIENT_IN_SQLITE)
    # psycopg's errors without a state: the connection was refused, or is broken.
    return error.connection_invalidated or _may_connect_later(error.orig)


def _may_connect_later(error: BaseException | None) -> bool:
    return type(error).__name__ in _REFUSED and not any(lasting in str(error) for lasting in _LASTING)


def _retry(
    work: Callable[[], _Result], may_retry: Callable[[BaseException], bool], seconds: float
) -> _Result:
    began = time.monotonic()
    try:
        return work()  # Nearly every call ends here, without the 12 µs that tenacity takes.
    except Exception as error:
        if not may_retry(error):
            raise
        first_error = [error]

    def work_again() -> _Result:
        if first_error:  # The first try, for tenacity, is the one above.
            raise first_error.pop()
        return work()

    def warn(call: RetryCallState) -> None:
        if call.attempt_number % _WARN_EVERY == 1 and call.outcome:
            error = call.outcome.exception()
            _log.warning(
                "the catalog does not answer; trying again, for at most %.0f s in all: %s",
                seconds,
                getattr(error, "orig", error),
            )

    stop = stop_after_delay(seconds - (time.monotonic() - began))
    return Retrying(
        retry=retry_if_exception(may_retry), wait=_PAUSE, stop=stop, before_sleep=warn, reraise=True
    )(work_again)
