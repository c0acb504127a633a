"""A view of the index for questions of other people: planned for what is asked, and ended when it takes too long."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import Catalog

MOST_SECONDS = 10.0
"""How long one question may take."""
_INSTRUCTIONS = 10_000  # of SQLite's machine between two looks at the clock; well below a millisecond
_CANCELED = "57014"  # Postgres' state of a statement that took too long

# A plan that is kept for all parameters would not know how many runs have a name.
_LIMITS = text("SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('statement_timeout', :milliseconds, true)")


@contextmanager
def reading(catalog: Catalog, seconds: float = MOST_SECONDS) -> Iterator[Session]:
    """A consistent view of the catalog, as :meth:`~resources.catalog.Catalog.read` gives it, for questions to the index.

    Raises:
        InvalidInput: a question takes longer than ``seconds``.
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
                    f"filter and columns take longer than {seconds:g} s, which is not accepted: ask for one project, or for fewer names"
                ) from None
            raise
