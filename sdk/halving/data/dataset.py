"""Reading a dataset snapshot: immutable rows, and splits that are row numbers, never copies."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from halving.errors import NotFound
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

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
