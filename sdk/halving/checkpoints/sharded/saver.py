"""Checkpoints that are written beside training: those of a run of many processes, and of one whose model is large.

Rank 0 has the saver, which decides; the others have a :class:`Part`, which it orders to do the same. Where a checkpoint is needed (at a
rung, at the end, under SIGTERM) it is waited for; any other is copied, and written while training goes on, one at a time. It counts when it
is written, its epoch is complete, and the points up to it are in the store: a thread sees to that.

Other checkpoints of one process are :class:`halving.checkpoints.saver.Saver`'s: one file each, written before ``run.save`` returns.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from halving.checkpoints.interval import CheckpointInterval
from halving.checkpoints.misses import Misses
from halving.checkpoints.saver import POINTS_SECONDS
from halving.checkpoints.sharded.save import Save, Staging, start_thread
from halving.distributed.ranks import Ranks
from halving.errors import HalvingError, StoreError, StoreUnavailable
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.retry import RETRY_SECONDS, Reach, retry_while_unavailable, warn
from halving.store.store import Store

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

_BEGIN, _AGAIN = "write a checkpoint", "write the same copy once more"
_RECALL, _ASK = "give up the checkpoint", "say whether the store is waited for"
_CALL = "run.save()"
_LOOK_SECONDS = 0.2  # between two looks at a save that is waited for


class Part:
    """What a rank that is not the first does for a checkpoint.

    Attributes:
        given: what was given to the newest save.
        orders: by name, what rank 0 may order.
    """

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self._staging = Staging(store, ranks)
        self._flight: Save | None = None
        self.given: dict[str, Any] = {}
        self._ranks = ranks
        self.orders: Mapping[str, Callable[[Any], None]] = {
            _BEGIN: self._begin,
            _AGAIN: self._begin_again,
            _RECALL: self._recall,
            _ASK: self._say_whether_it_waits,
        }

    def expect(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """These will be saved: see :meth:`halving.checkpoints.sharded.save.Staging.expect`."""
        self._staging.expect(model, optimizer)

    def drain(self, seconds: float) -> None:
        """Wait until this rank's part is written, for so long at most; then it is given up."""
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
            self._flight = self._staging.begin(self.given, _until(patience))

    def _begin_again(self, patience: float) -> None:
        assert self._flight is not None
        self._flight.join()
        self._flight.begin_again(_until(patience))

    def _recall(self, _: Any) -> None:
        assert self._flight is not None
        self._flight.recall()

    def _say_whether_it_waits(self, _: Any) -> None:
        self._ranks.gather(_CALL, self._flight is not None and self._flight.waits)


class AsyncSaver:
    """Writes checkpoints and publishes their records; rank 0's. As :class:`halving.checkpoints.saver.Saver`, which says what is what.

    In a run of many processes, where it begins to write the other ranks must be in a collective of
    :meth:`halving.distributed.ranks.Ranks.together` with the orders of their :class:`Part`.
    """

    def __init__(self, store: Store, records: RunRecords, flush: Callable[[], bool], give_up_at: Callable[[], float], ranks: Ranks) -> None:
        self._store, self._records, self._flush, self._give_up_at, self._ranks = store, records, flush, give_up_at, ranks
        self.newest: SavedCheckpoint | None = None
        self.interval = CheckpointInterval(beside=True)
        self.missed: StoreError | None = None
        self.misses = Misses()
        self._reach = Reach(store)
        self._staging = Staging(store, ranks)
        self._flight: Save | None = None  # the newest save, as long as it may not have ended
        self._publishing: Thread | None = None  # waits for it, and makes it count
        self._uncounted: Save | None = None  # this epoch's, which does not count yet
        self._counted: Save | None = None  # the newest that counts, or will when it is written
        self._best: Save | None = None  # the newest of a best epoch
        self._skipped: dict[str, Any] | None = None  # the state given to a save that was skipped, until its epoch ends
        self._digests: dict[str, str] = {}  # of what counts, by the names of saves

    def expect(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """As :meth:`Part.expect`."""
        self._staging.expect(model, optimizer)

    @property
    def prepared_bytes(self) -> int:
        """Of the memory for copies that is there already."""
        return self._staging.prepared_bytes

    @property
    def asked(self) -> bool:
        """Whether the trainable has asked for a checkpoint in this epoch."""
        return self._uncounted is not None or self._skipped is not None

    @property
    def has_uncounted(self) -> bool:
        """Whether the state that was given last, or its record, is not written; what is being written is waited for."""
        if self._skipped is not None or self._uncounted is None:
            return self._skipped is not None
        self.land()
        return self.newest is None or self.newest.digest != self._uncounted.digest

    def known(self, digest: str | None) -> str | None:
        """The digest of a checkpoint that :meth:`settle` has named; None: it was not written."""
        return self._digests.get(digest, digest if digest.startswith("sha256:") else None) if digest is not None else None

    def drain(self, seconds: float) -> None:
        """Wait until what is written beside training counts, for so long at most."""
        ends = monotonic() + seconds
        for thread in (self._flight, self._publishing):
            if thread is not None:
                thread.join(max(0.0, ends - monotonic()))

    def close(self) -> None:
        """The run is over."""
        self._reach.close()
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
        ends = monotonic() + RETRY_SECONDS
        self._drop_uncounted()
        self._clear_the_way(ends)
        self._begin(state, self._patience(ends))
        self._skipped = None
        return self._landed(ends)

    def write_if_available(self, state: dict[str, Any], *, due: bool = True, best: bool = False) -> None:
        """Begin to write a checkpoint, if it is due, the store is available, and none is being written, or if this epoch is the best;
        otherwise keep what was given. The best epoch's waits for the one that is being written, and for the store beside training.
        """
        self._drop_uncounted()  # what an earlier save of this epoch wrote is outdated
        if self._may_begin(due=due, best=best):
            self._begin_beside(state, best=best)
            return
        self._skipped = state
        self.interval.skipped += 1

    def settle(self, *, needed: bool, best: bool) -> str | None:
        """Names the epoch's checkpoint, at the end of the epoch: by its digest, or for :meth:`known`. One that was skipped is written if it
        is needed, or begun if it is due by now."""
        if self._skipped is not None and needed:
            self.write(self._skipped)
            self.interval.skipped -= 1
        elif self._skipped is not None and self._may_begin(due=self.interval.overdue, best=best):
            self._begin_beside(self._skipped, best=best)
            self.interval.skipped -= 1
        elif self._uncounted is not None and needed:
            self._landed(monotonic() + RETRY_SECONDS)
        elif self._uncounted is not None and best:
            self._best = self._uncounted
        return (self._uncounted.digest or self._uncounted.name) if self._uncounted is not None else None

    def count(self, epoch: int, attempt: int, reported: dict[str, float], tallies: dict[str, Any] | None, *, needed: bool) -> None:
        """Make what was written the checkpoint of an epoch, together with what was reported up to it: now if it is needed, else once it is
        written.

        Raises:
            StoreError: it is needed, and the store refuses or remains unavailable.
        """
        self.misses.begin()
        save = self._uncounted
        if save is None:
            return
        self._counted = save
        saved = SavedCheckpoint(epoch, attempt, save.name, dict(reported), tallies, sharded=True)
        if not needed:
            count = partial(self._count_later, save, saved, self._publishing)
            self._publishing = start_thread("halving-checkpoint-record", count)
            return
        complete, now = self._completed(save, saved), monotonic()
        points_by = min(now + POINTS_SECONDS, (now + self._give_up_at()) / 2)
        with self.interval.counting():
            what = f"a checkpoint's record of {self._records.run}"
            retry_while_unavailable(self._store, what, partial(self._publish, complete, points_by), self._give_up_at)

    def land(self) -> None:
        """Wait for what is being written, and for its record; take account of it."""
        self._land_flight()
        if self._publishing is not None:
            self._publishing.join()
            self._publishing = None

    def _begin_beside(self, state: dict[str, Any], *, best: bool) -> None:
        self._begin(state, math.inf if best else 0.0)
        self._skipped = None
        if best:
            self._best = self._uncounted

    def _begin(self, state: dict[str, Any], patience: float) -> None:
        """Copy the state on all ranks, and begin to write it; none may be in flight."""
        self._uncounted = None
        with self.interval.writing():
            self._ranks.order(_BEGIN, patience)
            self._uncounted = self._flight = self._staging.begin(state, self._until(patience))
        self.misses.made_up()

    def _may_begin(self, *, due: bool, best: bool) -> bool:
        if not (due or best):
            return False
        if best:
            self._make_way_for_the_best()
            return True
        is_flying = self._flight is not None and not self._flight.ended
        if is_flying or (self._publishing is not None and self._publishing.is_alive()):
            return False
        self.land()
        if self._reach.is_there():
            return True
        error = StoreUnavailable(f"the store {self._store.root} does not answer")
        self.misses.add(str(error))
        self._skip(error)
        return False

    def _make_way_for_the_best(self) -> None:
        """Wait for the one that is being written. Where it waits for the store it is given up: training does not wait for that, and what it
        holds is the best epoch's no more. So it is where a SIGTERM comes.
        """
        while self._flight is not None and not self._flight.ended:
            self._ranks.order(_ASK)
            is_waiting = any(self._ranks.gather(_CALL, self._flight.waits))
            if is_waiting or not self._counts(self._flight) or math.isfinite(self._give_up_at()):
                self._recall()
                break
            self._flight.join(_LOOK_SECONDS)
        self._land_flight()

    def _clear_the_way(self, ends: float) -> None:
        """Have none in flight: a checkpoint is needed, by ``ends`` or what a SIGTERM leaves of it.

        Under SIGTERM the older one is given up, but for the best epoch's, which has half of the time.
        """
        halfway = (monotonic() + self._last_moment(ends)) / 2
        while self._flight is not None and not self._flight.ended:
            is_pressed = self._give_up_at() < ends and self._flight is not self._best
            if is_pressed or not self._counts(self._flight) or monotonic() > min(halfway, self._last_moment(ends)):
                self._recall()
                break
            self._flight.join(_LOOK_SECONDS)
        self.land()

    def _counts(self, save: Save) -> bool:
        """Whether an earlier save counts, or will when it is written: its epoch has not diverged."""
        return save is self._counted

    def _drop_uncounted(self) -> None:
        """What was saved in this epoch counts no more, for it saves again."""
        if self._flight is not None and self._flight is self._uncounted and not self._counts(self._flight) and not self._flight.ended:
            self._recall()
        self._uncounted = None

    def _recall(self) -> None:
        """Give up the one in flight, on all ranks."""
        assert self._flight is not None
        self._ranks.order(_RECALL)
        self._flight.recall()

    def _land_flight(self) -> None:
        """Wait for what is being written; take account of it."""
        if self._flight is None:
            return
        self._flight.join()
        if self._flight.error is None:
            self.interval.written_beside(self._flight.seconds)
        else:
            self.interval.lost()
        if self._flight.error is not None and not self._flight.is_recalled:
            self.misses.add_begun(str(self._flight.error))
            self._skip(self._flight.error)
        self._flight = None

    def _landed(self, ends: float) -> str:
        """The digest of the epoch's checkpoint, which is waited for. Its copy is written once more where that failed beside training.

        Args:
            ends: until when an unavailable store is waited for.
        """
        save = self._uncounted
        assert save is not None
        self._await(save, ends)
        if isinstance(save.error, StoreUnavailable) and not save.is_recalled and monotonic() < self._last_moment(ends):
            if self._flight is save:
                self.interval.lost()
            with self.interval.writing():
                patience = self._patience(ends)
                self._ranks.order(_AGAIN, patience)
                self._flight = save
                save.begin_again(self._until(patience))
                self._await(save, ends)
        if save.error is not None:
            self._uncounted = None
            raise save.error
        assert save.digest is not None
        return save.digest

    def _await(self, save: Save, ends: float) -> None:
        """Wait for a save. The other ranks hear from here that the time is over: a SIGTERM may have made it shorter."""
        while not save.join(_LOOK_SECONDS):
            if monotonic() > self._last_moment(ends):
                self._recall()
                save.join()

    def _last_moment(self, ends: float) -> float:
        return min(ends, self._give_up_at())

    def _patience(self, ends: float) -> float:
        """Seconds."""
        return max(0.0, self._last_moment(ends) - monotonic())

    def _until(self, patience: float) -> Callable[[], float]:
        """When to give up after so many seconds of waiting, which a SIGTERM makes fewer."""
        until = _until(patience)
        return lambda: min(until(), self._give_up_at())

    def _count_later(self, save: Save, saved: SavedCheckpoint, before: Thread | None) -> None:
        if before is not None:
            before.join()  # records are published in the order of their epochs
        save.join()
        if save.error is not None:
            return  # it is told of when the next one is to begin
        try:
            self._publish(self._completed(save, saved), math.inf)
            self.interval.counted()
        except HalvingError as error:
            self.misses.add_begun(str(error))
            self._skip(error)

    def _completed(self, save: Save, saved: SavedCheckpoint) -> SavedCheckpoint:
        """The record of a save that is there: in it digests stand for the names of saves."""
        assert save.digest is not None
        self._digests[save.name] = save.digest
        tallies = saved.tallies
        if tallies is not None:
            tallies = {**tallies, "best_checkpoint": self.known(tallies["best_checkpoint"])}
        return saved._replace(digest=save.digest, tallies=tallies, weights=save.weights)

    def _publish(self, saved: SavedCheckpoint, points_by: float) -> None:
        """The points, then the record: a resume from this checkpoint finds every point up to it.

        Args:
            points_by: the time, by ``monotonic``, from which the checkpoint counts without its points. The journal still has them.

        Raises:
            StoreUnavailable: not all points are in the store yet.
        """
        if not self._flush() and monotonic() < points_by:
            raise StoreUnavailable("the points up to the checkpoint are not all in the store yet")
        saved = saved._replace(missed=self.misses.as_dict())
        self._records.add_checkpoint(saved)
        self.misses.forget(saved.missed)
        self.newest, self.missed = saved, None

    def _skip(self, error: HalvingError) -> None:
        if self.missed is None:
            self.missed = error if isinstance(error, StoreError) else StoreError(str(error))
            where = " on all ranks" if self._ranks.world_size > 1 else ""
            warn(
                f"a checkpoint of {self._records.run} could not be stored; training continues{where}, and the next checkpoint is stored "
                f"as soon as that is possible: {self.missed}"
            )


def _until(patience: float) -> Callable[[], float]:
    """When to give up, by ``monotonic``, after so many seconds of waiting for the store; without any, at the first failure."""
    until = monotonic() + patience if patience else 0.0
    return lambda: until
