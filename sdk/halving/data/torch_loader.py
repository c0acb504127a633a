"""A loader's batches as tensors, prepared by the worker processes of a PyTorch ``DataLoader``.

Worker k of N prepares the batches k, k + N, …, and PyTorch takes one of each in turn: how many there are
changes neither the batches nor their order. What they have prepared ahead does not count as handed out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_convert, get_worker_info

from halving.data.loader import prefetch
from halving.data.loader_plan import LoaderPlan
from halving.errors import InvalidInput

if TYPE_CHECKING:
    from halving.data.loader import Loader


_OWN = {  # DataLoader's options that the loader has itself, and how they are given
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
    """An iterable of batches like its :class:`halving.data.loader.Loader`, whose position it moves: arrays of
    numbers are tensors, those of ``bytes``, ``str`` or lists are lists; dates and times are tensors of
    integers in the column's unit.

    Args:
        workers: processes that prepare batches; 0 for a thread of this one.
        pin_memory: put the tensors into pinned memory, from which a copy to a GPU need not be waited for
            (``non_blocking=True``); by default where there is a GPU.
        options: more for ``torch.utils.data.DataLoader``: ``prefetch_factor``, ``persistent_workers``,
            ``multiprocessing_context``.

    Raises:
        InvalidInput: an option of DataLoader's is the loader's own.
    """

    def __init__(self, loader: "Loader", workers: int, *, pin_memory: bool | None, **options: Any) -> None:
        self.loader = loader
        if own := sorted(_OWN.keys() & options.keys()):
            raise InvalidInput(
                f"{own[0]} = {options[own[0]]!r:.80} is not accepted by loader.torch: {_OWN[own[0]]}"
            )
        if pin_memory is None:
            pin_memory = torch.cuda.is_available()
        self._batches = _Batches(loader.plan)
        self._torch: DataLoader[Any] = DataLoader(
            self._batches,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=workers,
            pin_memory=pin_memory,
            **options,
        )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return self.loader.iteration(self._begin)

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`halving.data.loader.Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`halving.data.loader.Loader.load_state_dict`."""
        self.loader.load_state_dict(state)

    def _begin(self, epoch: int, position: int, number: int) -> Iterator[Any]:
        self._batches.start[:] = torch.tensor([epoch, position, number])
        return ([batch] for batch in self._torch)


class _Batches(IterableDataset[Any]):
    """This rank's batches from ``start``: epoch, position and number of the first, in memory that the workers
    share.
    """

    def __init__(self, plan: LoaderPlan) -> None:
        self._plan = plan
        self.start = torch.zeros(3, dtype=torch.int64)
        self.start.share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Any]:
        epoch, position, number = self.start.tolist()
        worker = get_worker_info()
        if worker is None:
            blocks: Iterator[Any] = prefetch(self._plan, epoch, position, number)
        else:
            blocks = self._plan.blocks(epoch, position, number + worker.id, worker.num_workers)
        for block in blocks:
            for batch in block:
                yield _tensors(batch)


def _tensors(batch: Any) -> Any:
    if not isinstance(batch, dict):
        return _convert(batch)
    tensors = {}
    for name, column in batch.items():
        tensors[name] = _tensor(column) if isinstance(column, np.ndarray) else _convert(column)
    return tensors


def _tensor(array: "np.ndarray[Any, Any]") -> Any:
    if array.dtype == object:
        return [_tensor(item) if isinstance(item, np.ndarray) else item for item in array]
    if array.dtype.kind in "SU":  # texts that a transform has made
        return array.tolist()
    if array.dtype.kind in "mM":
        array = array.view(np.int64)
    return torch.from_numpy(array)


_convert: Callable[[Any], Any] = default_convert


def _as_is(batch: Any) -> Any:
    return batch
