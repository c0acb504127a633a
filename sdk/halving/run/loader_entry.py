"""The entry of a checkpoint with the positions of a run's loaders."""

from collections.abc import Callable, Mapping
from typing import Any

from halving.data.loader_states import LoaderStates


class LoaderEntry:
    """The loaders of ``run.dataset`` as one stateful object, with the run's epoch at the time of the save.

    Args:
        current: returns the epoch that is being trained; between epochs, the last complete one.
    """

    def __init__(self, loaders: LoaderStates, current: Callable[[], int]) -> None:
        self._loaders = loaders
        self._current = current
        self._read: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        """Whether there is something to save."""
        return len(self._loaders) > 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._current(), "loaders": self._loaders.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the state until :meth:`bring_back`, because its meaning depends on the checkpoint's epoch."""
        self._read = state

    def bring_back(self, epoch: int, *, own: bool) -> None:
        """Restore the loaders from the state that was loaded, if the checkpoint had one.

        Args:
            epoch: the epoch for which the checkpoint counts. If the state was saved in a later one, that one
                was not complete.
            own: whether the checkpoint is the same run's.
        """
        read = self._read
        self._read = None
        if read is not None:
            self._loaders.restore(read["loaders"], within_epoch=epoch < read["epoch"], own=own)
