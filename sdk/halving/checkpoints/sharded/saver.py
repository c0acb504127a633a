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

_ORDER = "write a checkpoint"


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
        self.orders: Mapping[str, Callable[[Any], None]] = {_ORDER: self._begin}

    def expect(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """These will be saved: see :meth:`halving.checkpoints.sharded.save.Staging.expect`."""
        self._staging.expect(model, optimizer)

    def drain(self, seconds: float) -> None:
        """Wait until this rank's part is written, for so long at most."""
        if self._flight is not None:
            self._flight.join(seconds)

    def _begin(self, patience: float) -> None:
        """Write this rank's part.

        Args:
            patience: seconds for which an unavailable store is waited for.
        """
        until = monotonic() + patience if patience else 0.0
        if self._flight is not None:
            self._flight.join()
        with contextlib.suppress(Exception):  # rank 0 raises it, and this rank with it
            self._flight = self._staging.begin(self.given, lambda: until)


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
        self._skipped: dict[str, Any] | None = None  # the state given to a save that was skipped, until its epoch ends
        self._digests: dict[str, str] = {}  # of what counts, by the names of saves

    def expect(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """As :meth:`Part.expect`."""
        self._staging.expect(model, optimizer)

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
        self._begin(state, patient=True)
        self._skipped = None
        return self._landed()

    def write_if_available(self, state: dict[str, Any], *, due: bool = True, best: bool = False) -> None:
        """Begin to write a checkpoint, if it is due, the store is available, and none is being written, or if this epoch is the best;
        otherwise keep what was given. The best epoch's waits for the one that is being written, and for the store beside training.
        """
        if self._may_begin(due=due, best=best):
            self._begin(state, patient=best)
            self._skipped = None
            return
        self._uncounted, self._skipped = None, state  # what an earlier save of this epoch wrote is outdated
        self.interval.skipped += 1

    def settle(self, *, needed: bool, best: bool) -> str | None:
        """Names the epoch's checkpoint, at the end of the epoch: by its digest, or for :meth:`known`. One that was skipped is written if it
        is needed, or begun if it is due by now."""
        if self._skipped is not None and needed:
            self.write(self._skipped)
            self.interval.skipped -= 1
        elif self._skipped is not None and self._may_begin(due=self.interval.overdue, best=best):
            self._begin(self._skipped, patient=best)
            self._skipped = None
            self.interval.skipped -= 1
        elif self._uncounted is not None and needed:
            self._landed()
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
        saved = SavedCheckpoint(epoch, attempt, save.name, dict(reported), tallies, sharded=True)
        if not needed:
            self._publishing = start_thread("halving-checkpoint-record", partial(self._count_later, save, saved))
            return
        complete, now = self._completed(save, saved), monotonic()
        points_by = min(now + POINTS_SECONDS, (now + self._give_up_at()) / 2)
        with self.interval.counting():
            what = f"a checkpoint's record of {self._records.run}"
            retry_while_unavailable(self._store, what, partial(self._publish, complete, points_by), self._give_up_at)

    def _begin(self, state: dict[str, Any], *, patient: bool) -> None:
        self.land()
        with self.interval.writing():
            patience = max(0.0, min(RETRY_SECONDS, self._give_up_at() - monotonic())) if patient else 0.0
            self._ranks.order(_ORDER, patience)
            self._uncounted = self._flight = self._staging.begin(state, self._give_up_at if patient else _at_once)
        self.misses.made_up()

    def _may_begin(self, *, due: bool, best: bool) -> bool:
        flying = (self._flight is not None and not self._flight.ended) or (self._publishing is not None and self._publishing.is_alive())
        # The best epoch's waits for one that is being written, but not for a store that is away.
        if not (due or best) or (flying and not (best and self._reach.is_there())):
            return False
        self.land()
        if best or self._reach.is_there():
            return True
        error = StoreUnavailable(f"the store {self._store.root} does not answer")
        self.misses.add(str(error))
        self._skip(error)
        return False

    def land(self) -> None:
        """Wait for what is being written, and for its record; take account of it."""
        if self._publishing is not None:
            self._publishing.join()
            self._publishing = None
        if self._flight is not None:
            self._flight.join()
            self.interval.written_beside(self._flight.seconds)
            if self._flight.error is not None:
                self.interval.lost()
                self.misses.add_begun(str(self._flight.error))
                self._skip(self._flight.error)
            self._flight = None

    def _landed(self) -> str:
        """The digest of the epoch's checkpoint, which is waited for."""
        save = self._uncounted
        assert save is not None
        save.join()
        if save.error is not None:
            self._uncounted = None
            raise save.error
        assert save.digest is not None
        return save.digest

    def _count_later(self, save: Save, saved: SavedCheckpoint) -> None:
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
        return saved._replace(digest=save.digest, tallies=tallies)

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


def _at_once() -> float:
    """When to give up where nothing is to be waited for."""
    return 0.0
