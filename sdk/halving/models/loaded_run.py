"""The run that the predictor of a loaded model gets.

Its state was read and checked once, and stays in memory for as long as the model.
"""

from collections.abc import Mapping
from typing import Any

from halving.checkpoints.serialization import fill
from halving.data.dataset import Dataset
from halving.errors import InvalidInput
from halving.run.trained_run import TrainedRun
from halving.store.store import Store

_ATOMS = {bool, int, float, str, bytes, type(None)}


class LoadedRun(TrainedRun):
    """A trained run of a version in the store.

    ``restore`` gives copies, so that a predictor's changes to them do not reach the next call.
    """

    def __init__(
        self,
        store: Store,
        *,
        params: Mapping[str, Any],
        dataset: Dataset,
        checkpoint: str,
        state: dict[str, Any],
    ) -> None:
        super().__init__(store, params=params, dataset=dataset, checkpoint_digest=checkpoint)
        self._state = state

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` as :meth:`TrainedRun.restore` does, from what was read when the model was loaded."""
        return restore_copies(self._state, state)


class ExportedRun(TrainedRun):
    """The params and the state of an exported model, without a store or a dataset."""

    def __init__(self, *, params: Mapping[str, Any], checkpoint: str, state: dict[str, Any]) -> None:
        self.params = dict(params)
        self.checkpoint = checkpoint
        self._state = state

    def restore(self, **state: Any) -> dict[str, Any]:
        """Fill ``state`` from the folder's weights, as :meth:`TrainedRun.restore` does from a checkpoint."""
        return restore_copies(self._state, state)

    @property
    def dataset(self) -> Dataset:  # type: ignore[override]
        """An exported model has no dataset, so this raises InvalidInput."""
        raise InvalidInput(
            "run.dataset is not there in an exported model: keep what the predictor needs of the data in "
            "params or in the checkpoint"
        )

    @property
    def store(self) -> Store:  # type: ignore[override]
        """An exported model has no store, so this raises InvalidInput."""
        raise InvalidInput(
            "run.store is not there in an exported model: keep what the predictor needs in params or in "
            "the checkpoint"
        )


def restore_copies(kept: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Fill ``state`` with copies of what was read before, by name.

    Raises:
        CheckpointMismatch: ``state`` asks for names that are not among it.
    """
    tree = dict(kept)
    for name in tree.keys() & state.keys():
        tree[name] = _copy(tree[name])
    return fill(tree, state)


def _copy(value: Any) -> Any:
    """Copy a value, sharing only what cannot be changed.

    A list of a million numbers is copied as one, not number by number.
    """
    if type(value) in _ATOMS:
        return value
    if isinstance(value, dict):
        items = value.copy()
        if hasattr(value, "_metadata"):  # torch keeps the layers' format versions there
            items._metadata = value._metadata  # type: ignore[attr-defined]
        if not set(map(type, items.values())) <= _ATOMS:
            for key, item in items.items():
                items[key] = _copy(item)
        return items
    if isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _ATOMS:
            return value[:]
        return type(value)(map(_copy, value))
    if type(value).__module__ == "numpy":
        return value.copy()
    return value.clone()
