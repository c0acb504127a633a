"""The savers of checkpoints that are written beside training: for many processes, or one large model.

Rank 0 has the saver, which decides; the others have a :class:`Part`, which it orders to do the same. Where a
checkpoint is needed (at a rung, at the end, under SIGTERM) it is waited for. Any other is copied, and written
while training goes on, one at a time. It counts when it is written, its epoch is complete, and the points up
to it are in the store: a thread sees to that.

Other checkpoints of one process are :class:`halving.checkpoints.saver.Saver`'s: one file each, written before
``run.save`` returns.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from halving.checkpoints.interval import CheckpointInterval
from halving.checkpoints.misses import Miss, Misses, as_record
from halving.checkpoints.saver import POINTS_SECONDS
from halving.checkpoints.sharded.save import Save, Staging, start_thread
from halving.distributed.ranks import Ranks
from halving.errors import HalvingError, StoreError, StoreUnavailable
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.deadline import Deadline
from halving.store.retry import RETRY_SECONDS, Reach, retry_while_unavailable, warn
from halving.store.store import Store

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_BEGIN = "write a checkpoint"
_AGAIN = "write the same copy once more"
_KEEP = "wait for the store with the checkpoint"
_RECALL = "give up the checkpoint"
_ASK = "say whether the checkpoint in flight is to be waited for"
_CALL = "run.save()"
_LONG_FLUSH = 600  # seconds, that a message proposes
_LOOK_SECONDS = 0.2  # between two looks at a save that is waited for


class Part:
    """The part of a rank other than rank 0 in each checkpoint, which it writes when rank 0 orders it.

    Attributes:
        state: what was given to the newest save.
        is_stopping: whether a SIGTERM has come to this rank.
        orders: by name, what rank 0 may order.
    """

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self._staging = Staging(store, ranks)
        self._flight: Save | None = None
        self.state: dict[str, Any] = {}
        self.is_stopping = False
        self._ranks = ranks
        self.orders: Mapping[str, Callable[[Any], None]] = {
            _BEGIN: self._begin,
            _AGAIN: self._begin_again,
            _KEEP: self._keep,
            _RECALL: self._recall,
            _ASK: self._say_whether_it_holds_up,
        }

    def expect(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """Prepare for saves of these: see :meth:`halving.checkpoints.sharded.save.Staging.expect`."""
        self._staging.expect(model, optimizer)

    def drain(self, seconds: float) -> None:
        """Wait until this rank's part is written; give it up after ``seconds``."""
        if self._flight is not None and not self._flight.join(seconds):
            self._flight.recall()

    def _begin(self, patience: float) -> None:
        """Write this rank's part.

        Args:
            patience: seconds for which an unavailable store is waited for.
        """
        if self._flight is not None:
            self._flight.join()
        with contextlib.suppress(Exception):  # rank 0 raises it, and this rank with it
            self._flight = self._staging.begin(self.state, Deadline.after(patience))

    def _begin_again(self, patience: float) -> None:
        assert self._flight is not None
        self._flight.join()
        self._flight.begin(Deadline.after(patience))

    def _keep(self, _: Any) -> None:
        assert self._flight is not None
        self._ranks.gather(_CALL, self._flight.keep())

    def _recall(self, _: Any) -> None:
        assert self._flight is not None
        self._flight.recall()

    def _say_whether_it_holds_up(self, _: Any) -> None:
        self._ranks.gather(_CALL, self.is_stopping or (self._flight is not None and self._flight.waits))


class AsyncSaver:
    """Rank 0's saver, which writes checkpoints beside training and publishes their records.

    Its methods are those of :class:`halving.checkpoints.saver.Saver`. In a run of many processes the other
    ranks must be in a collective of :meth:`halving.distributed.ranks.Ranks.together`, with the orders of
    their :class:`Part`, whenever it begins to write.
    """

    def __init__(
        self,
        store: Store,
        records: RunRecords,
        flush: Callable[[], bool],
        deadline: Deadline,
        ranks: Ranks,
    ) -> None:
        self._store = store
        self._records = records
        self._flush = flush
        self._deadline = deadline
        self._ranks = ranks
        self.newest: SavedCheckpoint | None = None
        self.interval = CheckpointInterval(beside=True)
        self.missed: StoreError | None = None
        self.misses = Misses()
        self._reach = Reach(store)
        self._staging = Staging(store, ranks)
        self._flight: Save | None = None  # the newest save, as long as it may not have ended
        self._publishing: Thread | None = None  # waits for it, and makes it count
        self._changing = Lock()  # newest, which that thread changes, too
        self._newest_save = 0  # the number of the save that newest is of
        self._open = Deadline()  # over once the saver is closed
        self._uncounted: Save | None = None  # this epoch's, or in a loop of one's own the last
        self._counted: Save | None = None  # the newest that counts, or will when it is written
        self._best: Save | None = None  # the newest of a best epoch
        # The state of a save that was skipped, until its epoch ends.
        self._skipped: dict[str, Any] | None = None
        self._miss_of: tuple[Save, Miss] | None = None  # the newest that failed beside training
        self._digests: dict[str, str] = {}  # The digests of what counts, by the names of saves.

    def expect(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """Prepare for saves of these, as :meth:`Part.expect`."""
        self._staging.expect(model, optimizer)

    @property
    def prepared_bytes(self) -> int:
        """Bytes of memory that are allocated for copies already."""
        return self._staging.prepared_bytes

    @property
    def was_requested(self) -> bool:
        """Whether the trainable has asked for a checkpoint in this epoch."""
        return self._uncounted is not None or self._skipped is not None

    @property
    def has_uncounted(self) -> bool:
        """Whether the newest state, or its record, is not written yet."""
        if self._skipped is not None or self._uncounted is None:
            return self._skipped is not None
        return self._newest_save < self._uncounted.number

    def resolve_digest(self, digest: str | None) -> str | None:
        """The digest of a checkpoint that :meth:`settle` named; None where it was not written."""
        if digest is None or digest.startswith("sha256:"):
            return digest
        return self._digests.get(digest)

    def drain(self, seconds: float) -> bool:
        """Wait some seconds for the checkpoint that is written beside training; return whether it counts."""
        end = Deadline.after(seconds)
        for thread in (self._flight, self._publishing):
            if thread is not None:
                thread.join(max(0.0, end.remaining()))
        return self._counted is None or self._counted.number <= self._newest_save

    def loss(self) -> str | None:
        """Why the last checkpoint that was to count does not, once the run is over; else None."""
        save = self._counted
        if save is None or save.number <= self._newest_save:
            return None
        if not save.ended:
            return (
                "it was still being written, beside training, and is given up; call "
                f"run.flush({_LONG_FLUSH}) to wait for it longer"
            )
        if save.error is None:
            return f"it is written, and its record is not: {self.missed or 'the store has not answered'}"
        if save is self._flight:
            self.misses.add_begun(str(save.error))
        return str(save.error)

    def close(self) -> None:
        """Release the memory and the threads of the saver: the run is over."""
        self._open.move_to(-math.inf)
        self._reach.close()
        self._staging.close()
        if self._flight is not None and not self._flight.ended:
            self._flight.recall()

    def forget(self) -> None:
        """Drop the epoch's checkpoint: the next epoch begins, or this one does not count."""
        self._uncounted = self._skipped = None
        self.misses.begin()

    def write(self, state: dict[str, Any]) -> str:
        """Write a checkpoint, durably, and return its digest.

        Raises:
            InvalidInput: a value can't be saved.
            StoreError: the store refuses, or remains unavailable.
        """
        deadline = Deadline.after(RETRY_SECONDS, self._deadline)
        self._drop_uncounted()
        self._clear_the_way(deadline)
        self._begin(state, max(0.0, deadline.remaining()))
        self._skipped = None
        return self._await_digest(deadline)

    def write_if_available(self, state: dict[str, Any], *, due: bool = True, best: bool = False) -> None:
        """Begin to write a checkpoint if it is due and nothing is in the way, or the epoch is the best.

        Otherwise its state is kept. The best epoch's checkpoint waits for the one that is being written, and
        for the store beside training.
        """
        self._drop_uncounted()  # what an earlier save of this epoch wrote is outdated
        if self._may_begin(due=due, best=best):
            self._begin_beside(state, best=best)
            return
        self._skipped = state
        self.interval.skipped += 1

    def settle(self, *, needed: bool, best: bool) -> str | None:
        """Name the epoch's checkpoint at its end: by its digest or, until that is known, by its save.

        :meth:`resolve_digest` takes either. A checkpoint that was skipped is written if it is needed, or
        begun if it is due by now.
        """
        if self._skipped is not None and needed:
            self.write(self._skipped)
            self.interval.skipped -= 1
        elif self._skipped is not None and self._may_begin(due=self.interval.overdue, best=best):
            self._begin_beside(self._skipped, best=best)
            self.interval.skipped -= 1
        elif self._uncounted is not None and needed:
            self._await_digest(Deadline.after(RETRY_SECONDS, self._deadline))
        elif self._uncounted is not None and best and self._uncounted is not self._best:
            self._keep(self._uncounted)
        if self._uncounted is None:
            return None
        return self._uncounted.digest or self._uncounted.name

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

        That happens now if the checkpoint is needed, else once it is written.

        Raises:
            StoreError: it is needed, and the store refuses or remains unavailable.
        """
        self.misses.begin()
        save = self._uncounted
        if save is None:
            return
        self._counted = save
        saved = SavedCheckpoint(epoch, attempt, save.name, dict(reported), tallies, sharded=save.sharded)
        if not needed:
            count = partial(self._count_later, save, saved, self._publishing)
            self._publishing = start_thread("halving-checkpoint-record", count)
            return
        deadline = Deadline.after(RETRY_SECONDS, self._deadline)
        points_by = Deadline.after(min(POINTS_SECONDS, self._deadline.remaining() / 2))
        with self.interval.counting():
            # Earlier ones come before it, if that is possible.
            self._await_records(Deadline(points_by.time, self._deadline))
            self._publish_or_wait(save, saved, points_by, deadline)

    def land(self, seconds: float) -> None:
        """Wait until the save in flight counts, for some seconds at most, and for fewer after a SIGTERM.

        If it is not written by then, it is given up. The thread that publishes its record goes on.
        """
        deadline = Deadline.after(seconds, self._deadline)
        if self._flight is not None:
            self._await(self._flight, deadline)
        self._land_flight()
        self._await_records(deadline)

    def _begin_beside(self, state: dict[str, Any], *, best: bool) -> None:
        self._begin(state, math.inf if best else 0.0)
        self._skipped = None
        if best:
            self._best = self._uncounted

    def _begin(self, state: dict[str, Any], patience: float) -> None:
        """Copy the state on all ranks and begin to write it; no other save may be in flight."""
        self._uncounted = None
        with self.interval.writing():
            self._ranks.order(_BEGIN, patience)
            deadline = Deadline.after(patience, self._deadline)
            self._uncounted = self._flight = self._staging.begin(state, deadline)
        self.misses.note_made_up()

    def _may_begin(self, *, due: bool, best: bool) -> bool:
        if not (due or best):
            return False
        if best:
            self._make_way_for_the_best()
            return True
        if self._flight is not None and self._flight.is_recalled:
            self._flight.join()  # It only finishes the upload of one blob.
        is_flying = self._flight is not None and not self._flight.ended
        if is_flying or (self._publishing is not None and self._publishing.is_alive()):
            return False
        self._land_flight()
        if self._reach.is_there():
            return True
        error = StoreUnavailable(f"the store {self._store.root} does not answer")
        self.misses.add(str(error))
        self._skip(error)
        return False

    def _make_way_for_the_best(self) -> None:
        """Wait for the save in flight, or give it up where it waits for the store.

        Training does not wait for the store, and the save in flight is no longer that of the best epoch. It
        is also given up if a SIGTERM comes to any rank.
        """
        while self._flight is not None and not self._flight.ended:
            self._ranks.order(_ASK)
            is_held_up = any(
                self._ranks.gather(_CALL, self._flight.waits or math.isfinite(self._deadline.time))
            )
            if is_held_up or not self._counts(self._flight):
                self._recall()
                break
            self._flight.join(_LOOK_SECONDS)
        self._land_flight()

    def _clear_the_way(self, deadline: Deadline) -> None:
        """End the save in flight, because another checkpoint is needed by a deadline.

        The older one has half of that time. Under SIGTERM, which makes the time shorter, it is given up at
        once, unless it is the best epoch's. One that does not count is given up at once, too.
        """
        halfway = Deadline.after(deadline.remaining() / 2, deadline)
        save = self._flight
        while save is not None and not save.ended:
            is_pressed = self._deadline.time <= deadline.time and save is not self._best
            if is_pressed or not self._counts(save) or halfway.is_over():
                self._give_up(save)
                break
            save.join(_LOOK_SECONDS)
        self._land_flight()

    def _counts(self, save: Save) -> bool:
        """Whether an earlier save counts, or will when it is written, so that its epoch has not diverged."""
        return save is self._counted

    def _drop_uncounted(self) -> None:
        """Drop the earlier save of this epoch, because the epoch saves again."""
        if (
            self._flight is not None
            and self._flight is self._uncounted
            and not self._counts(self._flight)
            and not self._flight.ended
        ):
            self._recall()
        self._uncounted = None

    def _keep(self, save: Save) -> None:
        """Let the save of an epoch that turned out to be the best wait for the store, on all ranks."""
        self._best = save
        self._ranks.order(_KEEP)
        if all(self._ranks.gather(_CALL, save.keep())):
            return
        if not save.ended:  # a rank has given up; the others need not come to their ends
            self._give_up(save)
        self._begin_again(save, math.inf)

    def _begin_again(self, save: Save, patience: float) -> None:
        """Write a save's copy once more on all ranks, where that failed."""
        if self._flight is save:
            self.interval.note_lost()
        with self.interval.writing():
            self._ranks.order(_AGAIN, patience)
            self._flight = save
            save.begin(Deadline.after(patience, self._deadline))

    def _recall(self) -> None:
        """Give up the save in flight, on all ranks."""
        assert self._flight is not None
        self._ranks.order(_RECALL)
        self._flight.recall()

    def _land_flight(self) -> None:
        """Wait for the save in flight, and note how it ended."""
        save = self._flight
        if save is None:
            return
        save.join()
        self._flight = None
        if save.error is None:
            assert save.digest is not None
            self._digests[save.name] = save.digest
            self.interval.note_time_beside(save.seconds)
            return
        self.interval.note_lost()
        if not save.is_recalled:
            self._miss_of = save, self.misses.add_begun(str(save.error))
            self._skip(save.error)

    def _await_digest(self, deadline: Deadline) -> str:
        """Wait for the epoch's checkpoint and return its digest.

        Its copy is written once more where that failed beside training.

        Args:
            deadline: until when an unavailable store is waited for.
        """
        save = self._uncounted
        assert save is not None
        self._await(save, deadline)
        if isinstance(save.error, StoreUnavailable) and not save.is_recalled and not deadline.is_over():
            self._begin_again(save, max(0.0, deadline.remaining()))
            self._await(save, deadline)
        if save.error is not None:
            self._uncounted = None
            raise save.error
        assert save.digest is not None
        return save.digest

    def _await(self, save: Save, deadline: Deadline) -> None:
        """Wait for a save until a deadline, and give it up if it has not ended then.

        A SIGTERM may make the time shorter, and the other ranks learn from here that it is over.
        """
        while not save.ended:
            if deadline.is_over():
                self._give_up(save)
                return
            save.join(_LOOK_SECONDS)

    def _give_up(self, save: Save) -> None:
        """Give up the save in flight, and wait until its thread has ended."""
        self._recall()
        save.join()

    def _await_records(self, deadline: Deadline) -> None:
        """Wait until the records of what was written are there, until a deadline at most."""
        publishing = self._publishing
        while publishing is not None and publishing.is_alive() and not deadline.is_over():
            publishing.join(_LOOK_SECONDS)

    def _count_later(self, save: Save, saved: SavedCheckpoint, before: Thread | None) -> None:
        if before is not None:
            before.join()  # records are published in the order of their epochs
        save.join()
        if save.error is not None:
            return  # The user is warned when the next save begins.
        try:
            deadline = Deadline(math.inf, self._open, save.deadline)
            self._publish_or_wait(save, saved, Deadline(), deadline)
            self.interval.note_counted()
        except HalvingError as error:
            self.misses.add_begun(str(error))
            self._skip(error)

    def _with_digests(self, save: Save, saved: SavedCheckpoint) -> SavedCheckpoint:
        """The record of a complete save, with digests in place of the names of saves."""
        assert save.digest is not None
        self._digests[save.name] = save.digest
        tallies = saved.tallies
        if tallies is not None:
            tallies = {**tallies, "best_checkpoint": self.resolve_digest(tallies["best_checkpoint"])}
        return saved._replace(digest=save.digest, tallies=tallies, weights=save.weights)

    def _publish_or_wait(
        self, save: Save, saved: SavedCheckpoint, points_by: Deadline, deadline: Deadline
    ) -> None:
        """Publish the record of a complete save; wait for an unavailable store until a deadline.

        Args:
            points_by: as for :meth:`_publish`.
        """
        complete = self._with_digests(save, saved)
        what = f"a checkpoint's record of {self._records.run}"
        if self._miss_of is not None and self._miss_of[0] is save:
            self.misses.forget([self._miss_of[1]])  # its copy was written once more
        retry_while_unavailable(
            self._store, what, partial(self._publish, save, complete, points_by), deadline, longest=math.inf
        )

    def _publish(self, save: Save, saved: SavedCheckpoint, points_by: Deadline) -> None:
        """Write the points, then the record: a resume from this checkpoint finds every point up to it.

        Args:
            points_by: from when on the checkpoint counts without its points. The journal still has them.

        Raises:
            StoreUnavailable: not all points are in the store yet.
        """
        if not self._flush() and not points_by.is_over():
            raise StoreUnavailable("the points up to the checkpoint are not all in the store yet")
        missed = self.misses.all()
        saved = saved._replace(missed=as_record(missed))
        self._records.add_checkpoint(saved)
        self.misses.forget(missed)
        with self._changing:
            if save.number < self._newest_save:
                return  # A later checkpoint was needed, and has not waited for this one.
            self._newest_save = save.number
            self.newest = saved
            self.missed = None

    def _skip(self, error: HalvingError) -> None:
        if self.missed is None:
            if not isinstance(error, StoreError):
                error = StoreError(str(error))
            self.missed = error
            where = " on all ranks" if self._ranks.world_size > 1 else ""
            warn(
                f"a checkpoint of {self._records.run} could not be stored; training continues{where}, and "
                "the next checkpoint is stored "
                f"as soon as that is possible: {self.missed}"
            )
