"""Epochs whose checkpoint was due and skipped because the store did not take it, counted until a record can say so."""

from threading import Lock
from typing import Any

from halving.store.json_files import now


class Misses:
    """What was skipped since the last checkpoint that counts. Threads that write beside training count here, too."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._since: str | None = None
        self._why = ""
        self._is_missed = False  # the checkpoint that is asked for now

    def begin(self) -> None:
        """The next checkpoint that is asked for is another one."""
        self._is_missed = False

    def add(self, why: str) -> None:
        """The checkpoint was skipped. One that is tried again, and skipped again, counts once."""
        if not self._is_missed:
            self._is_missed = True
            self.add_begun(why)

    def add_begun(self, why: str) -> None:
        """One that was being written beside training could not be stored."""
        with self._lock:
            self._since = self._since or now()
            self._count += 1
            self._why = why

    def made_up(self) -> None:
        """The checkpoint is written, or begun, after all."""
        if self._is_missed:
            self._is_missed = False
            self._subtract(1)

    def as_dict(self) -> dict[str, Any] | None:
        """For a record: how many (``count``), ``since`` when, ISO 8601 in UTC, and ``why`` the newest; None where none was skipped."""
        with self._lock:
            return {"count": self._count, "since": self._since, "why": self._why} if self._count else None

    def forget(self, recorded: dict[str, Any] | None) -> None:
        """These are in a record."""
        self._subtract(recorded["count"] if recorded else 0)

    def _subtract(self, count: int) -> None:
        with self._lock:
            self._count = max(0, self._count - count)
            self._since = self._since if self._count else None
