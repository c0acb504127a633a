"""A view of the index for users' queries, which ends a query that takes too long."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import Catalog

MAX_SECONDS = 10.0
"""How long one query may take."""
_INSTRUCTIONS = 10_000  # of SQLite's machine between two checks of the clock; well below a millisecond
_CANCELED = "57014"  # the SQLSTATE with which Postgres ends a statement that took too long

# A plan that serves all parameters would ignore how many runs have a name.
_LIMITS = text(
    "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('statement_timeout', "
    ":milliseconds, true)"
)


# The values of a name lie in the order of runs, and so do runs themselves in their key. Reading them side by
# side takes the same time for every question. Left alone, Postgres chooses by how many runs it expects, and
# its statistics are of all values of all names together.
SIDE_BY_SIDE = ("enable_nestloop", "enable_hashjoin", "max_parallel_workers_per_gather", "jit")
"""Settings to switch off so that Postgres reads runs and the names' values side by side, in their order."""
IN_PARALLEL = ("max_parallel_workers_per_gather",)
"""The setting for parallel workers; starting them takes as long as reading 100,000 values of a name."""


@contextmanager
def without(session: Session, settings: Sequence[str]) -> Iterator[None]:
    """Have Postgres plan with these settings switched off; does nothing on SQLite, which has none of them."""
    if not settings or session.get_bind().dialect.name != "postgresql":
        yield
        return
    session.execute(text("".join(f"SET LOCAL {setting} TO 0; " for setting in settings)))
    yield
    session.execute(text("".join(f"SET LOCAL {setting} TO DEFAULT; " for setting in settings)))


@contextmanager
def reading(catalog: Catalog, seconds: float = MAX_SECONDS) -> Iterator[Session]:
    """A consistent view of the catalog for queries of the index, whose time is bounded.

    Raises:
        InvalidInput: a query takes longer than ``seconds``.
    """
    with catalog.read() as session:
        try:
            if session.get_bind().dialect.name == "postgresql":
                session.execute(_LIMITS, {"milliseconds": str(round(1000 * seconds))})
                yield session
                return
            connection = session.connection().connection.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            ends = time.monotonic() + seconds
            connection.set_progress_handler(lambda: time.monotonic() > ends, _INSTRUCTIONS)
            try:
                yield session
            finally:
                connection.set_progress_handler(None, 0)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _CANCELED or str(error.orig) == "interrupted":
                raise InvalidInput(
                    f"filter and columns take longer than {seconds:g} s, which is not accepted: ask for "
                    "one project, or for fewer names"
                ) from None
            raise
