"""The progress of a run: its epochs, their results, which checkpoints count, and where the run may stop."""

import math
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NoReturn

from halving.checkpoints.saver import Saver
from halving.checkpoints.sharded.saver import AsyncSaver
from halving.errors import CheckpointMissing, Diverged, InvalidInput, StoreError
from halving.records.run_record import SavedCheckpoint
from halving.run.grace_period import GracePeriod
from halving.store.retry import RETRY_SECONDS, warn
from halving.trial.bounds import Range, accepted_ranges, describe_violation
from halving.trial.context import Controller, TrialContext
from halving.trial.objectives import Tallies


class Progress:
    """The loop over epochs, and what happens between two of them.

    Args:
        trial, controller: those of a trial; None in a script.
        grace: when the run gives up to wait for an unavailable store, which depends on the progress.
        stop: finishes the run and ends the process.

    Attributes:
        epoch: epochs completed, counting those before a resume.
        reported: the results reported in the current epoch; between epochs, those of the last complete one.
        closed: whether the run is finished.
        unsaved: the store's error, if the loop was left and its checkpoint could not be stored; else None.
    """

    def __init__(
        self,
        saver: Saver | AsyncSaver,
        attempt: int,
        trial: TrialContext | None,
        controller: Controller | None,
        grace: GracePeriod,
        *,
        stop: Callable[[], NoReturn],
    ) -> None:
        self._saver = saver
        self._attempt = attempt
        self._trial = trial
        self._controller = controller
        self._grace = grace
        self._stop = stop
        self._ranges: dict[str, Range] = {}
        self._until = self._total = 0
        if trial is not None:
            objectives = [rule.metric for rule in trial.objectives]
            self._ranges = accepted_ranges([*objectives, *trial.bounded], trial.divergence)
            self._until = self._total = trial.max_epochs
        self._tallies = self._make_tallies(None)
        self.epoch = 0
        self.reported: dict[str, float] = {}
        self.closed = False
        self.unsaved: StoreError | None = None
        self._reported_before: dict[str, float] = {}  # by the last complete epoch
        self._started: int | None = None  # the epoch that is being trained
        self._stopping = self._looked = self._warned = False
        self._asked_back = False  # whether the platform wants the trial's place
        self._knows_asked_back = False  # whether the trainable knows it, by run.stopping
        self._reported_before_save = True  # whether all objectives were reported at this epoch's last save
        self._reports_last = False  # whether this trainable's epochs end with a report, after their last save
        self._diverged: str | None = None
        self._began = 0.0

    @property
    def current(self) -> int:
        """The epoch that is being trained; between epochs, the last complete one."""
        if self._started is None:
            return self.epoch
        return self._started

    @property
    def is_stopping(self) -> bool:
        """Whether the trainable must end: after a SIGTERM, or when it knows that its place is wanted."""
        return self._stopping or (self._knows_asked_back and self.epoch < self._until)

    def end(self) -> None:
        """End the training: the saved checkpoint counts, or is given up if the store remains unavailable."""
        self._saver.land(RETRY_SECONDS)
        if self._saver.newest is None and self.unsaved is None:
            self.unsaved = self._saver.missed

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        """The newest checkpoint that counts."""
        return self._saver.newest

    @property
    def max_epochs(self) -> int:
        """Epochs of the whole training.

        Raises:
            InvalidInput: in a script, before :meth:`epochs`.
        """
        return require_epochs(self._total)

    def save_by(self, saver: Saver | AsyncSaver) -> None:
        """Use another saver; call it before the first save."""
        saver.newest = self._saver.newest
        self._saver.close()
        self._saver = saver

    def resume(self, saved: SavedCheckpoint) -> None:
        """Continue from a checkpoint."""
        self._saver.newest = saved
        self.epoch = saved.epoch
        self.reported = dict(saved.reported)
        self._reported_before = self.reported
        self._tallies = self._make_tallies(saved.tallies)

    def report(self, numbers: dict[str, float]) -> None:
        """Take results of the current epoch; an epoch may report in several calls.

        Raises:
            Diverged: a metric is outside the range that it must stay in.
        """
        self.reported = self.reported | numbers
        for metric in self._ranges.keys() & numbers.keys():
            kind = "metric"
            if self._tallies.is_objective(metric):
                kind = "objective"
            violation = describe_violation(
                f"{kind} {metric!r}", numbers[metric], self._ranges[metric], f"epoch {self.current}"
            )
            if violation is not None:
                self._saver.forget()
                self._diverged = violation
                raise Diverged(violation)

    def epochs(self, total: int | None) -> Iterator[int]:
        """The loop of :meth:`halving.Run.epochs`; ``total`` takes effect before its first epoch."""
        if self._controller is None:
            self._total = check_epochs(total)
        return self._loop()

    def save(self, state: dict[str, Any]) -> str | None:
        """Save a checkpoint, as :meth:`halving.Run.save` describes."""
        if self._started is None:
            needed = self._trial is not None  # The trainable may return after it.
            if needed:
                digest: str | None = self._saver.write(state)
            else:
                # Every save counts here, so that none may be skipped because of the one before.
                self._saver.land(math.inf)
                digest = self._saver.write_if_available(state)
            self._count(self.epoch, self.reported, needed=needed)
            return digest
        self._reported_before_save = self._tallies.all_in(self.reported)
        self._grace.begin_to_save()
        ends_here = self._stopping or self._knows_asked_back
        if ends_here or self._started == self._until:
            written: str | None = self._saver.write(state)
        else:
            written = self._saver.write_if_available(
                state, due=self._saver.interval.due, best=self._tallies.improved_by(self.reported)
            )
        if ends_here or self._stopping:
            self._stop_in_epoch()
        self._grace.end_saving()
        return written

    def make_up(self, seconds: float) -> None:
        """Store the last checkpoint of a user's own loop, if the store was unavailable when it was saved.

        Raises:
            StoreError: the store refuses, or is unavailable for ``seconds`` seconds.
        """
        if self._started is not None:
            return
        self._grace.move_to(monotonic() + seconds)
        self._saver.land(seconds)
        if self._saver.has_uncounted:
            self._saver.settle(needed=True, best=False)
            self._count(self.epoch, self.reported, needed=True)

    def ask_to_stop(self) -> bool:
        """Handle a SIGTERM; return True if the trial will end where it can be resumed.

        It is False if there is nothing to wait for, because no epoch of a trial is being trained, or the
        grace period is over.

        Further SIGTERMs within the grace period change nothing: a batch system sends one to the whole process
        group, and the worker, which receives it too, sends another.
        """
        if self._trial is None or (not self._stopping and (self._started is None or self.closed)):
            return False
        if not self._stopping:
            self._stopping = True
            self._grace.begin()
        return self._grace.lasts()

    def ask_back(self) -> None:
        """End the trial when its epoch is complete and saved, because the platform wants its place.

        At a rung it reports the results first, and the answer is that it ends. A SIGTERM that comes after
        this begins a grace period, as always. Other threads may call it, several times.
        """
        self._asked_back = True

    def look_at_stopping(self) -> bool:
        """Whether to stop; a trainable that checks this is not warned that its epochs are long."""
        self._looked = True
        self._knows_asked_back = self._knows_asked_back or self._asked_back
        return self._stopping or self._knows_asked_back

    def _loop(self) -> Iterator[int]:
        if self._controller and self.epoch and self.epoch == self._controller.granted:
            # An earlier attempt was killed between the rung's checkpoint and its decision. The checkpoint
            # holds what was reported.
            self._ask(self._controller)
        while self.epoch < self._read_granted():
            if self._asked_back and self._is_saved:
                self._stop()
            self._begin()
            try:
                yield self.current
            except GeneratorExit:
                self._leave()
                raise
            self._complete()
            if self._stopping:
                self._stop()
            if self._controller and self.epoch == self._controller.granted:
                self._ask(self._controller)

    @property
    def _is_saved(self) -> bool:
        """Whether a resume would go on after the last complete epoch."""
        if self._saver.newest is None:
            return self.epoch == 0
        return self.epoch == self._saver.newest.epoch

    def _read_granted(self) -> int:
        granted = self._total
        if self._controller is not None:
            granted = self._controller.granted
        self._until = granted
        return granted

    def _begin(self) -> None:
        self._started = self.epoch + 1  # This comes first: a SIGTERM from here on lets the epoch be saved.
        self._saver.forget()
        self._grace.end_saving()
        self.reported = {}
        self._diverged = None
        self._reported_before_save = True
        self._began = monotonic()

    def _complete(self, *, needed: bool = False) -> None:
        """Complete the epoch; its checkpoint, if it has one, counts from now on."""
        if self._diverged is not None:  # The trainable has caught the error.
            raise Diverged(self._diverged)
        epoch = self.current
        self._grace.begin_to_save()
        if self._saver.was_requested:
            self._reports_last = not self._reported_before_save
        needed = needed or self._stopping or self._asked_back or epoch == self._until
        digest = self._saver.settle(needed=needed, best=self._tallies.improved_by(self.reported))
        self._tallies.add(epoch, self.reported, digest)
        self.epoch = epoch
        self._reported_before = self.reported
        if digest is not None:
            self._count(epoch, self.reported, needed=needed)
        self._warn_of_long_epochs(monotonic() - self._began)
        self._started = None

    def _leave(self) -> None:
        """Take that the loop was left early: an epoch that has reported and saved is complete, no other."""
        if self.closed:
            return
        if self.reported and self._saver.was_requested and self._diverged is None:
            try:
                self._complete(needed=True)
            except StoreError as error:
                # The interpreter would swallow it, because a generator is being closed.
                self.unsaved = error
                warn(
                    f"the loop was left in epoch {self.current}, whose checkpoint could not be stored: "
                    f"{error}"
                )
        else:
            self.reported = self._reported_before
            if self._saver.newest is None:
                self.unsaved = self._saver.missed
        self._started = None
        self._saver.forget()

    def _stop_in_epoch(self) -> None:
        """Stop after a save in the epoch, which is complete if its results were reported before.

        Otherwise the checkpoint has a state half-way, and counts for the last complete epoch.
        """
        if self._reported_before_save:
            self._complete()
        else:
            self._count(self.epoch, self._reported_before, needed=True)
            if self._reports_last:  # This may be the epoch's end, and its report may still come.
                return
        self._stop()

    def _count(self, epoch: int, reported: dict[str, float], *, needed: bool = False) -> None:
        tallies = self._tallies.as_record() if self._trial else None
        self._saver.count(epoch, self._attempt, reported, tallies, needed=needed)

    def _ask(self, controller: Controller) -> None:
        values = self._tallies.values(self.epoch, self.reported)
        saved = self._saver.newest
        if saved is None or saved.epoch != self.epoch:
            raise CheckpointMissing(
                f"epoch {self.epoch} ends a rung and has no checkpoint; call run.save(model=…, "
                "optimizer=…) in every epoch"
            )
        controller.granted = controller.report_rung(
            self.epoch, values, saved.digest, self._saver.resolve_digest(self._tallies.best_checkpoint)
        )

    def _make_tallies(self, record: dict[str, Any] | None) -> Tallies:
        if self._trial is None:
            return Tallies((), ())
        return Tallies(self._trial.objectives, self._trial.bounded, record)

    def _warn_of_long_epochs(self, seconds: float) -> None:
        if self._trial is None or self._looked or self._warned or seconds <= self._trial.grace_seconds:
            return
        self._warned = True
        warn(
            f"an epoch takes {seconds:.0f} s, and a trial that is stopped has "
            f"{self._trial.grace_seconds:.0f} s to save. One that is stopped in mid-epoch loses that epoch, "
            "unless it calls run.save(…) in mid-epoch when run.stopping is True",
            stacklevel=5,  # the line of the loop over epochs
        )


def check_epochs(total: int | None) -> int:
    """Check the argument of :meth:`Progress.epochs` in a script.

    Raises:
        InvalidInput: it is None.
    """
    if total is None:
        raise InvalidInput("epochs(total=None) is not accepted outside of a trial: give the number of epochs")
    return int(total)


def require_epochs(total: int | None) -> int:
    """Check that the epochs of the whole training are known.

    Raises:
        InvalidInput: a script has not set them yet.
    """
    if not total:
        raise InvalidInput(
            "run.max_epochs is not known before run.epochs(n), outside of a trial: call that first, or use "
            "your own n"
        )
    return total
