"""The checkpoints of a run in one process, written before ``run.save`` returns.

A checkpoint is written at once, or inside an epoch when one is due, and counts when the epoch is complete.
Where the run may stop after it, an unavailable store is waited for; elsewhere the checkpoint is skipped.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import IO, Any, cast

from halving.checkpoints import serialization
from halving.checkpoints.interval import CheckpointInterval
from halving.checkpoints.misses import Misses, as_record
from halving.checkpoints.weights_digest import DigestInBackground
from halving.errors import StoreError, StoreUnavailable
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.deadline import Deadline
from halving.store.local_files import path_of, temporary_file
from halving.store.retry import Reach, retry_while_unavailable, warn
from halving.store.store import Store, digest_of

# A checkpoint that is needed waits so long for its points. A full journal (1 GiB) is written in that time.
POINTS_SECONDS = 120.0


class Saver:
    """Writes checkpoints and publishes their records.

    Args:
        flush: brings every point that was logged to the store, before a checkpoint counts; returns whether
            all are there, or as safe.
        deadline: until when a checkpoint that is needed may wait for an unavailable store.

    Attributes:
        newest: the newest checkpoint that counts.
        interval: decides how often they are written.
        missed: why a checkpoint was skipped since the newest one, if the store was the reason.
        misses: the checkpoints that were skipped, for the next record.
    """

    prepared_bytes = 0
    """Bytes of memory that are allocated for copies already; this saver makes no copies."""

    def __init__(
        self, store: Store, records: RunRecords, flush: Callable[[], bool], deadline: Deadline
    ) -> None:
        self._store = store
        self._records = records
        self._flush = flush
        self._deadline = deadline
        self.newest: SavedCheckpoint | None = None
        self.interval = CheckpointInterval()
        self._reach = Reach(store)
        self.missed: StoreError | None = None
        self.misses = Misses()
        self._digest: str | None = None  # The checkpoint that is written and does not count yet.
        self._weights: str | None = None  # the digest of the state in it
        self._has_warned = False  # The warning is that the state has no digest.
        # The state of a save that was skipped, until its epoch ends.
        self._skipped: dict[str, Any] | None = None
        self._owed: IO[bytes] | None = None  # the best epoch's checkpoint, while the store is unavailable

    @property
    def was_requested(self) -> bool:
        """Whether the trainable has asked for a checkpoint in this epoch."""
        return self._digest is not None or self._skipped is not None

    @property
    def has_uncounted(self) -> bool:
        """Whether the newest state, or its record, is not written yet."""
        return self._skipped is not None or (
            self._digest is not None and (self.newest is None or self.newest.digest != self._digest)
        )

    def resolve_digest(self, digest: str | None) -> str | None:
        """The digest of a checkpoint that :meth:`settle` named."""
        return digest

    def land(self, seconds: float) -> None:
        """Wait until everything that is being written counts; here nothing is."""

    def drain(self, seconds: float) -> bool:
        """Wait until what is written beside training counts; here nothing is."""
        return True

    def loss(self) -> None:
        """Why the last checkpoint that was written beside training is missing; here there is none."""

    def close(self) -> None:
        """Release the files and the thread of the saver: the run is over."""
        self._reach.close()
        self._drop_owed()

    def forget(self) -> None:
        """Drop the epoch's checkpoint: the next epoch begins, or this one does not count."""
        self._digest = self._skipped = None
        self.misses.begin()

    def write(self, state: dict[str, Any]) -> str:
        """Write a checkpoint, durably, and return its digest.

        Raises:
            StoreError: the store refuses, or remains unavailable.
        """
        self._digest = self._retry("a checkpoint", partial(self._put, state))
        self._skipped = None
        return self._digest

    def write_if_available(
        self, state: dict[str, Any], *, due: bool = True, best: bool = False
    ) -> str | None:
        """Write a checkpoint if the store is available and it is due or the best; else keep its state.

        The best epoch's checkpoint gets its digest in any case: it is kept on this machine until the store is
        back.
        """
        if (best or due) and (written := self._try_to_write(state, best=best)) is not None:
            return written
        # What an earlier save of this epoch wrote is outdated, so it is not the epoch's checkpoint any more.
        self._digest = None
        self._skipped = state
        self.interval.skipped += 1
        return None

    def settle(self, *, needed: bool, best: bool) -> str | None:
        """Return the digest of the epoch's checkpoint at the end of the epoch.

        A checkpoint that was skipped is written if it is needed, or due by now.
        """
        if self._skipped is not None and needed:
            self.write(self._skipped)
            self.interval.skipped -= 1
        elif self._skipped is not None and (best or self.interval.overdue):
            self.interval.skipped -= self._try_to_write(self._skipped, best=best) is not None
        return self._digest

    def count(
        self,
        epoch: int,
        attempt: int,
        reported: dict[str, float],
        tallies: dict[str, Any] | None,
        *,
        needed: bool,
    ) -> None:
        """Make the written checkpoint that of an epoch, together with the results reported up to it.

        Raises:
            StoreError: it is needed, and the store refuses or remains unavailable.
        """
        self.misses.begin()
        if self._digest is None:
            return
        saved = SavedCheckpoint(epoch, attempt, self._digest, dict(reported), tallies, self._weights)
        try:
            if needed:
                points_by = Deadline.after(min(POINTS_SECONDS, self._deadline.remaining() / 2))
                self._retry("a checkpoint's record", partial(self._publish, saved, points_by))
            elif self._reach.is_there():
                self._publish(saved, Deadline())
            else:
                self._skip(None)
        except StoreError as error:
            if needed:
                raise
            self._skip(error)

    def _publish(self, saved: SavedCheckpoint, points_by: Deadline) -> None:
        """Write the points, then the record: a resume from this checkpoint finds all points up to it.

        Args:
            points_by: from when on the checkpoint counts without its points. The journal still has them.

        Raises:
            StoreUnavailable: not all points are in the store yet. The time spent counts towards the
                checkpoint interval all the same.
        """
        self._store_owed()
        with self.interval.counting():
            complete = self._flush() or points_by.is_over()
            if complete:
                missed = self.misses.all()
                saved = saved._replace(missed=as_record(missed))
                self._records.add_checkpoint(saved)
                self.misses.forget(missed)
        if not complete:
            raise StoreUnavailable("the points up to the checkpoint are not all in the store yet")
        self.newest = saved
        self.missed = None

    def _try_to_write(self, state: dict[str, Any], *, best: bool) -> str | None:
        """Write a checkpoint, unless the store is unavailable or refuses: training goes on without it."""
        there = self._reach.is_there()
        if not there and not best:
            self._skip(None)
            return None
        digest = None
        try:
            if there:
                digest = self._put(state)
        except StoreError as error:
            self._skip(error)
        if best:  # The checkpoint of the former best epoch is no longer needed.
            self._drop_owed()
        if best and digest is None:
            try:
                self._owed, values = pack_to_file(state)
                weights = DigestInBackground(state, values)
                digest = digest_of(path_of(self._owed))
                self._weights = self._digest_of(weights)
            except StoreError as error:  # this machine's disk refuses it, too
                self._skip(error)
        if digest is not None:
            self._digest = digest
            self._skipped = None
        return digest

    def _put(self, state: dict[str, Any]) -> str:
        with self.interval.writing():
            file, values = pack_to_file(state)
            with file:
                weights = DigestInBackground(state, values)
                try:
                    digest = self._store.put_blob(path_of(file))
                finally:
                    self._weights = self._digest_of(weights)
        self.misses.note_made_up()
        return digest

    def _digest_of(self, digest: DigestInBackground) -> str | None:
        weights = digest.result()
        if digest.error is not None and not self._has_warned:
            self._has_warned = True
            warn(
                f"the weights of {self._records.run} have no digest, so that a rerun can compare their "
                "metrics alone; they are saved: "
                f"{digest.error}"
            )
        return weights

    def _store_owed(self) -> None:
        """Store the best epoch's checkpoint, if only this machine has it."""
        if self._owed is not None:
            self._store.put_blob(path_of(self._owed))
            self._drop_owed()

    def _drop_owed(self) -> None:
        if self._owed is not None:
            self._owed.close()
            self._owed = None

    def _retry(self, what: str, action: Callable[[], Any]) -> Any:
        return retry_while_unavailable(self._store, f"{what} of {self._records.run}", action, self._deadline)

    def _skip(self, error: StoreError | None) -> None:
        error = error or StoreUnavailable(f"the store {self._store.root} does not answer")
        self.misses.add(str(error))
        if self.missed is None:
            self.missed = error
            warn(
                f"a checkpoint of {self._records.run} could not be stored; training continues, and the "
                "next checkpoint is stored "
                f"as soon as that is possible: {self.missed}"
            )


class _Sink:
    """A file that remembers an error, because ``torch.save`` would hide it in one of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> None:
        self._attempt(self._file.write, data)

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def _attempt(self, action: Callable[..., Any], *arguments: Any) -> None:
        try:
            if self.error is None:
                action(*arguments)
        except OSError as error:
            self.error = error


def pack_to_file(state: dict[str, Any]) -> tuple[IO[bytes], dict[str, Any]]:
    """Write state into a temporary file, and return it with the values by name.

    The file is deleted when it is closed. In memory the state would be there twice.

    Raises:
        InvalidInput: a value can't be saved.
        StoreError: the disk refuses the file.
    """
    try:
        file = temporary_file()
    except OSError as error:
        raise _disk_error(error) from error
    sink = _Sink(file)
    try:
        values = serialization.pack(state, cast("IO[bytes]", sink))
        sink.flush()
        if sink.error is not None:
            raise _disk_error(sink.error) from sink.error
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise
    return file, values


def _disk_error(error: OSError) -> StoreError:
    return StoreError(
        f"cannot write a checkpoint to the folder for temporary files: {error}; name another by TMPDIR"
    )
