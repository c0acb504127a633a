"""How often a checkpoint is worth its cost.

A checkpoint costs time, and so does training that is lost without one. The interval follows from the measured
cost: checkpoints take at most :data:`SHARE` of the time, and are at most :data:`MAX_SECONDS` seconds apart.
Those that are written beside training take at most :data:`STALL_SHARE` of its time, and are being written for
:data:`BESIDE_SHARE` of it. (With one failure every M seconds the optimal interval is sqrt(2 * cost * M):
Young, CACM 1974. M is unknown here, so the cost is bounded instead.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

SHARE = 0.05
STALL_SHARE = 0.01
BESIDE_SHARE = 0.25
MAX_SECONDS = 600.0


class CheckpointInterval:
    """Decides when the next checkpoint is due, and counts them.

    Args:
        beside: they are written beside training.

    Attributes:
        saves: checkpoints written.
        skipped: checkpoints that the trainable asked for and that were not written.
        seconds: time that training spent on it, in all.
    """

    def __init__(self, *, beside: bool = False) -> None:
        # How many seconds should pass after the newest checkpoint, for its writing beside training.
        self._beside = beside
        self._worth = 0.0
        self.saves = self.skipped = 0
        self.seconds = 0.0
        self._cost = 0.0  # seconds, of the newest checkpoint
        self._written: float | None = None  # when the newest checkpoint was written
        self._counted: float | None = None  # when the newest checkpoint that counts was written

    @property
    def due(self) -> bool:
        """Whether a checkpoint should be written. The first always should, because it shows the cost."""
        return self._has_passed(self._written)

    @property
    def overdue(self) -> bool:
        """Whether the newest checkpoint that counts is older than the interval.

        A checkpoint that a later save of its epoch replaced does not count.
        """
        return self._has_passed(self._counted)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Measure the writing of a checkpoint; one that fails remains due."""
        before = self._cost, self._written
        self._cost = 0.0
        try:
            with self._measure():
                yield
        except BaseException:
            self._cost, self._written = before
            raise
        self.saves += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Measure the work that makes the newest checkpoint count, such as writing its record."""
        with self._measure():
            yield
        self.note_counted()

    def note_time_beside(self, seconds: float) -> None:
        """Note how long the newest checkpoint took to be written beside training."""
        self._worth = seconds / BESIDE_SHARE

    def note_counted(self) -> None:
        """Note that the newest checkpoint counts now."""
        self._counted = self._written

    def note_lost(self) -> None:
        """Note that the newest checkpoint failed while it was written beside training; it remains due."""
        self.saves -= 1
        self._written = None
        self._cost = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The counts for the record of how the attempt ended."""
        return {"saves": self.saves, "skipped": self.skipped, "seconds": round(self.seconds, 3)}

    @contextmanager
    def _measure(self) -> Iterator[None]:
        began = monotonic()
        try:
            yield
        finally:
            self._written = monotonic()
            self._cost += self._written - began
            self.seconds += self._written - began

    def _has_passed(self, since: float | None) -> bool:
        share = STALL_SHARE if self._beside else SHARE
        return since is None or monotonic() - since >= min(max(self._cost / share, self._worth), MAX_SECONDS)
