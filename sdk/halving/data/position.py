"""Where a loader is in its epochs, and its passes over them."""

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

from halving.data.loader_plan import LoaderPlan, check_whole
from halving.data.prefetch import Prefetched
from halving.data.waited import WAITED
from halving.errors import InvalidInput

MakeBatches = Callable[[int, int, int], Iterator[Any]]
"""Makes the lists of this rank's batches of an epoch.

It is called with the epoch, the row at which the pass begins, and the number of the first batch to read.
"""


class LoaderPosition:
    """The place up to which a loader has handed out its rows.

    A loader has one pass at a time: one that goes on after another one has begun is an error.

    Attributes:
        plan: describes what the loader reads and in which batches.
        epoch: the epoch that is being iterated, or that the next pass will be; the first is 1.
        row: the number of rows of the epoch, of all ranks, that were handed out.
        broken_off: the epoch and the row at which the last pass was left early, until the next one begins.
    """

    def __init__(self, plan: LoaderPlan, epoch: int = 1, row: int = 0) -> None:
        self.plan = plan
        self.epoch = epoch
        self.row = row
        self.broken_off: tuple[int, int] | None = None
        self._current: Callable[[], _Pass | None] = lambda: None

    def __reduce__(self) -> tuple[type["LoaderPosition"], tuple[LoaderPlan, int, int]]:
        # A copy has no pass yet.
        return LoaderPosition, (self.plan, self.epoch, self.row)

    @property
    def left(self) -> int:
        """The number of batches that the epoch still has."""
        return len(self.plan.batches(self.row))

    @property
    def is_iterated(self) -> bool:
        """Whether a pass is under way."""
        current = self._current()
        return current is not None and not current.over

    def begin(self, batches: MakeBatches) -> Iterator[Any]:
        """Begin a pass over one epoch, or over what is left of it, and count what it hands out."""
        before = self._current()
        if before is not None and not before.over:
            before.superseded = True
            before.close()
        self.broken_off = None
        begun = _Pass(self, batches)
        self._current = weakref.ref(begun)
        return begun

    def leave_epoch(self, epoch: int) -> None:
        """End an epoch whose pass was left early."""
        self.broken_off = (epoch, self.row)
        self.end_epoch(epoch)

    def end_epoch(self, epoch: int) -> None:
        """Go to the beginning of the epoch behind this one."""
        self.epoch = epoch + 1
        self.row = 0

    def end_epoch_if_over(self) -> None:
        """Go to the next epoch if this one has no batch left."""
        if self.row and not self.left:
            self._close_pass()
            self.end_epoch(self.epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position as plain data; see :meth:`halving.data.loader.Loader.state_dict`."""
        return {"epoch": self.epoch, "position": self.row, **self.plan.order_of_rows()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a state; see :meth:`halving.data.loader.Loader.load_state_dict`."""
        where = self.plan.where
        for name, own in self.state_dict().items():
            if name not in state:
                raise InvalidInput(
                    f"the state of a loader without {name!r} is not accepted: give what state_dict() returned"
                )
            if name not in ("epoch", "position") and state[name] != own:
                raise InvalidInput(
                    f"the state of a loader with {name} = {state[name]!r} is not accepted for {where} with "
                    f"{name} = {own!r}: give the state of a loader of the same rows in the same order"
                )
        check_whole("the state's epoch", state["epoch"], 1)
        check_whole("the state's position", state["position"], 0)
        if state["position"] > self.plan.total:
            raise InvalidInput(
                f"the state's position = {state['position']} is not accepted: {where} has "
                f"{self.plan.total:,} rows; give what state_dict() returned"
            )
        self._close_pass()
        self.epoch = state["epoch"]
        self.row = state["position"]
        self.broken_off = None

    def _close_pass(self) -> None:
        """End the pass that is under way."""
        current = self._current()
        self._current = lambda: None
        if current is not None:
            current.close()


class _Pass(Iterator[Any]):
    """A pass over one epoch of a loader, from the loader's position on.

    When it is dropped, the epoch ends if a batch of it was handed out.

    Attributes:
        over: whether it hands out nothing more.
        superseded: whether it is over because its loader was iterated again. Then it is an error to ask it
            for more.
    """

    def __init__(self, position: LoaderPosition, batches: MakeBatches) -> None:
        self._position = position
        self._make = batches
        self._epoch = position.epoch
        self._begin = position.row
        self._cut = position.plan.batches(self._begin)
        self._number = 0
        self.superseded = False
        self._ready: deque[Any] = deque()
        self._source = batches(self._epoch, self._begin, 0)
        self.over = False  # Set last: without it, close() has nothing to end.

    def __next__(self) -> Any:
        began = perf_counter()
        try:
            return self._next()
        finally:
            WAITED.add(perf_counter() - began)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the pass here, and the epoch with it if a batch was handed out."""
        if self.__dict__.get("over", True):  # it is dropped also where its __init__ has failed
            return
        if self._number:
            self._position.leave_epoch(self._epoch)
        self._stop()

    def _next(self) -> Any:
        """The next batch."""
        self._check_going_on()
        if isinstance(self._source, Prefetched) and not self._source.is_here:
            # This is a forked child, which goes on from its parent's position.
            self._ready.clear()
            self._source = self._make(self._epoch, self._begin, self._number)
        if not self._ready:
            try:
                batches = next(self._source)
            except StopIteration:
                self._check_going_on()
                self._position.end_epoch(self._epoch)
                self._stop()
                raise
            except BaseException:
                self.over = True
                raise
            self._check_going_on()  # another thread may have begun a pass while this one waited
            self._ready.extend(batches)
        batch = self._ready.popleft()
        self._number += 1
        self._position.row = self._cut.start(self._number)
        return batch

    def _check_going_on(self) -> None:
        """Refuse to go on if this pass is over."""
        if self.superseded:
            raise InvalidInput(
                f"this loop over the loader of {self._position.plan.where} cannot go on, because the loader "
                "was iterated again meanwhile: "
                "a loader has one pass at a time; open another one for the other pass, dataset.loader(…, "
                "seed=…)"
            ) from None
        if self.over:
            raise StopIteration

    def _stop(self) -> None:
        """Hand out nothing more, and end the thread that reads ahead."""
        self.over = True
        self._ready.clear()
        if hasattr(self._source, "close"):
            self._source.close()
