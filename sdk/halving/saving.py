"""The checkpoints of a run: written at once, or inside an epoch when one is due; counted when the epoch is complete."""

from collections.abc import Callable
from typing import Any

from halving import checkpoint
from halving.pace import Pace
from halving.records import RunRecords, SavedCheckpoint
from halving.store import Store


class Saver:
    """Writes checkpoints and publishes their records.

    Args:
        flush: brings every point that was logged to the store, before a checkpoint counts.

    Attributes:
        newest: the newest checkpoint that counts.
        pace: how often they are written.
    """

    def __init__(self, store: Store, records: RunRecords, flush: Callable[[], Any]) -> None:
        self._store, self._records, self._flush = store, records, flush
        self.newest: SavedCheckpoint | None = None
        self.pace = Pace()
        self._digest: str | None = None  # written, and not counted yet
        self._skipped: dict[str, Any] | None = None  # what was given to a save that was skipped, until its epoch ends

    @property
    def asked(self) -> bool:
        """Whether the epoch has called for a checkpoint."""
        return self._digest is not None or self._skipped is not None

    def forget(self) -> None:
        """Drop what the epoch called for: another begins, or this one is not to count."""
        self._digest = self._skipped = None

    def write(self, state: dict[str, Any]) -> str:
        """Write a checkpoint, durably, and return its digest."""
        with self.pace.writing():
            self._digest = self._store.put_blob(checkpoint.pack(state))
        self._skipped = None
        return self._digest

    def write_if_due(self, state: dict[str, Any]) -> str | None:
        """Write it if a checkpoint is due; otherwise only remember what was given."""
        if self.pace.due:
            return self.write(state)
        # What an earlier save of this epoch has written is older than this one, so it is not the epoch's checkpoint any more.
        self._digest, self._skipped = None, state
        self.pace.skipped += 1
        return None

    def settle(self, *, needed: bool) -> str | None:
        """The digest of the epoch's checkpoint at the epoch's end; one that was skipped is made up for if it is needed, or due by now."""
        if self._skipped is not None and (needed or self.pace.overdue):
            self.pace.skipped -= 1
            self.write(self._skipped)
        return self._digest

    def count(self, epoch: int, attempt: int, reported: dict[str, float], tallies: dict[str, Any] | None) -> None:
        """Let what was written be the checkpoint of an epoch, together with what was reported up to it."""
        if self._digest is not None:
            with self.pace.counting():
                self._flush()  # points first: a resume behind this checkpoint then finds every point up to it
                self.newest = SavedCheckpoint(epoch, attempt, self._digest, dict(reported), tallies)
                self._records.add_checkpoint(self.newest)
