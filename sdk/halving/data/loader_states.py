"""The loaders of a dataset that are open, and their states together: how a run's checkpoint keeps what its loaders have handed out."""

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput

if TYPE_CHECKING:
    from halving.data.dataset import Dataset
    from halving.data.loader import Loader


class LoaderStates:
    """Loaders by name: their split, and behind the first of a split a number (``train``, ``train 2``).

    A loader that is dropped leaves its name to the next one. States may be restored before the loaders are opened.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakValueDictionary[str, Loader] = weakref.WeakValueDictionary()
        self._restored: dict[str, Any] = {}
        self._own, self._within_epoch = True, False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, loader: "Loader") -> None:
        """A loader was opened: it gets the first free name, and the state that was restored under it.

        Raises:
            InvalidInput: that state is of another order of rows, and of the same run.
        """
        split, number = loader.plan.split, 1
        while (name := split if number == 1 else f"{split} {number}") in self._open:
            number += 1
        self._open[name] = loader
        if name in self._restored:
            self._load(loader, self._restored.pop(name))

    def state_dict(self) -> dict[str, Any]:
        """The state of each open loader, by name; of one whose loop was left early, also where (``broken_off``)."""
        return {name: _state(loader) for name, loader in sorted(self._open.items())}

    def restore(self, states: Mapping[str, Any], *, within_epoch: bool, own: bool) -> None:
        """Bring states back: into the loaders that are open now, and into those that are opened later.

        Args:
            within_epoch: the states are of the middle of an epoch of the run, which goes on: a loader whose loop was left goes on where
                that was, and one that has handed out its last batch has none left. Otherwise both go on with the next epoch.
            own: they are the same run's. Another run's are taken where they fit, and else these loaders begin an order of their own.

        Raises:
            InvalidInput: a state is of another order of rows, and of the same run.
        """
        self._within_epoch, self._own = within_epoch, own
        self._restored = dict(states)
        for name in [name for name in self._restored if name in self._open]:
            self._load(self._open[name], self._restored.pop(name))

    def _load(self, loader: "Loader", state: Mapping[str, Any]) -> None:
        if self._within_epoch and "broken_off" in state:
            epoch, position = state["broken_off"]
            state = {**state, "epoch": epoch, "position": position}
        try:
            loader.load_state_dict(state)
        except InvalidInput:
            if self._own:
                raise
            return
        if not self._within_epoch:
            loader.end_epoch_if_over()


def _state(loader: "Loader") -> dict[str, Any]:
    state = loader.state_dict()
    return state if loader.broken_off is None else state | {"broken_off": list(loader.broken_off)}


_OF: "weakref.WeakKeyDictionary[Dataset, LoaderStates]" = weakref.WeakKeyDictionary()


def loaders_of(dataset: "Dataset") -> LoaderStates:
    """The loaders that were opened by ``dataset.loader``."""
    return _OF.setdefault(dataset, LoaderStates())
