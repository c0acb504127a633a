"""The open loaders of a dataset and their states, which a run's checkpoint keeps."""

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    from halving.data.dataset import Dataset
    from halving.data.loader import Loader

_ORDER = ("split", "seed", "shuffle", "lanes")  # the fields by which a state finds its loader


class LoaderStates:
    """The states of a dataset's open loaders, one loader for each order of rows.

    That is the last one that was opened, unless an earlier one is being iterated. States may be restored
    before the loaders are opened.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakValueDictionary[tuple[Any, ...], Loader] = weakref.WeakValueDictionary()
        self._restored: list[dict[str, Any]] = []  # states that no loader has taken yet
        self._is_same_run = True
        self._taken: set[str] = set()  # splits that have had a loader since the last restore

    def __len__(self) -> int:
        return len(self._open)

    def add(self, loader: "Loader") -> None:
        """Register a loader that was opened, and give it the state that was restored for its order.

        Raises:
            InvalidInput: its split was saved in the middle of an epoch of another order.
        """
        order = _order(loader.state_dict())
        before = self._open.get(order)
        if before is None or not before.is_iterated:
            self._open[order] = loader
            self._take([loader])

    def state_dict(self) -> list[dict[str, Any]]:
        """The state of each open loader.

        Where a loop was left early, the state also has ``broken_off``: the epoch and position where that was.
        """
        states = []
        for _, loader in sorted(self._open.items()):
            state = loader.state_dict()
            if loader.broken_off is not None:
                state["broken_off"] = list(loader.broken_off)
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

    def _take(self, loaders: "list[Loader]") -> None:
        """Give loaders the states that were restored for them."""
        for loader in loaders:
            own = loader.state_dict()
            for state in [state for state in self._restored if _order(state) == _order(own)]:
                self._restored.remove(state)
                if self._is_same_run or state["digest"] == own["digest"]:
                    loader.load_state_dict(state)
                    if state["next_if_over"]:
                        loader.end_epoch_if_over()
                    self._taken.add(loader.plan.part)
        for loader in loaders:
            if loader.plan.part not in self._taken:
                self._refuse(loader)
                self._taken.add(loader.plan.part)

    def _refuse(self, loader: "Loader") -> None:
        """Refuse a split's first loader if the run left another order of the split in the middle of an epoch.

        Otherwise rows would come twice.
        """
        for state in self._restored:
            if self._is_same_run and state["split"] == loader.plan.part and state["position"]:
                try:
                    loader.load_state_dict(state)
                except InvalidInput as error:
                    raise InvalidInput(
                        f"the run's checkpoint has a loader in the middle of an epoch: {error}"
                    ) from None


def _state_to_resume(state: Mapping[str, Any], within_epoch: bool) -> dict[str, Any]:
    resumed = {**state, "next_if_over": not within_epoch}
    if within_epoch and "broken_off" in state:
        resumed["epoch"], resumed["position"] = state["broken_off"]
    return resumed


def _order(state: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(state[name] for name in _ORDER)


_LOADERS: "weakref.WeakKeyDictionary[Dataset, LoaderStates]" = weakref.WeakKeyDictionary()


def loaders_of(dataset: "Dataset") -> LoaderStates:
    """The states of the loaders that were opened by ``dataset.loader``."""
    return _LOADERS.setdefault(dataset, LoaderStates())
