"""Reading a dataset snapshot: immutable rows, and splits that are row numbers, never copies."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from halving.errors import NotFound
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from halving.data.loader import Loader

_Result = TypeVar("_Result")


class Dataset:
    """One snapshot, named by its content: ``name`` and ``digest`` (``sha256:…`` of its sorted manifest).

    Reading waits while the store is unavailable: up to ten minutes, or most of the grace period in a trial that has to end.

    Attributes:
        give_up_at: until when it waits; see :func:`halving.store.retry.retry_while_unavailable`. A run sets it for its own dataset.
    """

    give_up_at: Callable[[], float]

    def __init__(self, store: Store, name: str, digest: str) -> None:
        self.store, self.name, self.digest = store, name, digest
        self.give_up_at = lambda: math.inf

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {self.digest!r})"

    def __reduce__(self) -> "tuple[type[Dataset], tuple[Store, str, str]]":
        return Dataset, (self.store, self.name, self.digest)  # a data loader's process does not get the run

    @property
    def folder(self) -> str:
        """The snapshot's folder in the store."""
        return snapshot_folder(self.name, self.digest)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the snapshot consists of: ``files``, ``rows``, ``bytes``, ``schema_sha256``, ``splits``, ``target``."""
        manifest: dict[str, Any] = json.loads(self._read(f"{self.folder}/manifest.json"))
        return manifest

    @property
    def target(self) -> str:
        """The name of the column to predict."""
        return str(self.manifest["target"])

    @property
    def splits(self) -> Mapping[str, int]:
        """Rows in each split."""
        return dict(self.manifest["splits"])

    def read(self, split: str | None = None) -> "pa.Table":
        """The rows of a split in stored order, or all rows.

        A folder's snapshot is memory-mapped. From an object store a split takes the memory of its own rows and of one record batch
        (32 MiB, where a row is not larger).

        Raises:
            NotFound: the snapshot has no such split.
            StoreUnavailable: the store was unavailable for all that time.
        """
        if split is None:
            return self._retried(partial(self._all_rows, "data.arrow"))
        if split not in self.splits:
            raise NotFound(f"dataset {self.name} has no split {split!r}; it has {sorted(self.splits)}")
        rows = self._retried(partial(self._all_rows, f"splits/{split}.arrow"))["row"].to_numpy()
        return self._retried(partial(self._rows, rows))

    def file(self, path: str) -> bytes:
        """The content of one file of a snapshot that was made from a folder (column ``path`` names them)."""
        return self._read(f"{self.folder}/files/{path}")

    def loader(
        self,
        split: str,
        *,
        batch_size: int,
        columns: "Sequence[str] | None" = None,
        transform: "Callable[[pa.RecordBatch], Any] | None" = None,
        seed: int = 0,
        shuffle: bool = True,
        lanes: int | None = None,
        epoch: int = 1,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> "Loader":
        """An iterable of batches, for any number of GPUs. ``for batch in loader`` is one epoch, the next loop the next epoch.

        The order depends on the snapshot's shards, ``seed``, ``lanes`` and the epoch alone, so a training that is resumed goes on with the
        very row, also on another number of GPUs or with another batch size. ``run.save`` keeps the position and ``run.restore`` brings it
        back; in a script without ``run.dataset`` give the loader to them by a name.

        A batch is a dict of arrays, by column: of numbers ``(rows, …)``, where a fixed-size list adds a dimension; of ``bytes`` or ``str``
        (or arrays, for lists) with dtype object. Null is NaN, NaT or None. They are copies, yours to change. ``loader.torch(workers=4)``
        gives tensors.

        Shards of an object store are fetched ahead into a cache on this machine's disk: the folder ``HALVING_CACHE`` (default
        ``~/.cache/halving``) of at most ``HALVING_CACHE_BYTES`` (default: half of what is free).

        Args:
            batch_size: rows of the global batch; each rank gets its share of them. The last two of an epoch share what is left equally.
            columns: which to read; all by default.
            transform: makes something else of a batch: it is called with an Arrow record batch of the rows, in a background thread or in
                a worker of ``loader.torch(workers=…)``.
            seed: of the order.
            shuffle: False gives the stored order.
            lanes: from how many places of the data the rows of a batch come (16): so many shards are open, and in the cache, at a time.
            epoch: the first to be iterated, from 1.
            rank, world_size: of this process and of all; by default those of ``torch.distributed`` or torchrun, else 0 of 1.
            drop_last: leave out the rows that do not fill a batch.

        Raises:
            NotFound: the snapshot has no such split, or a shard is missing.
            InvalidInput: a value is not accepted, the split is empty, or a column has a type that a loader does not read.
            StoreError: a shard is damaged (also while iterating), or the store was unavailable for ten minutes.
        """
        from halving.data.loader import Loader
        from halving.data.loader_states import loaders_of

        loader = Loader(
            self,
            split,
            batch_size=batch_size,
            columns=columns,
            transform=transform,
            seed=seed,
            shuffle=shuffle,
            lanes=lanes,
            epoch=epoch,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
        )
        loaders_of(self).add(loader)
        return loader

    def _read(self, name: str) -> bytes:
        return self._retried(partial(self.store.read, name))

    def _retried(self, read: Callable[[], _Result]) -> _Result:
        return retry_while_unavailable(self.store, f"dataset {self.name}", read, self.give_up_at)

    def _all_rows(self, name: str) -> "pa.Table":
        with self._open(name) as reader:
            return reader.read_all()

    def _rows(self, rows: "np.ndarray[Any, Any]") -> "pa.Table":
        """The rows with these numbers, in this order: taken batch by batch, so that only one batch is held beside them."""
        import numpy as np
        import pyarrow as pa

        order, taken, first = np.argsort(rows, kind="stable"), [], 0
        ascending = rows[order]
        with self._open("data.arrow") as reader:
            for number in range(reader.num_record_batches if len(rows) else 0):
                batch = reader.get_batch(number)
                begin, end = np.searchsorted(ascending, (first, first + batch.num_rows))
                if begin < end:
                    taken.append(batch.take(pa.array(ascending[begin:end] - first)))
                first += batch.num_rows
            table = pa.Table.from_batches(taken, reader.schema)
        return table if (ascending == rows).all() else table.take(pa.array(np.argsort(order)))

    @contextmanager
    def _open(self, name: str) -> "Iterator[pa.RecordBatchFileReader]":
        import pyarrow as pa

        path = f"{self.folder}/{name}"
        if self.store.folder is not None and not self.store.exists(path):
            raise NotFound(f"no {path} in the store {self.store.root}; `dvc pull` in its datasets folder brings it back")
        with self.store.open_file(path) as file, pa.ipc.open_file(file) as reader:
            yield reader


def snapshot_folder(name: str, digest: str) -> str:
    """``datasets/NAME/HASH`` in the store, with the first 16 hex digits of the digest."""
    return f"datasets/{name}/{digest.removeprefix('sha256:')[:16]}"
