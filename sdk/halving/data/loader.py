"""The loader of a split: an iterable of batches that any number of processes can resume at any row."""

import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from halving.data.batches import too_few
from halving.data.columns import refuse_unreadable
from halving.data.loader_plan import LoaderPlan
from halving.data.prefetch import Prefetched
from halving.data.waited import WAITED
from halving.errors import InvalidInput

if TYPE_CHECKING:
    from halving.data.dataset import Dataset
    from halving.data.torch_loader import TorchLoader

LANES = 16
_BLOCKS_AHEAD = 2  # lists of batches
_TRANSFORMED_AHEAD = 4  # batches


class Loader:
    """Batches of a split. Get one from :meth:`halving.Dataset.loader`, which describes them.

    Iterating over a loader is one epoch, and iterating again is the next one, also where the iteration before
    was left early. A loader has one pass at a time: an iteration that goes on after another one has begun is
    an error. After :meth:`load_state_dict` an iteration begins at the state's position.

    Attributes:
        plan: describes what is read and in which batches.
    """

    def __init__(
        self,
        dataset: "Dataset",
        split: str,
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        fold: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        seed: int = 0,
        shuffle: bool = True,
        lanes: int | None = None,
        epoch: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        dataset.shards(split, fold)  # raises where there is none
        rank, ranks = _rank_and_count(rank, world_size)
        if lanes is None:
            lanes = LANES if shuffle else 1
        for name, value in (("batch_size", batch_size), ("lanes", lanes), ("epoch", epoch)):
            _check_whole(name, value, 1)
        _check_whole("seed", seed, 0)
        if not shuffle and lanes != 1:
            raise InvalidInput(
                f"lanes = {lanes} with shuffle=False is not accepted: rows in stored order come from one "
                "lane; leave it out"
            )
        if isinstance(columns, str):
            raise InvalidInput(f"columns = {columns!r} is not accepted: give a list of names")
        names = None if columns is None else tuple(columns)
        self.plan = LoaderPlan(
            dataset, split, fold, batch_size, names, transform, seed, shuffle, lanes, rank, ranks, drop_last
        )
        self._epoch = epoch
        self._position = 0
        self._current: Callable[[], _Iteration | None] = lambda: None
        self._broken_off: tuple[int, int] | None = None
        if not self.plan.total:
            raise InvalidInput(f"{self.plan.where} is empty: there is nothing to load")
        if too_few(self.plan.total, batch_size, ranks, drop_last):
            raise InvalidInput(_advice(self.plan))
        # A wrong name, and a null in the last batch, are errors here.
        refuse_unreadable(
            self.plan.columns, dataset.statistics(split, fold), self.plan.where, for_numpy=transform is None
        )

    def __repr__(self) -> str:
        return (
            f"Loader({self.plan.where}, epoch {self._epoch}, position {self._position:,} of "
            f"{self.plan.total:,})"
        )

    def __reduce__(self) -> "tuple[Any, ...]":
        return _rebuild_loader, (self.plan, self._epoch, self._position)

    def __len__(self) -> int:
        """The number of batches of a whole epoch, also where an epoch was resumed in its middle."""
        return len(self.plan.batches(0))

    def __iter__(self) -> Iterator[Any]:
        return self.iteration(partial(prefetch, self.plan))

    @property
    def epoch(self) -> int:
        """The epoch that is being iterated, or that the next iteration will be; the first is 1."""
        return self._epoch

    @property
    def position(self) -> int:
        """The number of rows of the epoch, of all ranks, that were handed out."""
        return self._position

    @property
    def left(self) -> int:
        """The number of batches that the epoch still has."""
        return len(self.plan.batches(self._position))

    def torch(self, workers: int = 0, *, pin_memory: bool | None = None, **options: Any) -> "TorchLoader":
        """Make the same batches tensors, by a PyTorch ``DataLoader``.

        See :class:`halving.data.torch_loader.TorchLoader`.
        """
        from halving.data.torch_loader import TorchLoader

        return TorchLoader(self, workers, pin_memory=pin_memory, **options)

    def state_dict(self) -> dict[str, Any]:
        """The loader's position as plain data, from which :meth:`load_state_dict` continues.

        It may continue with any batch size and any number of ranks. Only rows of batches that were handed out
        count, whatever was read ahead. The state is the same on all ranks.
        """
        plan = self.plan
        own = {
            "digest": plan.dataset.digest,
            "split": plan.part,
            "seed": plan.seed,
            "shuffle": plan.shuffle,
            "lanes": plan.lanes,
        }
        return {"epoch": self._epoch, "position": self._position, **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a state: the next iteration begins there, and one that is under way ends.

        Raises:
            InvalidInput: the state is of another dataset, split, seed or order.
        """
        for name, own in self.state_dict().items():
            if name not in state:
                raise InvalidInput(
                    f"the state of a loader without {name!r} is not accepted: give what state_dict() returned"
                )
            if name not in ("epoch", "position") and state[name] != own:
                raise InvalidInput(
                    f"the state of a loader with {name} = {state[name]!r} is not accepted for "
                    f"{self.plan.where} with {name} = {own!r}: "
                    "give the state of a loader of the same rows in the same order"
                )
        _check_whole("the state's epoch", state["epoch"], 1)
        _check_whole("the state's position", state["position"], 0)
        if state["position"] > self.plan.total:
            raise InvalidInput(
                f"the state's position = {state['position']} is not accepted: {self.plan.where} has "
                f"{self.plan.total:,} rows; "
                "give what state_dict() returned"
            )
        self._leave()
        self._epoch = state["epoch"]
        self._position = state["position"]
        self._broken_off = None

    @property
    def is_iterated(self) -> bool:
        """Whether an iteration is under way."""
        current = self._current()
        return current is not None and not current.over

    @property
    def broken_off(self) -> tuple[int, int] | None:
        """The epoch and position at which the last iteration was left early, until the next one begins."""
        return self._broken_off

    def end_epoch_if_over(self) -> None:
        """Go to the next epoch if this one has no batch left."""
        if self._position and not self.left:
            self._leave()
            self._epoch = self._epoch + 1
            self._position = 0

    def iteration(self, batches: "Callable[[int, int, int], Iterator[Any]]") -> Iterator[Any]:
        """Begin a pass over one epoch, or over what is left of it, and count what it hands out.

        Args:
            batches: called with the epoch, the position where the iteration begins and a number. It returns
                lists of this rank's batches from that number on.
        """
        before = self._current()
        if before is not None and not before.over:
            before.superseded = True
            before.close()
        self._broken_off = None
        iteration = _Iteration(self, batches)
        self._current = weakref.ref(iteration)
        return iteration

    def _leave(self) -> None:
        current = self._current()
        self._current = lambda: None
        if current is not None:
            current.close()


class _Iteration(Iterator[Any]):
    """A pass over one epoch of a loader, from the loader's position on.

    When it is dropped, the epoch ends if a batch of it was handed out.

    Attributes:
        over: whether it hands out nothing more.
        superseded: whether it is over because its loader was iterated again. Then it is an error to ask it
            for more.
    """

    def __init__(self, loader: Loader, batches: "Callable[[int, int, int], Iterator[Any]]") -> None:
        self._loader = loader
        self._make = batches
        self._epoch = loader._epoch
        self._begin = loader._position
        self._cut = loader.plan.batches(self._begin)
        self._number = 0
        self.over = False
        self.superseded = False
        self._ready: deque[Any] = deque()
        self._source: Iterator[Any] = batches(self._epoch, self._begin, 0)

    def __next__(self) -> Any:
        began = perf_counter()
        try:
            return self._next()
        finally:
            WAITED.add(perf_counter() - began)

    def _next(self) -> Any:
        self._check_going_on()
        if isinstance(self._source, Prefetched) and not self._source.is_here:
            # This is a forked child, which goes on from its parent's position.
            self._ready.clear()
            self._source = self._make(self._epoch, self._begin, self._number)
        if not self._ready:
            try:
                batches = next(self._source)
            except StopIteration:
                self._check_going_on()
                self._end()
                raise
            except BaseException:
                self.over = True
                raise
            self._check_going_on()  # another thread may have begun a pass while this one waited
            self._ready.extend(batches)
        batch = self._ready.popleft()
        self._number += 1
        self._loader._position = self._cut.start(self._number)
        return batch

    def _check_going_on(self) -> None:
        if self.superseded:
            raise InvalidInput(
                f"this loop over the loader of {self._loader.plan.where} cannot go on, because the loader "
                "was iterated again meanwhile: "
                "a loader has one pass at a time; open another one for the other pass, dataset.loader(…, "
                "seed=…)"
            ) from None
        if self.over:
            raise StopIteration

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the pass here; the next iteration is the next epoch if this one has handed out a batch."""
        if not self.__dict__.get("over", True):
            if self._number:
                self._loader._broken_off = self._epoch, self._loader._position
                self._end()
            else:
                self._stop()

    def _end(self) -> None:
        self._loader._epoch = self._epoch + 1
        self._loader._position = 0
        self._stop()

    def _stop(self) -> None:
        self.over = True
        self._ready.clear()
        if hasattr(self._source, "close"):
            self._source.close()


def _rebuild_loader(plan: LoaderPlan, epoch: int, position: int) -> Loader:
    loader = Loader.__new__(Loader)
    loader.plan = plan
    loader._epoch = epoch
    loader._position = position
    loader._current = lambda: None
    loader._broken_off = None
    return loader


def prefetch(plan: LoaderPlan, epoch: int, position: int, number: int) -> Prefetched[list[Any]]:
    """Read this rank's batches from a number on, as lists, ahead in a thread."""
    depth = _BLOCKS_AHEAD if plan.transform is None else _TRANSFORMED_AHEAD
    return Prefetched(lambda gave_up: plan.blocks(epoch, position, number, gave_up=gave_up), depth)


def _rank_and_count(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This process's rank and the number of ranks.

    They are those given, or else what torch.distributed or torchrun says, or else 0 of 1.
    """
    if (rank is None) != (world_size is None):
        raise InvalidInput(
            f"rank = {rank} with world_size = {world_size} is not accepted: give both, or neither"
        )
    torch = sys.modules.get("torch")
    if rank is not None and world_size is not None:
        where = ""
    elif torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    else:
        where = " (from RANK and WORLD_SIZE)"
        try:
            rank = int(os.environ.get("RANK") or 0)
            world_size = int(os.environ.get("WORLD_SIZE") or 1)
        except ValueError as error:
            raise InvalidInput(
                f"RANK or WORLD_SIZE in the environment is not accepted: {error}; torchrun sets them to "
                "numbers"
            ) from None
    if not 0 <= rank < world_size:
        raise InvalidInput(
            f"rank = {rank} with world_size = {world_size}{where} is not accepted: ranks are 0 … "
            "world_size - 1"
        )
    return rank, world_size


def _check_whole(name: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value < 1 << 63:
        raise InvalidInput(f"{name} = {value!r} is not accepted: give a whole number of at least {minimum}")


def _advice(plan: LoaderPlan) -> str:
    refusal = f"batch_size = {plan.batch_size} is not accepted: it is the size of the global batch"
    if plan.batch_size < plan.ranks:
        return f"{refusal}, and each of {plan.ranks} ranks needs a row of it; give at least {plan.ranks}"
    if plan.drop_last or plan.total < plan.ranks:
        return f"{refusal}, and {plan.where} has {plan.total:,} rows: not one batch for {plan.ranks} ranks"
    last = plan.total % plan.batch_size
    return (
        f"{refusal}, and an epoch of {plan.total:,} rows leaves {last} for the last one, which are too few "
        f"for {plan.ranks} ranks; "
        f"give drop_last=True, or a batch_size of at least {2 * plan.ranks}"
    )
