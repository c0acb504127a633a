"""Epochs whose checkpoint was due and skipped because the store did not take it, counted until a record can
say so.
"""

from dataclasses import dataclass
from threading import RLock
from typing import Any

from halving.store.json_files import now


@dataclass(frozen=True, eq=False)
class Miss:
    """A checkpoint that was skipped: since when, ISO 8601 in UTC, and why."""

    since: str
    why: str


class Misses:
    """What was skipped since the last checkpoint that counts.

    Threads that write beside training count here, too.
    """

    def __init__(self) -> None:
        # a SIGTERM's handler, which finishes the run, interrupts the main thread here
        self._changing = RLock()
        self._missed: list[Miss] = []
        self._newest: Miss | None = None  # of the checkpoint that is asked for now

    def begin(self) -> None:
        """The next checkpoint that is asked for is another one."""
        self._newest = None

    def add(self, why: str) -> None:
        """The checkpoint was skipped. One that is tried again, and skipped again, counts once."""
        if self._newest is None:
            self._newest = self.add_begun(why)

    def add_begun(self, why: str) -> Miss:
        """One that was being written beside training could not be stored."""
        miss = Miss(now(), why)
        with self._changing:
            self._missed = [*self._missed, miss]
        return miss

    def made_up(self) -> None:
        """The checkpoint is written, or begun, after all."""
        if self._newest is not None:
            self.forget([self._newest])
            self._newest = None

    def all(self) -> list[Miss]:
        """What was skipped, the oldest first."""
        return self._missed

    def forget(self, missed: list[Miss]) -> None:
        """These are in a record, or were written after all."""
        with self._changing:
            self._missed = [miss for miss in self._missed if miss not in missed]


def as_record(missed: list[Miss]) -> dict[str, Any] | None:
    """For a record: how many (``count``), ``since`` when, ISO 8601 in UTC, and ``why`` the newest; None where
    none was skipped.
    """
    return {"count": len(missed), "since": missed[0].since, "why": missed[-1].why} if missed else None
