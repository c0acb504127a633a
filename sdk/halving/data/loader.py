"""The loader of a split: an iterable of batches that any number of processes can resume at any row."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from halving.data.position import LoaderPosition

if TYPE_CHECKING:
    from halving.data.torch_loader import TorchLoader


class Loader:
    """Batches of a split. Get one from :meth:`halving.Dataset.loader`, which describes them.

    Iterating over a loader is one epoch, and iterating again is the next one, also where the iteration before
    was left early. A loader has one pass at a time: an iteration that goes on after another one has begun is
    an error. After :meth:`load_state_dict` an iteration begins at the state's position.

    Attributes:
        plan: describes what is read and in which batches.
    """

    def __init__(self, position: LoaderPosition) -> None:
        self.plan = position.plan
        self._position = position

    def __repr__(self) -> str:
        return (
            f"Loader({self.plan.where}, epoch {self.epoch}, position {self.position:,} of "
            f"{self.plan.total:,})"
        )

    def __reduce__(self) -> "tuple[type[Loader], tuple[LoaderPosition]]":
        # A copy goes on by itself.
        return Loader, (LoaderPosition(self.plan, self.epoch, self.position),)

    def __len__(self) -> int:
        """The number of batches of a whole epoch, also where an epoch was resumed in its middle."""
        return len(self.plan.batches(0))

    def __iter__(self) -> Iterator[Any]:
        return self._position.begin(self.plan.blocks_ahead)

    @property
    def epoch(self) -> int:
        """The epoch that is being iterated, or that the next iteration will be; the first is 1."""
        return self._position.epoch

    @property
    def position(self) -> int:
        """The number of rows of the epoch, of all ranks, that were handed out."""
        return self._position.row

    @property
    def broken_off(self) -> tuple[int, int] | None:
        """The epoch and position at which the last iteration was left early, until the next one begins."""
        return self._position.broken_off

    @property
    def left(self) -> int:
        """The number of batches that the epoch still has."""
        return self._position.left

    def torch(self, workers: int = 0, *, pin_memory: bool | None = None, **options: Any) -> "TorchLoader":
        """The same batches as tensors, by a PyTorch ``DataLoader``.

        See :class:`halving.data.torch_loader.TorchLoader`.
        """
        from halving.data.torch_loader import TorchLoader

        return TorchLoader(self._position, workers, pin_memory=pin_memory, **options)

    def state_dict(self) -> dict[str, Any]:
        """The loader's position as plain data, from which :meth:`load_state_dict` continues.

        It may continue with any batch size and any number of ranks. Only rows of batches that were handed out
        count, whatever was read ahead. The state is the same on all ranks.
        """
        return self._position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a state: the next iteration begins there, and one that is under way ends.

        Raises:
            InvalidInput: the state is of another dataset, split, seed or order.
        """
        self._position.load_state_dict(state)
