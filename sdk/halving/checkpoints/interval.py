"""How often a checkpoint is worth what it takes.

A checkpoint costs time, and so does the training that is lost without one. The interval follows from the measured cost: checkpoints
take at most :data:`SHARE` of the time, and are at most :data:`LONGEST` seconds apart. (Where failures are known to come every M
seconds, the optimum is sqrt(2 * cost * M): Young, CACM 1974. Here nobody knows M, so the cost is bounded instead.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

SHARE = 0.05
LONGEST = 600.0


class CheckpointInterval:
    """Decides when the next checkpoint is due, and counts.

    Attributes:
        saves: checkpoints written.
        skipped: those that were asked for and not written, because none was due.
        seconds: what writing took in all.
    """

    def __init__(self) -> None:
        self.saves = self.skipped = 0
        self.seconds = 0.0
        self._cost = 0.0  # of the newest
        self._written: float | None = None
        self._counted: float | None = None

    @property
    def due(self) -> bool:
        """Whether a checkpoint should be written. The first always is: it tells the cost."""
        return self._has_passed(self._written)

    @property
    def overdue(self) -> bool:
        """Whether it is as long ago that one was written which counts; those that a later save of their epoch replaced do not."""
        return self._has_passed(self._counted)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around the writing of a checkpoint. One that fails is as due as it was."""
        before = self._cost, self._written
        self._cost = 0.0
        try:
            with self._timed():
                yield
        except BaseException:
            self._cost, self._written = before
            raise
        self.saves += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Around what makes the newest checkpoint count."""
        with self._timed():
            yield
        self._counted = self._written

    def as_dict(self) -> dict[str, Any]:
        """For the attempt's record."""
        return {"saves": self.saves, "skipped": self.skipped, "seconds": round(self.seconds, 3)}

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = monotonic()
        try:
            yield
        finally:
            self._written = monotonic()
            self._cost += self._written - began
            self.seconds += self._written - began

    def _has_passed(self, since: float | None) -> bool:
        return since is None or monotonic() - since >= min(self._cost / SHARE, LONGEST)
