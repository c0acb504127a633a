"""A view of the index for questions of other people: planned for what is asked, and ended when it takes too
long.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
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
_LIMITS = text(
    "SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('statement_timeout', "
    ":milliseconds, true)"
)


# The values of a name lie in the order of runs, and so do runs themselves in their key: to read them side by
# side takes as long whatever is
# asked. What Postgres would choose hangs on how many runs it expects, and it knows of all values of all names
# together.
SIDE_BY_SIDE = ("enable_nestloop", "enable_hashjoin", "max_parallel_workers_per_gather", "jit")
"""Settings, without which Postgres reads all runs, and the values of the names, in their order at once."""
IN_PARALLEL = ("max_parallel_workers_per_gather",)
"""To start helpers takes about as long as to read the values of a name of 100,000 runs."""


@contextmanager
def without(session: Session, settings: Sequence[str]) -> Iterator[None]:
    """Have Postgres plan without these settings."""
    session.execute(text("".join(f"SET LOCAL {setting} TO 0; " for setting in settings)))
    yield
    session.execute(text("".join(f"SET LOCAL {setting} TO DEFAULT; " for setting in settings)))


@contextmanager
def reading(catalog: Catalog, seconds: float = MOST_SECONDS) -> Iterator[Session]:
    """A consistent view of the catalog, as :meth:`~resources.catalog.Catalog.read` gives it, for questions to
    the index.

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
                    f"filter and columns take longer than {seconds:g} s, which is not accepted: ask for "
                    "one project, or for fewer names"
                ) from None
            raise
