"""The progress of a run that trains in several processes.

Rank 0 has the progress, and the other ranks get a copy at each collective.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from halving.checkpoints.sharded.saver import Part
from halving.distributed.ranks import Ranks
from halving.errors import StoreError
from halving.records.run_record import SavedCheckpoint
from halving.run.epoch_loop import Progress, check_epochs, require_epochs

_END_SECONDS = 20.0  # that the end of a script's run waits for an unavailable store


class GangProgress:
    """A :class:`halving.run.epoch_loop.Progress` on every rank of a gang: rank 0 decides, all get the result.

    A SIGTERM that comes to any rank, at any time, ends all of them at the same :meth:`save` or end of an
    epoch. So does the platform when it wants the trial's place, which it tells rank 0.

    Args:
        ranks: of the gang.
        leading: rank 0's progress; None on the other ranks.
        max_epochs: of the whole training, in a trial; None in a script, which sets it in :meth:`epochs`.
        part: the share of another rank in each checkpoint; None on rank 0.

    Attributes:
        closed: whether the run is finished.
    """

    def __init__(
        self, ranks: Ranks, leading: Progress | None, max_epochs: int | None, part: Part | None = None
    ) -> None:
        self._ranks = ranks
        self._leading = leading
        self._part = part
        self._has_sigterm = False  # whether a SIGTERM has come to any rank
        self._stops = False  # whether look_at_stopping() was true on all ranks
        self._in_trial = max_epochs is not None
        self._max_epochs = max_epochs
        self._shared: dict[str, Any] = {
            "epoch": 0,
            "current": 0,
            "reported": {},
            "checkpoint": None,
            "stopping": False,
        }
        # Closes rank 0's loop over epochs, after every rank has left it early.
        self._close_loop: Callable[[], object] | None = None
        self._closed = False
        self.unsaved: StoreError | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        self._closed = closed
        if self._leading is not None:
            self._leading.closed = closed

    @property
    def epoch(self) -> int:
        return int(self._read()["epoch"])

    @property
    def current(self) -> int:
        return int(self._read()["current"])

    @property
    def reported(self) -> Mapping[str, float]:
        reported: Mapping[str, float] = self._read()["reported"]
        return reported

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        saved = self._read()["checkpoint"]
        return SavedCheckpoint(**saved) if saved else None

    @property
    def is_stopping(self) -> bool:
        return bool(self._read()["stopping"])

    @property
    def max_epochs(self) -> int:
        return require_epochs(self._max_epochs)

    def resume(self, saved: SavedCheckpoint) -> None:
        self._together("run.restore()", lambda leading: leading.resume(saved))

    def report(self, numbers: dict[str, float]) -> None:
        self._together("run.report()", lambda leading: leading.report(numbers))

    def save(self, state: dict[str, Any]) -> str | None:
        if self._part is not None:
            self._part.state = state
        written: str | None = self._together("run.save()", lambda leading: leading.save(state))
        return written

    def epochs(self, total: int | None) -> Iterator[int]:
        if not self._in_trial:
            self._max_epochs = check_epochs(total)
        if self._leading is None:
            return self._loop(iter(()))
        return self._loop(self._leading.epochs(total))

    def end(self) -> None:
        """End the training on every rank."""
        if self._in_trial:
            self._together("the end of the training", lambda leading: leading.end())
            if self._leading is not None:
                self.unsaved = self._leading.unsaved
        else:
            self._together("the end of the training", lambda leading: leading.make_up(_END_SECONDS))

    def make_up(self, seconds: float) -> None:
        """Do nothing: it takes all ranks, so :meth:`end` has done it."""

    def ask_to_stop(self) -> bool:
        """Handle a SIGTERM of this rank; rank 0 hears of it at the next collective, and decides."""
        if self._leading is not None:
            return self._leading.ask_to_stop()
        if self._closed or not self._in_trial:
            return False
        self._has_sigterm = True
        if self._part is not None:
            self._part.is_stopping = True
        self._ranks.flag()
        return True

    def ask_back(self) -> None:
        """Call rank 0's :meth:`halving.run.epoch_loop.Progress.ask_back`."""
        if self._leading is not None:
            self._leading.ask_back()

    def look_at_stopping(self) -> bool:
        own = self._has_sigterm
        if self._leading is not None:
            own = self._leading.look_at_stopping()
        if self._closed:
            return own
        if not self._stops and self._ranks.any_later(own):
            self._stops = True  # It becomes true on all ranks in the same call.
            # If `own` is true because rank 0's place is wanted, it is no SIGTERM of another rank.
            if not own:
                self._note_sigterm()
        return self._stops

    def _loop(self, loop: Iterator[int]) -> Iterator[int]:
        try:
            while (epoch := self._together("run.epochs()", lambda leading: next(loop, None))) is not None:
                yield epoch
        except GeneratorExit:
            # A `break` brings all ranks here, but an error perhaps only this one. So the loop is closed at
            # the next collective.
            self._close_loop = getattr(loop, "close", None)
            raise

    def _together(self, call: str, action: Callable[[Progress], Any]) -> Any:
        """Apply an action to rank 0's progress; every rank gets its result and a copy of the progress."""

        def act() -> dict[str, Any]:
            assert self._leading is not None
            if self._close_loop is not None:
                self._close_loop()
                self._close_loop = None
                self.unsaved = self._leading.unsaved
            if self._has_sigterm:
                self._leading.ask_to_stop()
            result = action(self._leading)
            return {"result": result, "progress": self._as_shared()}

        orders = self._part.orders if self._part else None
        answer = self._ranks.together(call, act, orders, on_flag=self._note_sigterm)
        self._shared = answer["progress"]
        return answer["result"]

    def _note_sigterm(self) -> None:
        self._has_sigterm = True

    def _read(self) -> dict[str, Any]:
        """The progress: on rank 0 as it is, on another rank as it was at the last collective."""
        if self._leading is None:
            return self._shared
        return self._as_shared()

    def _as_shared(self) -> dict[str, Any]:
        leading = self._leading
        assert leading is not None
        return {
            "epoch": leading.epoch,
            "current": leading.current,
            "reported": dict(leading.reported),
            "checkpoint": leading.checkpoint and leading.checkpoint._asdict(),
            "stopping": leading.is_stopping,
        }
