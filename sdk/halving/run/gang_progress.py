"""The progress of a run that trains in several processes: rank 0's, which the other ranks hear of at each
collective.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from halving.checkpoints.sharded.saver import Part
from halving.distributed.ranks import Ranks
from halving.errors import StoreError
from halving.records.run_record import SavedCheckpoint
from halving.run.epoch_loop import Progress, given_epochs, known_epochs

_END_SECONDS = 20.0  # for which the end of a script's run waits for an unavailable store


class GangProgress:
    """As :class:`halving.run.epoch_loop.Progress`, on every rank of a gang: rank 0's decides, and each rank
    is told what has come of it.

    A SIGTERM that comes to any rank, at whatever moment, ends all of them at the same :meth:`save` or end of
    an epoch. So does the platform that wants the trial's place, which rank 0 hears of.

    Args:
        ranks: of the gang.
        leading: rank 0's progress; None on the other ranks.
        max_epochs: of the whole training, in a trial; None in a script, which says it in :meth:`epochs`.
        part: of another rank: what it does for a checkpoint.

    Attributes:
        closed: whether the run is finished.
    """

    def __init__(
        self, ranks: Ranks, leading: Progress | None, max_epochs: int | None, part: Part | None = None
    ) -> None:
        self._ranks = ranks
        self._leading = leading
        self._part = part
        self._asked = False  # a SIGTERM has come, to any rank
        self._stops = False  # all ranks have been told so, when they asked
        self._in_trial = max_epochs is not None
        self._max_epochs = max_epochs
        self._told: dict[str, Any] = {
            "epoch": 0,
            "current": 0,
            "reported": {},
            "checkpoint": None,
            "stopping": False,
        }
        # leaves rank 0's loop over epochs, which was left early on every rank
        self._left: Callable[[], object] | None = None
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
        return self._leading.epoch if self._leading else int(self._told["epoch"])

    @property
    def current(self) -> int:
        return self._leading.current if self._leading else int(self._told["current"])

    @property
    def reported(self) -> Mapping[str, float]:
        return self._leading.reported if self._leading else self._told["reported"]

    @property
    def checkpoint(self) -> SavedCheckpoint | None:
        if self._leading:
            return self._leading.checkpoint
        saved = self._told["checkpoint"]
        return SavedCheckpoint(**saved) if saved else None

    @property
    def is_stopping(self) -> bool:
        return self._leading.is_stopping if self._leading else bool(self._told["stopping"])

    @property
    def max_epochs(self) -> int:
        return known_epochs(self._max_epochs)

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
            self._max_epochs = given_epochs(total)
        return self._loop(self._leading.epochs(total) if self._leading else iter(()))

    def end(self) -> None:
        """The training is over, on every rank."""
        if self._in_trial:
            self._together("the end of the training", lambda leading: leading.end())
            self.unsaved = self._leading.unsaved if self._leading else None
        else:
            self._together("the end of the training", lambda leading: leading.make_up(_END_SECONDS))

    def make_up(self, seconds: float) -> None:
        """Nothing: it takes all ranks, so it was done in :meth:`end`."""

    def give_up_at(self) -> float:
        return self._leading.give_up_at() if self._leading else float("inf")

    def ask_to_stop(self) -> bool:
        """A SIGTERM has come to this rank: rank 0 hears of it at the next collective, and decides."""
        if self._leading is not None:
            return self._leading.ask_to_stop()
        if self._closed or not self._in_trial:
            return False
        self._asked = True
        if self._part is not None:
            self._part.is_stopping = True
        self._ranks.flag()
        return True

    def ask_back(self) -> None:
        """As :meth:`halving.run.epoch_loop.Progress.ask_back`, of rank 0."""
        if self._leading is not None:
            self._leading.ask_back()

    def look_at_stopping(self) -> bool:
        own = self._leading.look_at_stopping() if self._leading else self._asked
        if self._closed:
            return own
        if not self._stops and self._ranks.any_later(own):
            self._stops = True  # on all ranks, in the same call
            if not own:  # rank 0, whose place is wanted, would take it for another rank's SIGTERM
                self._hear_of_stopping()
        return self._stops

    def _loop(self, loop: Iterator[int]) -> Iterator[int]:
        try:
            while (epoch := self._together("run.epochs()", lambda leading: next(loop, None))) is not None:
                yield epoch
        except GeneratorExit:
            # By a `break` all ranks come here; by an error perhaps this one alone. So it waits for the next
            # collective.
            self._left = getattr(loop, "close", None)
            raise

    def _together(self, call: str, action: Callable[[Progress], Any]) -> Any:
        """Let rank 0's progress act; every rank is told the result, and how far the run has come by it."""

        def act() -> dict[str, Any]:
            assert self._leading is not None
            if self._left is not None:
                self._left()
                self._left = None
                self.unsaved = self._leading.unsaved
            if self._asked:
                self._leading.ask_to_stop()
            result = action(self._leading)
            return {"result": result, "progress": self._as_told()}

        answer = self._ranks.together(
            call, act, self._part.orders if self._part else None, on_flag=self._hear_of_stopping
        )
        self._told = answer["progress"]
        return answer["result"]

    def _hear_of_stopping(self) -> None:
        self._asked = True

    def _as_told(self) -> dict[str, Any]:
        assert self._leading is not None
        leading = self._leading
        saved = self._leading.checkpoint
        return {
            "epoch": leading.epoch,
            "current": leading.current,
            "reported": dict(leading.reported),
            "checkpoint": saved._asdict() if saved else None,
            "stopping": leading.is_stopping,
        }
