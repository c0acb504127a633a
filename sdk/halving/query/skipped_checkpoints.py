"""The checkpoints of a run that the store did not take.

The records of later checkpoints and of the attempts' ends have them. :mod:`halving.checkpoints.misses` counts
them while a run trains.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from halving.query.runs import RunAttempt
from halving.records.run_record import SavedCheckpoint
from halving.text import count_of


@dataclass(frozen=True)
class SkippedCheckpoints:
    """Checkpoints in a row that were due and that the store did not take.

    Attributes:
        since: when the first was skipped, ISO 8601 in UTC.
        why: the reason for the last one.
        epoch: that of the next checkpoint that the store took; None where the attempt ended before.
    """

    attempt: int
    count: int
    since: str
    why: str
    epoch: int | None

    @property
    def text(self) -> str:
        """A sentence for people: the attempt, how many, from when to when, and why."""
        since = datetime.fromisoformat(self.since).strftime("%Y-%m-%d %H:%M:%S UTC")
        until = "and none was stored before it ended"
        if self.epoch is not None:
            until = f"until that of epoch {self.epoch} was stored"
        return (
            f"attempt {self.attempt} skipped {count_of(self.count, 'checkpoint')}, from {since} on, "
            f"{until}: {self.why}"
        )


def skipped_checkpoints(
    saved: Iterable[SavedCheckpoint], attempts: Iterable[RunAttempt]
) -> list[SkippedCheckpoints]:
    """The checkpoints that the store did not take, in order of time."""
    parsed = [
        _parse_skipped(attempt.number, attempt.checkpoints.get("missed"), None)
        for attempt in attempts
        if attempt.checkpoints
    ]
    parsed += [
        _parse_skipped(checkpoint.attempt, checkpoint.missed, checkpoint.epoch) for checkpoint in saved
    ]
    # A record may have been written twice, if the store's answer to the first write was lost.
    rows = {(skipped.attempt, skipped.since): skipped for skipped in parsed if skipped is not None}
    return sorted(rows.values(), key=lambda skipped: (skipped.attempt, skipped.since))


def _parse_skipped(attempt: int, missed: Any, epoch: int | None) -> SkippedCheckpoints | None:
    """Parse a record of skipped checkpoints; None without one, or where another SDK's form differs."""
    try:
        datetime.fromisoformat(missed["since"])
        return SkippedCheckpoints(attempt, int(missed["count"]), missed["since"], str(missed["why"]), epoch)
    except (TypeError, KeyError, ValueError):
        return None
