"""Which of a run's checkpoints the store did not take, by the records of those that it took and of the
attempts' ends.

:mod:`halving.checkpoints.misses` counts them while a run trains.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from halving.query.runs import RunAttempt
from halving.query.units import counted
from halving.records.run_record import SavedCheckpoint


@dataclass(frozen=True)
class SkippedCheckpoints:
    """Checkpoints in a row that were due and that the store did not take.

    Attributes:
        since: when the first was skipped, ISO 8601 in UTC.
        why: of the last.
        epoch: of the checkpoint that the store took again; None where the attempt ended before.
    """

    attempt: int
    count: int
    since: str
    why: str
    epoch: int | None

    @property
    def text(self) -> str:
        since = datetime.fromisoformat(self.since).strftime("%Y-%m-%d %H:%M:%S UTC")
        until = (
            "and none was stored before it ended"
            if self.epoch is None
            else f"until that of epoch {self.epoch} was stored"
        )
        return (
            f"attempt {self.attempt} skipped {counted(self.count, 'checkpoint')}, from {since} on, "
            f"{until}: {self.why}"
        )


def skipped_checkpoints(
    saved: Iterable[SavedCheckpoint], attempts: Iterable[RunAttempt]
) -> list[SkippedCheckpoints]:
    """The checkpoints that the store did not take, in order of time."""
    ended = [
        _skipped(each.number, each.checkpoints.get("missed"), None) for each in attempts if each.checkpoints
    ]
    until = [_skipped(each.attempt, each.missed, each.epoch) for each in saved]
    # A record that was written again after its answer was lost says the same as before.
    rows = {(each.attempt, each.since): each for each in [*ended, *until] if each is not None}
    return sorted(rows.values(), key=lambda each: (each.attempt, each.since))


def _skipped(attempt: int, missed: Any, epoch: int | None) -> SkippedCheckpoints | None:
    """What a record says of skipped checkpoints; None where it says nothing, or what an image with another
    SDK means by it.
    """
    try:
        datetime.fromisoformat(missed["since"])
        return SkippedCheckpoints(attempt, int(missed["count"]), missed["since"], str(missed["why"]), epoch)
    except (TypeError, KeyError, ValueError):
        return None
