"""A loader's batches as tensors, prepared by the worker processes of a PyTorch ``DataLoader``.

Worker k of N prepares the batches k, k + N, and so on, and PyTorch takes one of each in turn. So the number
of workers changes neither the batches nor their order. Batches prepared ahead do not count as handed out.
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
    """The batches of a :class:`halving.data.loader.Loader` as tensors; iterating moves its position.

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
