"""A loader's batches as tensors, prepared by the worker processes of a PyTorch ``DataLoader``.

Worker k of N prepares the batches k, k + N, and so on, and PyTorch takes one of each in turn. So the number
of workers changes neither the batches nor their order. Batches prepared ahead do not count as handed out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_convert, get_worker_info

from halving.data.loader_plan import LoaderPlan
from halving.data.position import LoaderPosition
from halving.errors import InvalidInput

_OWN = {  # options of DataLoader that the loader decides itself, and what to do instead
    "batch_sampler": "a loader cuts its batches by itself",
    "batch_size": "give it to dataset.loader(…)",
    "collate_fn": "give transform= to dataset.loader(…)",
    "dataset": "the loader is of one",
    "drop_last": "give it to dataset.loader(…)",
    "num_workers": "give workers=",
    "sampler": (
        "each rank has its share of each batch by itself; rank= and world_size= of dataset.loader(…) say "
        "which"
    ),
    "shuffle": "give it to dataset.loader(…)",
}


class TorchLoader:
    """The batches of a :class:`halving.data.loader.Loader` as tensors; iterating moves the loader's position.

    Arrays of numbers become tensors, and those of ``bytes``, ``str`` or lists become lists. Dates and times
    are tensors of integers in the column's unit.

    Args:
        workers: processes that prepare batches; 0 for a thread of this one.
        pin_memory: put the tensors into pinned memory, so that copies to a GPU need not be waited for
            (``non_blocking=True``). By default this is done where there is a GPU.
        options: more options for ``torch.utils.data.DataLoader``: ``prefetch_factor``,
            ``persistent_workers``, ``multiprocessing_context``.

    Raises:
        InvalidInput: one of these options is decided by the loader itself.
    """

    def __init__(
        self, position: LoaderPosition, workers: int, *, pin_memory: bool | None, **options: Any
    ) -> None:
        self._position = position
        if own := sorted(_OWN.keys() & options.keys()):
            raise InvalidInput(
                f"{own[0]} = {options[own[0]]!r:.80} is not accepted by loader.torch: {_OWN[own[0]]}"
            )
        if pin_memory is None:
            pin_memory = torch.cuda.is_available()
        self._batches = _Batches(position.plan)
        self._torch: DataLoader[Any] = DataLoader(
            self._batches,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=workers,
            pin_memory=pin_memory,
            **options,
        )

    def __len__(self) -> int:
        return len(self._position.plan.batches(0))

    def __iter__(self) -> Iterator[Any]:
        return self._position.begin(self._begin)

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`halving.data.loader.Loader.state_dict`."""
        return self._position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`halving.data.loader.Loader.load_state_dict`."""
        self._position.load_state_dict(state)

    def _begin(self, epoch: int, position: int, number: int) -> Iterator[Any]:
        """Let the workers begin; each batch comes as a list of its own."""
        self._batches.start[:] = torch.tensor([epoch, position, number])
        return ([batch] for batch in self._torch)


class _Batches(IterableDataset[Any]):
    """This rank's batches, for ``DataLoader`` to iterate.

    ``start`` has the epoch, the position and the number of the first batch, in memory shared with the
    workers.
    """

    def __init__(self, plan: LoaderPlan) -> None:
        self._plan = plan
        self.start = torch.zeros(3, dtype=torch.int64)
        self.start.share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Any]:
        epoch, position, number = self.start.tolist()
        worker = get_worker_info()
        if worker is None:
            blocks: Iterator[Any] = self._plan.blocks_ahead(epoch, position, number)
        else:
            blocks = self._plan.blocks(epoch, position, number + worker.id, worker.num_workers)
        for block in blocks:
            for batch in block:
                yield _tensors(batch)


def _tensors(batch: Any) -> Any:
    """Make the columns of a batch tensors; a transform may return something else than columns."""
    if not isinstance(batch, dict):
        return _convert(batch)
    return {name: _tensor(column) for name, column in batch.items()}


def _tensor(array: Any) -> Any:
    """Make an array a tensor, or a list where no tensor can have its items."""
    if not isinstance(array, np.ndarray):
        return _convert(array)
    if array.dtype == object:
        return [_tensor(item) if isinstance(item, np.ndarray) else item for item in array]
    if array.dtype.kind in "SU":  # texts that a transform has made
        return array.tolist()
    if array.dtype.kind in "mM":
        array = array.view(np.int64)
    return torch.from_numpy(array)


_convert: Callable[[Any], Any] = default_convert


def _as_is(batch: Any) -> Any:
    """Return a batch unchanged: it is complete, so ``DataLoader`` has nothing to collate."""
    return batch
