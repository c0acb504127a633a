"""What a loader reads and in which batches, as plain data that any process can carry out."""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.data.batches import Batches
from halving.data.columns import Column, as_arrow, as_numpy
from halving.data.order import Order
from halving.data.shard_reader import ShardReader
from halving.data.shards import Shard

if TYPE_CHECKING:
    from halving.data.dataset import Dataset

# Limits of the rows that are copied at a time; more is not faster.
_BLOCK_ROWS = 32768
_BLOCK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class LoaderPlan:
    """The arguments of :meth:`halving.data.dataset.Dataset.loader`, from which any epoch can be read."""

    dataset: "Dataset"
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

    @cached_property
    def shards(self) -> list[Shard]:
        """The split's shards in stored order."""
        return self.dataset.shards(self.split, self.fold)

    @property
    def part(self) -> str:
        """The name of the rows that a state belongs to.

        It is the split, or the stored splits that it consists of, and the fold where there is one.
        """
        train_on = self.dataset.train_on
        name = self.split
        if name == "train":
            name = "+".join(train_on)
        return name if self.fold is None else f"{name} of fold {self.fold}"

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

    def _order(self, epoch: int) -> Order:
        return Order(
            [shard.rows for shard in self.shards],
            seed=self.seed,
            epoch=epoch,
            lanes=self.lanes,
            shuffle=self.shuffle,
        )

    def _first_shards(self, epoch: int) -> Iterator[int]:
        """The shards with which the lanes of an epoch begin, computed when the first is asked for."""
        _, numbers = self._order(epoch).needs()
        yield from numbers[: min(self.lanes, self.total)].tolist()
