"""The entry of a checkpoint that says what a run's loaders have handed out."""

from collections.abc import Callable, Mapping
from typing import Any

from halving.data.loader_states import LoaderStates


class LoaderEntry:
    """The loaders of ``run.dataset`` as one stateful object, with the epoch of the run in which they were
    saved.

    Args:
        current: the epoch that is being trained; between epochs, the last complete one.
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
        """Keep it until :meth:`bring_back`: what it means depends on the checkpoint's epoch."""
        self._read = state

    def bring_back(self, epoch: int, *, own: bool) -> None:
        """Fill the loaders with what was read, if the checkpoint had any.

        Args:
            epoch: for which the checkpoint counts. Where the state was saved in a later one, that one was not
                complete.
            own: the checkpoint is the same run's.
        """
        read = self._read
        self._read = None
        if read is not None:
            self._loaders.restore(read["loaders"], within_epoch=epoch < read["epoch"], own=own)
