"""What a loader reads and in which batches, as plain data that any process can carry out."""

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from halving.data.batches import Batches, too_few
from halving.data.columns import Column, as_arrow, as_numpy, refuse_unreadable
from halving.data.order import Order
from halving.data.prefetch import Prefetched
from halving.data.shard_reader import ShardReader
from halving.data.shards import Shard
from halving.data.snapshot import Snapshot
from halving.errors import InvalidInput

LANES = 16
"""From how many places of the data the rows of a shuffled batch come by default."""

# Limits of the rows that are copied at a time; more is not faster.
_BLOCK_ROWS = 32768
_BLOCK_BYTES = 16 * 2**20
_BLOCKS_AHEAD = 2  # lists of batches
_TRANSFORMED_AHEAD = 4  # batches


@dataclass(frozen=True)
class LoaderPlan:
    """What a loader reads, in which order and in which batches.

    The fields are the arguments of :meth:`halving.data.dataset.Dataset.loader`, which describes them, with
    the defaults filled in.

    Attributes:
        names: of the columns; None for all.
        ranks: number of processes that share each batch (``world_size``).
        process: the process that has opened the loader.
    """

    dataset: Snapshot
    split: str
    fold: int | None
    batch_size: int
    names: Sequence[str] | None
    transform: Callable[[Any], Any] | None
    seed: int
    shuffle: bool
    lanes: int
    rank: int
    ranks: int
    drop_last: bool
    process: int = field(default_factory=os.getpid)

    def check(self) -> None:
        """Refuse arguments that are not accepted, and columns that a loader does not read.

        Raises:
            NotFound: the snapshot has no such split or fold, or a shard is missing.
            InvalidInput: a value is not accepted, the split is empty, or a column has a type or a null that a
                loader does not read.
        """
        total = self.total  # raises where there is no such split
        check_whole("batch_size", self.batch_size, 1)
        check_whole("lanes", self.lanes, 1)
        check_whole("seed", self.seed, 0)
        if not self.shuffle and self.lanes != 1:
            raise InvalidInput(
                f"lanes = {self.lanes} with shuffle=False is not accepted: rows in stored order come from "
                "one lane; leave it out"
            )
        if not total:
            raise InvalidInput(f"{self.where} is empty: there is nothing to load")
        if too_few(total, self.batch_size, self.ranks, self.drop_last):
            raise InvalidInput(self._batch_size_refusal())
        # A wrong name, and a null in the last batch, are errors before training begins.
        statistics = self.dataset.statistics(self.split, self.fold)
        refuse_unreadable(self.columns, statistics, self.where, for_numpy=self.transform is None)

    @cached_property
    def shards(self) -> list[Shard]:
        """The split's shards in stored order."""
        return self.dataset.shards(self.split, self.fold)

    @property
    def part(self) -> str:
        """The name of the rows that a state belongs to.

        It is the split, or the stored splits that it consists of, and the fold where there is one.
        """
        name = self.split
        if name == "train":
            name = "+".join(self.dataset.train_on)
        if self.fold is None:
            return name
        return f"{name} of fold {self.fold}"

    def order_of_rows(self) -> dict[str, Any]:
        """The fields of a state that are equal for loaders with the same rows in the same order."""
        return {
            "digest": self.dataset.digest,
            "split": self.part,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "lanes": self.lanes,
        }

    @cached_property
    def total(self) -> int:
        """The number of rows of the split."""
        return sum(shard.rows for shard in self.shards)

    @cached_property
    def columns(self) -> list[Column]:
        """The columns that are read of each shard.

        Raises:
            InvalidInput: there is no such column, or its type is not accepted.
        """
        reader = self.reader()
        try:
            return reader.columns(self.names, self.where)
        finally:
            reader.close()

    @property
    def where(self) -> str:
        """The split and dataset, as messages name them."""
        return f"split {self.part!r} of dataset {self.dataset.name}"

    def batches(self, position: int) -> Batches:
        """The global batches of an epoch from a position on."""
        return Batches(self.total, position, self.batch_size, self.ranks, self.drop_last)

    def reader(
        self,
        upcoming: Iterable[int] = (),
        afterwards: Iterable[int] = (),
        gave_up: Callable[[], bool] = lambda: False,
    ) -> ShardReader:
        """A reader of the split's shards."""
        dataset = self.dataset
        if os.getpid() != self.process:
            # A forked child must not use its parent's connection to an object store.
            dataset = pickle.loads(pickle.dumps(dataset))
        return ShardReader(dataset, self.shards, self.lanes + 1, upcoming, afterwards, gave_up)

    def blocks(
        self,
        epoch: int,
        position: int,
        first: int = 0,
        every: int = 1,
        gave_up: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[Any]]:
        """Read this rank's batches of an epoch from a position on, in lists of some MiB.

        These are the batches number ``first``, ``first + every``, and so on. The first list has only one
        batch, so that training begins at once. Batches that a transform has made come one at a time.
        """
        order = self._order(epoch)
        batches = self.batches(position)
        positions, numbers = order.needs()
        upcoming = numbers[np.searchsorted(positions, position) :].tolist()
        reader = self.reader(upcoming, self._first_shards(epoch + 1), gave_up)
        row_bytes = max(1, sum(shard.bytes for shard in self.shards) // max(1, self.total))
        rows = 0
        over = False
        max_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))
        try:
            while first < len(batches):
                shares: list[np.ndarray[Any, Any]] = []
                bounds = [0]
                while not shares or (first < len(batches) and bounds[-1] + len(shares[-1]) <= rows):
                    shares.append(np.arange(*batches.share(first, self.rank)))
                    bounds.append(bounds[-1] + len(shares[-1]))
                    first += every
                rows = min(max_rows, 2 * bounds[-1])
                gathered = reader.read(*order.locate(np.concatenate(shares)), self.columns)
                if self.transform is None:
                    yield [
                        {column.column.name: as_numpy(column, begin, end) for column in gathered}
                        for begin, end in pairwise(bounds)
                    ]
                    continue
                record_batch = as_arrow(gathered)
                for begin, end in pairwise(bounds):
                    yield [self.transform(record_batch.slice(begin, end - begin))]
            over = True
        finally:
            reader.close(finish=over)

    def blocks_ahead(self, epoch: int, position: int, first: int) -> Prefetched[list[Any]]:
        """Read all of this rank's batches as :meth:`blocks` does, ahead in a thread."""
        depth = _BLOCKS_AHEAD if self.transform is None else _TRANSFORMED_AHEAD
        return Prefetched(lambda gave_up: self.blocks(epoch, position, first, gave_up=gave_up), depth)

    def _order(self, epoch: int) -> Order:
        """The order of an epoch's rows."""
        return Order(
            [shard.rows for shard in self.shards],
            seed=self.seed,
            epoch=epoch,
            lanes=self.lanes,
            shuffle=self.shuffle,
        )

    def _first_shards(self, epoch: int) -> Iterator[int]:
        """The shards with which the lanes of an epoch begin, computed when the first one is needed."""
        _, numbers = self._order(epoch).needs()
        yield from numbers[: min(self.lanes, self.total)].tolist()

    def _batch_size_refusal(self) -> str:
        """Say why the batch size is not accepted, and what is."""
        refusal = f"batch_size = {self.batch_size} is not accepted: it is the size of the global batch"
        if self.batch_size < self.ranks:
            return f"{refusal}, and each of {self.ranks} ranks needs a row of it; give at least {self.ranks}"
        if self.drop_last or self.total < self.ranks:
            return (
                f"{refusal}, and {self.where} has {self.total:,} rows: not one batch for {self.ranks} ranks"
            )
        last = self.total % self.batch_size
        return (
            f"{refusal}, and an epoch of {self.total:,} rows leaves {last} for the last one, which are too "
            f"few for {self.ranks} ranks; give drop_last=True, or a batch_size of at least {2 * self.ranks}"
        )


def rank_and_count(rank: int | None, world_size: int | None) -> tuple[int, int]:
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


def check_whole(name: str, value: object, minimum: int) -> None:
    """Refuse what is not a whole number from ``minimum`` to 2**63 - 1.

    Raises:
        InvalidInput: naming the value.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value < 1 << 63:
        raise InvalidInput(f"{name} = {value!r} is not accepted: give a whole number of at least {minimum}")
