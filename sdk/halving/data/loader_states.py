"""The open loaders of a dataset and their states, which a run's checkpoint keeps."""

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    from halving.data.position import LoaderPosition

_ORDER = ("split", "seed", "shuffle", "lanes")  # the fields by which a state finds its loader


class LoaderStates:
    """The states of a dataset's open loaders, one loader for each order of rows.

    That is the last one that was opened, unless an earlier one is being iterated. States may be restored
    before the loaders are opened.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakValueDictionary[tuple[Any, ...], LoaderPosition] = (
            weakref.WeakValueDictionary()
        )
        self._restored: list[dict[str, Any]] = []  # states that no loader has taken yet
        self._is_same_run = True
        self._taken: set[str] = set()  # splits that have had a loader since the last restore

    def __len__(self) -> int:
        return len(self._open)

    def add(self, position: "LoaderPosition") -> None:
        """Register the position of a loader that was opened, and give it the state restored for its order.

        Raises:
            InvalidInput: its split was saved in the middle of an epoch of another order.
        """
        order = _order(position.state_dict())
        before = self._open.get(order)
        if before is None or not before.is_iterated:
            self._open[order] = position
            self._take([position])

    def state_dict(self) -> list[dict[str, Any]]:
        """The state of each open loader.

        Where a loop was left early, the state also has ``broken_off``: the epoch and position where that was.
        """
        states = []
        for _, position in sorted(self._open.items()):
            state = position.state_dict()
            if position.broken_off is not None:
                state["broken_off"] = list(position.broken_off)
            states.append(state)
        return states

    def restore(self, states: Sequence[Mapping[str, Any]], *, within_epoch: bool, own: bool) -> None:
        """Bring states back, into the loaders that are open now and into those that are opened later.

        Args:
            within_epoch: the states are from the middle of an epoch of the run, which continues. A loader
                whose loop was left continues where that was, and one that has handed out its last batch has
                none left. Otherwise both continue with the next epoch.
            own: the states are the same run's. Those of another run are taken where they fit; elsewhere the
                loaders begin an order of their own.

        Raises:
            InvalidInput: the same run saved a split in the middle of an epoch, in another order than its
                loader's.
        """
        self._is_same_run = own
        self._restored = [_state_to_resume(state, within_epoch) for state in states]
        self._taken.clear()
        self._take(list(self._open.values()))

    def _take(self, positions: "list[LoaderPosition]") -> None:
        """Give loaders the states that were restored for them."""
        for position in positions:
            own = position.state_dict()
            for state in [state for state in self._restored if _order(state) == _order(own)]:
                self._restored.remove(state)
                if self._is_same_run or state["digest"] == own["digest"]:
                    position.load_state_dict(state)
                    if state["next_if_over"]:
                        position.end_epoch_if_over()
                    self._taken.add(position.plan.part)
        for position in positions:
            if position.plan.part not in self._taken:
                self._refuse(position)
                self._taken.add(position.plan.part)

    def _refuse(self, position: "LoaderPosition") -> None:
        """Refuse a split's first loader if the run left another order of the split in the middle of an epoch.

        Otherwise rows would come twice.
        """
        for state in self._restored:
            if self._is_same_run and state["split"] == position.plan.part and state["position"]:
                try:
                    position.load_state_dict(state)
                except InvalidInput as error:
                    raise InvalidInput(
                        f"the run's checkpoint has a loader in the middle of an epoch: {error}"
                    ) from None


def _state_to_resume(state: Mapping[str, Any], within_epoch: bool) -> dict[str, Any]:
    """The state with which a loader continues, and whether to go to the next epoch if that one is over."""
    resumed = {**state, "next_if_over": not within_epoch}
    if within_epoch and "broken_off" in state:
        resumed["epoch"], resumed["position"] = state["broken_off"]
    return resumed


def _order(state: Mapping[str, Any]) -> tuple[Any, ...]:
    """The order of rows that a state belongs to."""
    return tuple(state[name] for name in _ORDER)
