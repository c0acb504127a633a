"""How far a run has trained: its epochs, what they reported, which checkpoints count, and where it may stop."""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NoReturn

from halving.checkpoints.saver import Saver
from halving.errors import CheckpointMissing, Diverged, InvalidInput, StoreError
from halving.records.run_record import SavedCheckpoint
from halving.store.retry import tell
from halving.trial.bounds import accepted_ranges, problem
from halving.trial.context import Controller, TrialContext
from halving.trial.objectives import Tallies

_GRACE_SHARE = 0.8  # of a grace period may be waited for the store; the rest is for the end


class Progress:
    """The loop over epochs, and what happens between two of them.

    Args:
        trial, controller: of a trial; None in a script.
        stop: finishes the run and ends the process.

    Attributes:
        epoch: epochs completed, counting those before a resume.
        reported: what the epoch has reported so far; between epochs, what the last complete one has.
        closed: the run is finished.
        unsaved: why the loop was left without the checkpoint that it should have, if the store was away.
    """

    def __init__(
        self, saver: Saver, attempt: int, trial: TrialContext | None, controller: Controller | None, *, stop: Callable[[], NoReturn]
    ) -> None:
        self._saver, self._attempt, self._trial, self._controller, self._stop = saver, attempt, trial, controller, stop
        objectives = [rule.metric for rule in trial.objectives] if trial else []
        self._ranges = accepted_ranges([*objectives, *trial.bounded], trial.divergence) if trial else {}
        self._tallies = self._tallied(None)
        self.epoch = 0
        self.reported: dict[str, float] = {}
        self.closed = False
        self.unsaved: StoreError | None = None
        self._reported_before: dict[str, float] = {}  # by the last complete epoch
        self._started: int | None = None  # the epoch that is being trained
        self._until = self._total = trial.max_epochs if trial else 0
        self._stopping = self._looked = self._told = False
        self._asked = 0.0  # when it was first asked to stop
        self._ends_by = math.inf
        self._report_is_there = True  # whether every objective had been reported when this epoch was last saved
        self._report_follows = False  # whether this trainable's epochs end with a report, behind their last save
        self._diverged: str | None = None
        self._began = 0.0

    @property
    def current(self) -> int:
        """The epoch that is being trained, or the last one."""
        return self._started if self._started is not None else self.epoch

    @property
    def max_epochs(self) -> int:
        """Epochs of the whole training.

        Raises:
            InvalidInput: in a script it is not known yet.
        """
        if not self._total:
            raise InvalidInput("run.max_epochs is not known before run.epochs(n), outside of a trial: call that first, or use your own n")
        return self._total

    def resume(self, saved: SavedCheckpoint) -> None:
        """Go on behind a checkpoint."""
        self._saver.newest, self.epoch, self.reported = saved, saved.epoch, dict(saved.reported)
        self._reported_before, self._tallies = self.reported, self._tallied(saved.tallies)

    def report(self, numbers: dict[str, float]) -> None:
        """Take an epoch's results; an epoch may report in several calls.

        Raises:
            Diverged: one of them is not within its limits.
        """
        self.reported = self.reported | numbers
        for metric in self._ranges.keys() & numbers.keys():
            name = f"{'objective' if self._tallies.is_objective(metric) else 'metric'} {metric!r}"
            found = problem(name, numbers[metric], self._ranges[metric], f"epoch {self.current}")
            if found is not None:
                self._saver.forget()
                self._diverged = found
                raise Diverged(found)

    def epochs(self, total: int | None) -> Iterator[int]:
        """As :meth:`halving.Run.epochs`: what it is given is known at once, and the loop begins with its first epoch."""
        if self._controller is None and total is None:
            raise InvalidInput("epochs(total=None) is not accepted outside of a trial: give the number of epochs")
        if self._controller is None:
            self._total = int(total or 0)
        return self._loop()

    def save(self, state: dict[str, Any]) -> str | None:
        """As :meth:`halving.Run.save`."""
        if self._started is None:
            needed = self._trial is not None  # which may return with it
            digest = self._saver.write(state) if needed else self._saver.write_now(state)
            self._count(self.epoch, self.reported, needed=needed)
            return digest
        self._report_is_there = self._tallies.all_in(self.reported)
        if self._stopping or self._started == self._until:
            written: str | None = self._saver.write(state)
        else:
            written = self._saver.write_if_due(state, best=self._tallies.improved_by(self.reported))
        if self._stopping:
            self._stop_in_epoch()
        return written

    @property
    def is_trial(self) -> bool:
        return self._trial is not None

    def make_up(self, seconds: float) -> None:
        """At the end: let the last checkpoint of a loop of the user's own count, if the store was away then.

        Raises:
            StoreError: the store refuses, or stays away for ``seconds`` seconds.
        """
        if self._started is None and self._saver.has_uncounted:
            self._ends_by = monotonic() + seconds
            self._saver.settle(needed=True, best=False)
            self._count(self.epoch, self.reported, needed=True)

    def give_up_at(self) -> float:
        """Until when a store that is away may be waited for, by ``time.monotonic``: after a SIGTERM, most of the grace period."""
        if not self._stopping or self._trial is None:
            return self._ends_by
        return min(self._ends_by, self._asked + _GRACE_SHARE * self._trial.grace_seconds)

    def ask_to_stop(self) -> bool:
        """A SIGTERM has come. False when there is nothing to wait for: no epoch of a trial is trained, or the grace period is over.

        More of them within the grace period change nothing: a batch system sends one to the whole process group, and the worker,
        which got it as well, sends another.
        """
        if self._trial is None or (not self._stopping and (self._started is None or self.closed)):
            return False
        if not self._stopping:
            self._stopping, self._asked = True, monotonic()
        return monotonic() - self._asked <= self._trial.grace_seconds

    def look_at_stopping(self) -> bool:
        """Whether to stop; and this trainable knows to ask."""
        self._looked = True
        return self._stopping

    def _loop(self) -> Iterator[int]:
        if self._controller and self.epoch and self.epoch == self._controller.granted:
            # Killed between the rung's checkpoint and its decision: the checkpoint knows what was reported.
            self._ask(self._controller)
        while self.epoch < self._granted():
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

    def _granted(self) -> int:
        self._until = self._controller.granted if self._controller else self._total
        return self._until

    def _begin(self) -> None:
        self._started = self.epoch + 1  # first: a SIGTERM from here on lets the epoch come to its end, and be saved
        self._saver.forget()
        self.reported, self._diverged, self._report_is_there = {}, None, True
        self._began = monotonic()

    def _complete(self, *, needed: bool = False) -> None:
        """The epoch is trained. Its checkpoint, if it has one, counts from here on."""
        if self._diverged is not None:  # and the trainable has caught it
            raise Diverged(self._diverged)
        epoch = self.current
        if self._saver.asked:
            self._report_follows = not self._report_is_there
        needed = needed or self._stopping or epoch == self._until
        digest = self._saver.settle(needed=needed, best=self._tallies.improved_by(self.reported))
        self._tallies.add(epoch, self.reported, digest)
        self.epoch, self._reported_before = epoch, self.reported
        if digest is not None:
            self._count(epoch, self.reported, needed=needed)
        self._warn_of_long_epochs(monotonic() - self._began)
        self._started = None

    def _leave(self) -> None:
        """The loop was left early. An epoch that had reported and saved is complete, any other does not count."""
        if self.closed:
            return
        if self.reported and self._saver.asked and self._diverged is None:
            try:
                self._complete(needed=True)
            except StoreError as error:  # a loop is left by closing its generator, out of which the interpreter lets no error
                self.unsaved = error
                tell(f"the checkpoint of epoch {self.current}, in which the loop was left, is not in the store: {error}")
        else:
            self.reported = self._reported_before
            if self._saver.newest is None:
                self.unsaved = self._saver.missed
        self._started = None
        self._saver.forget()

    def _stop_in_epoch(self) -> None:
        """What was just saved is either all of the epoch, or its state half-way: that counts for the last complete epoch."""
        if self._report_is_there:
            self._complete()
        else:
            self._count(self.epoch, self._reported_before, needed=True)
            if self._report_follows:  # then this may be the end of the epoch, which is complete in a moment
                return
        self._stop()

    def _count(self, epoch: int, reported: dict[str, float], *, needed: bool = False) -> None:
        self._saver.count(epoch, self._attempt, reported, self._tallies.as_record() if self._trial else None, needed=needed)

    def _ask(self, controller: Controller) -> None:
        values, saved = self._tallies.values(self.epoch, self.reported), self._saver.newest
        if saved is None or saved.epoch != self.epoch:
            raise CheckpointMissing(
                f"epoch {self.epoch} ends a rung and has no checkpoint; call run.save(model=…, optimizer=…) in every epoch"
            )
        controller.granted = controller.reached(self.epoch, values, saved.digest, self._tallies.best_checkpoint)

    def _tallied(self, record: dict[str, Any] | None) -> Tallies:
        return Tallies(self._trial.objectives, self._trial.bounded, record) if self._trial else Tallies((), ())

    def _warn_of_long_epochs(self, seconds: float) -> None:
        if self._trial is None or self._looked or self._told or seconds <= self._trial.grace_seconds:
            return
        self._told = True
        with contextlib.suppress(Warning):  # `python -W error` raises it, and training must not end by it
            warnings.warn(
                f"halving: an epoch takes {seconds:.0f} s and a trial that is stopped gets {self._trial.grace_seconds:.0f} s: one that is "
                "stopped in mid-epoch goes back to its last checkpoint, unless it calls run.save(…) in mid-epoch when run.stopping is True",
                stacklevel=4,
            )
