"""The lease to form a gang, kept in the catalog.

One gang of all sweeps has it at a time (:mod:`resources.scheduling.forming_line`).
"""

import time
from dataclasses import asdict

from sqlalchemy import delete, select

from resources.catalog import Catalog, FormingGangRow
from resources.catalog.retry import retry_transient
from resources.scheduling.forming_line import PATIENCE_SECONDS, Place, latest_end, renew_place

_LOOK_SECONDS = 1.0  # between two looks at the line
_RETRY_SECONDS = 5.0  # the database is asked again, before the gang stays as it was


class FormingLease:
    """One gang's place in the line, from its first request until it has formed.

    Args:
        catalog: shared by all gangs.
        gang: the unique name of its attempt.
        patience: seconds for which it keeps the turn while others wait.
    """

    def __init__(self, catalog: Catalog, gang: str, *, patience: float = PATIENCE_SECONDS) -> None:
        self._catalog = catalog
        self._gang = gang
        self._patience = patience
        self._looked = float("-inf")
        self._forms = self._in_line = False

    def take(self) -> bool:
        """Renew the gang's place; return whether it has the turn to form now.

        Call it every few seconds until :meth:`give`. If it returns False after True, another gang may form,
        and this one has to give up its pods.

        Raises:
            sqlalchemy.exc.DBAPIError: the database is unavailable; the gang stays as it was.
        """
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._in_line = True  # This may be so even if the answer is lost.
            self._forms = retry_transient(self._renew, _RETRY_SECONDS)
            self._looked = time.monotonic()
        return self._forms

    def give(self) -> None:
        """Leave the line, because the gang is placed or over.

        Raises:
            sqlalchemy.exc.DBAPIError: the database is unavailable; the place then expires.
        """
        self._forms = False
        self._looked = float("-inf")
        if self._in_line:
            retry_transient(self._leave, _RETRY_SECONDS)
            self._in_line = False

    def is_wanted(self) -> bool:
        """Whether another gang forms or waits in the line."""
        now = self._catalog.now()
        others = (
            select(FormingGangRow.gang)
            .where(FormingGangRow.gang != self._gang, FormingGangRow.until.between(now, latest_end(now)))
            .limit(1)
        )
        return bool(self._catalog.at_once(others, {}))

    def _renew(self) -> bool:
        with self._catalog.write(exclusive=True) as session:
            columns = (
                FormingGangRow.gang,
                FormingGangRow.since,
                FormingGangRow.forms_since,
                FormingGangRow.until,
            )
            line = [Place(*row) for row in session.execute(select(*columns))]
            now = self._catalog.now()
            if any(place.until > latest_end(now) for place in line):
                self._catalog.read_clock(session)
                now = self._catalog.now()
            session.execute(delete(FormingGangRow).where(~FormingGangRow.until.between(now, latest_end(now))))
            own = renew_place(line, self._gang, now, self._patience)
            session.merge(FormingGangRow(**asdict(own)))
            return own.forms

    def _leave(self) -> None:
        with self._catalog.write() as session:
            session.execute(delete(FormingGangRow).where(FormingGangRow.gang == self._gang))
