"""Waiting for a database that is away for a moment: it restarts, or has no connection to spare."""

import logging
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

CONNECT_SECONDS = 30.0
"""How long a new connection is waited for; a sensor's tick has 60 seconds."""
WORKER_SECONDS = 300.0
"""How long a worker tries a transaction again: its trial waits at its rung rather than be lost."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds; a worker is back well within the time that its lease is doubted
_SAID_EVERY = 10.0  # seconds between two warnings
# SQLSTATE classes: connection exception, insufficient resources, operator intervention (shutdown, crash, starting up);
# and serialization failure, deadlock.
_PASSING = ("08", "53", "57", "40001", "40P01")
# SQLite's, in its own words: another writes, or may do so again once there is space. A table that is missing stays missing.
_PASSING_IN_SQLITE = ("is locked", "locking protocol", "disk is full")
# Refusals of a connection have no SQLSTATE in psycopg, and no end if nobody changes something.
_LASTING = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist", "permission denied")

_log = logging.getLogger(__name__)
_Done = TypeVar("_Done")


def retry_while_away(work: Callable[[], _Done], seconds: float) -> _Done:
    """Do ``work``, and again from its beginning, with growing pauses, while the database is away, for at most so many seconds.

    ``work`` may be done twice although it was committed: the answer to a COMMIT can be lost.
    """
    for pause in _pauses(seconds):
        try:
            return work()
        except DBAPIError as error:
            if not is_passing(error):
                raise
            pause(error.orig)
    return work()


def connect_with_retry(connect: Callable[[], _Done]) -> _Done:
    """The same for a driver's connecting, for :data:`CONNECT_SECONDS`; its errors are the driver's."""
    for pause in _pauses(CONNECT_SECONDS):
        try:
            return connect()
        except Exception as error:
            if not _may_connect_later(error):
                raise
            pause(error)
    return connect()


def is_passing(error: DBAPIError) -> bool:
    """Whether the same transaction may come to its end a moment later."""
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return str(state).startswith(_PASSING)
    if isinstance(error.orig, sqlite3.Error):
        return any(passing in str(error.orig) for passing in _PASSING_IN_SQLITE)
    # psycopg's without a state: refused, or broken off.
    return error.connection_invalidated or _may_connect_later(error.orig)


def _may_connect_later(error: BaseException | None) -> bool:
    return type(error).__name__ == "OperationalError" and not any(lasting in str(error) for lasting in _LASTING)


def _pauses(seconds: float) -> Iterator[Callable[[object], None]]:
    """Pauses until ``seconds`` are over: each twice the one before, and a random share of it, so that not all come back at once."""
    until, longest, said = time.monotonic() + seconds, _FIRST_PAUSE, float("-inf")

    def pause(error: object) -> None:
        nonlocal longest, said
        if time.monotonic() - said > _SAID_EVERY:
            said = time.monotonic()
            _log.warning("the catalog does not answer, trying again for %.0f s: %s", until - said, error)
        time.sleep(longest * random.uniform(0.5, 1.0))
        longest = min(2 * longest, _LONGEST_PAUSE)

    while time.monotonic() < until:
        yield pause
