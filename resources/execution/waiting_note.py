"""Records why a trial's pod, gang or process has not started, whenever that changes."""

import logging
import time
from collections.abc import Callable

_UNKNOWN = "it may have been recorded, and its answer lost"
_AGAIN_SECONDS = 30.0  # until the next try after the database was unavailable, which may take as long

_log = logging.getLogger(__name__)


class WaitingNote:
    """The reason on a trial's page.

    Args:
        name: of the pod or gang that waits.
        on_waiting: gets the reason whenever it changes, and None when the wait is over.
    """

    def __init__(self, name: str, on_waiting: Callable[[str | None], None]) -> None:
        self._name = name
        self._on_waiting = on_waiting
        self._noted: str | None = None
        self._not_before = 0.0

    def note(self, reason: str | None) -> None:
        """Record a reason if it is new or could not be recorded before."""
        if reason == self._noted or time.monotonic() < self._not_before:
            return
        try:
            self._on_waiting(reason)
        except Exception as error:  # noqa: BLE001
            # Whatever a database raises is only logged, because the reason is only for people to read.
            _log.warning("could not record that %s waits (%s): %s", self._name, reason, error)
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            self._noted = _UNKNOWN
            return
        self._noted = reason
