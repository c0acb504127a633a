"""Why what a trial waits for has not started, recorded whenever that changes."""

import logging
import time
from collections.abc import Callable

_UNKNOWN = "it may have been recorded, and its answer lost"
_AGAIN_SECONDS = 30.0  # after the database was unavailable: asking it may take as long

_log = logging.getLogger(__name__)


class WaitingNote:
    """The reason on a trial's page.

    Args:
        name: of what waits, for example of a pod or gang.
        on_waiting: gets the reason whenever it changes; None when the wait is over.
    """

    def __init__(self, name: str, on_waiting: Callable[[str | None], None]) -> None:
        self._name = name
        self._on_waiting = on_waiting
        self._noted: str | None = None
        self._not_before = 0.0

    def note(self, reason: str | None) -> None:
        """Have it recorded, if it is new or could not be recorded before."""
        if reason == self._noted or time.monotonic() < self._not_before:
            return
        try:
            self._on_waiting(reason)
        except Exception as error:  # noqa: BLE001
            # whatever a database may raise: the reason is only for people to read
            _log.warning("could not record that %s waits (%s): %s", self._name, reason, error)
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            self._noted = _UNKNOWN
            return
        self._noted = reason
