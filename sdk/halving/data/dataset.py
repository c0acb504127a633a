"""Reading a dataset's rows: as tables, as record batches, or by a loader that can be resumed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from halving.data.loader_states import LoaderStates
from halving.data.shards import Shard, shards_of
from halving.data.snapshot import Snapshot
from halving.errors import InvalidInput
from halving.records.hardware import available_memory
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from halving.data.loader import Loader


class Dataset(Snapshot):
    """A snapshot of a dataset: its rows, read as tables, as record batches or by a loader.

    While the store is unavailable, reading waits for up to ten minutes. A trial that has to end waits for
    most of its grace period.

    Args:
        store: the store that has the snapshot.
        name: the dataset's name.
        digest: the snapshot's digest, ``sha256:…`` of the list of its shards.
        train_on: stored splits that together are ``train`` here. In the final training of a sweep these are
            train and validation.

    Attributes:
        deadline: the time until which reading waits at most. A run sets it for its own dataset.
        loader_states: the states of the loaders that :meth:`loader` has opened, which a run's checkpoint
            keeps.
    """

    def __init__(self, store: Store, name: str, digest: str, train_on: Sequence[str] = ("train",)) -> None:
        super().__init__(store, name, digest, train_on)
        self.loader_states = LoaderStates()

    def read(
        self, split: str | None = None, *, columns: Sequence[str] | None = None, fold: int | None = None
    ) -> "pa.Table":
        """Read a split in stored order, or all rows, as one table.

        The shards' bytes are checked against their names each time. In a folder shards are memory-mapped, and
        one that is missing or damaged is fetched again from ``HALVING_DVC_REMOTE`` where that is set. For
        data that does not fit into memory there are :meth:`batches` and :meth:`loader`.

        Args:
            split: its name; None reads all rows.
            columns: only these (default: all).
            fold: in a dataset with folds, the one that ``validation`` is and ``train`` is not.

        Raises:
            NotFound: the snapshot has no such split, fold or column, or a shard is missing.
            InvalidInput: the rows do not fit into the memory that is available.
            StoreError: a shard is damaged.
            StoreUnavailable: the store was unavailable for as long as reading waits.
        """
        import pyarrow as pa

        if split is not None:
            shards = self.shards(split, fold)
        else:
            names = [
                stored
                for name in sorted(self.manifest["splits"])
                for stored in self._splits_of_part(name, fold)
            ]
            shards = [shard for name in names for shard in shards_of(self.manifest, name)]
        size = sum(shard.bytes for shard in shards)
        available = available_memory()
        if available is not None and size > available:
            argument = ""
            subject = "all splits"
            if split is not None:
                argument = repr(split)
                subject = f"the split {split!r}"
            raise InvalidInput(
                f"read({argument}) is not accepted: {subject} of {self.name} has {size / 1e9:.1f} GB, and "
                f"{available / 1e9:.1f} GB of memory are available; use loader(…) or batches(…), which "
                "read it bit by bit"
            )
        if not shards:
            return self._no_rows(columns)
        return pa.concat_tables([self._rows(shard, columns) for shard in shards])

    def batches(
        self, split: str, *, columns: Sequence[str] | None = None, fold: int | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Read the rows of a split in stored order, as record batches of some thousands of rows.

        At most two shards (of 128 MiB) are in memory at a time. The shards' bytes are checked as :meth:`read`
        does it, and the arguments are the same. Columns may be of any type. A batch that is kept keeps its
        whole shard in memory.

        Raises:
            NotFound: the snapshot has no such split or fold; while iterating, it has no such column, or a
                shard is missing.
            StoreError: while iterating, a shard is damaged.
            StoreUnavailable: the store was unavailable for as long as reading waits.
        """
        shards = self.shards(split, fold)
        return (batch for shard in shards for batch in self._rows(shard, columns).to_batches())

    def loader(
        self,
        split: str,
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        fold: int | None = None,
        transform: "Callable[[pa.RecordBatch], Any] | None" = None,
        seed: int = 0,
        shuffle: bool = True,
        lanes: int | None = None,
        epoch: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> "Loader":
        """Open a loader: an iterable over the batches of a split, for any number of GPUs.

        ``for batch in loader`` is one epoch, and the next loop is the next epoch.

        A loader has one pass at a time. A loop that goes on after another loop over the same loader has begun
        (``zip(loader, loader)``, a loop in a loop) is an error. For two passes at a time open two loaders.

        The order depends only on the snapshot's shards, ``seed``, ``lanes`` and the epoch. So a training that
        is resumed continues with the very next row, also on another number of GPUs or with another batch
        size. ``run.save`` keeps the position and ``run.restore`` brings it back. In a script without
        ``run.dataset`` pass the loader to them under a name.

        A batch is a dict of arrays by column. Numbers have the shape ``(rows, …)``, where a fixed-size list
        adds a dimension; ``bytes``, ``str`` and (for lists) arrays have the dtype object. Null is NaN, NaT or
        None. The arrays are copies, which you may change. ``loader.torch(workers=4)`` gives tensors. A split
        with a null whole number, boolean, date or time of day is refused here unless there is a
        ``transform``. One with a null item in a list is always refused.

        Shards of an object store are fetched ahead into a cache on this machine's disk: the folder
        ``HALVING_CACHE`` (default ``~/.cache/halving``) of at most ``HALVING_CACHE_BYTES`` (default: half of
        the free space). A shard of a folder is hashed once on this machine before any of its rows is handed
        out, and the cache folder remembers that. One that is missing or damaged is fetched again from
        ``HALVING_DVC_REMOTE`` where that is set.

        Args:
            split: its name.
            batch_size: rows of the global batch; each rank gets its share of them. The last two batches of an
                epoch share the remaining rows equally.
            columns: the columns to read; all by default.
            fold: in a dataset with folds, the one that ``validation`` is and ``train`` is not.
            transform: a function that makes a batch of rows into what training needs. It is called with an
                Arrow record batch, in a background thread or in a worker of ``loader.torch(workers=…)``.
            seed: decides the order, together with the epoch.
            shuffle: False gives the stored order.
            lanes: the number of places in the data from which the rows of a batch come (default: 16; 1
                without shuffling). So many shards are open, and in the cache, at a time.
            epoch: the first epoch to be iterated, from 1.
            rank, world_size: of this process and of all; by default those of ``torch.distributed`` or
                torchrun, else 0 of 1.
            drop_last: leave out the rows that do not fill a batch.

        Raises:
            NotFound: the snapshot has no such split or fold, or a shard is missing.
            InvalidInput: a value is not accepted, the split is empty, or a column has a type or a null that a
                loader does not read.
            StoreError: a shard is damaged (also while iterating), or the store was unavailable for ten
                minutes.
        """
        from halving.data.loader import Loader
        from halving.data.loader_plan import LANES, LoaderPlan, check_whole, rank_and_count
        from halving.data.position import LoaderPosition

        if isinstance(columns, str):
            raise InvalidInput(f"columns = {columns!r} is not accepted: give a list of names")
        if columns is not None:
            columns = tuple(columns)
        if lanes is None:
            lanes = LANES if shuffle else 1
        rank, ranks = rank_and_count(rank, world_size)
        plan = LoaderPlan(
            self, split, fold, batch_size, columns, transform, seed, shuffle, lanes, rank, ranks, drop_last
        )
        check_whole("epoch", epoch, 1)
        plan.check()
        position = LoaderPosition(plan, epoch)
        self.loader_states.add(position)
        return Loader(position)

    def referenced(self, row: Mapping[str, Any]) -> bytes:
        """Read a file that the snapshot has by reference, and check that it is still the same.

        A file is the same by its digest, or by what S3 reports of it.

        Args:
            row: a row of such a snapshot, with ``location`` and ``sha256``, ``version`` or ``etag``.

        Raises:
            InvalidInput: the row refers to no file.
            NotFound: the file is gone.
            StoreError: the file is not what it was.
        """
        from halving.data.referenced_files import referenced_file

        return self._retry(referenced_file(row).read)

    def _no_rows(self, columns: Sequence[str] | None) -> "pa.Table":
        """An empty table with the columns of the snapshot."""
        first = next(shard for name in sorted(self.splits) for shard in shards_of(self.manifest, name))
        return self._rows(first, columns).slice(0, 0)

    def _rows(self, shard: Shard, columns: Sequence[str] | None) -> "pa.Table":
        """All rows of a shard, whose bytes are checked."""
        from halving.data.verified_shards import whole_shard

        return self._retry(partial(whole_shard, self.store, shard, columns, self._retry_at))
