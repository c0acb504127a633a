"""Checkpoints that were due and skipped because the store did not take them.

They are counted until a record can tell of them.
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
    """Checkpoints that were skipped since the last one that counts.

    Threads that write beside training count here, too.
    """

    def __init__(self) -> None:
        # The handler of SIGTERM, which finishes the run, may interrupt the main thread here.
        self._changing = RLock()
        self._missed: list[Miss] = []
        self._newest: Miss | None = None  # The miss of the present checkpoint.

    def begin(self) -> None:
        """Begin a new checkpoint: the next skip is counted apart from the one before."""
        self._newest = None

    def add(self, why: str) -> None:
        """Count the checkpoint as skipped; one that is tried again and skipped again counts once."""
        if self._newest is None:
            self._newest = self.add_begun(why)

    def add_begun(self, why: str) -> Miss:
        """Count a checkpoint that was being written beside training and could not be stored."""
        miss = Miss(now(), why)
        with self._changing:
            self._missed = [*self._missed, miss]
        return miss

    def note_made_up(self) -> None:
        """Forget the newest skip: its checkpoint is written, or begun, after all."""
        if self._newest is not None:
            self.forget([self._newest])
            self._newest = None

    def all(self) -> list[Miss]:
        """The skipped checkpoints, the oldest first."""
        return self._missed

    def forget(self, missed: list[Miss]) -> None:
        """Forget skips that are in a record, or whose checkpoints were written after all."""
        with self._changing:
            self._missed = [miss for miss in self._missed if miss not in missed]


def as_record(missed: list[Miss]) -> dict[str, Any] | None:
    """The skips as a record's field, or None where there are none.

    ``count`` says how many there are, ``since`` when the first was (ISO 8601 in UTC), ``why`` the reason of
    the newest.
    """
    if not missed:
        return None
    return {"count": len(missed), "since": missed[0].since, "why": missed[-1].why}
