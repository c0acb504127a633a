"""Reading a dataset snapshot: immutable rows, and splits that are row numbers, never copies."""

import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from halving.errors import NotFound
from halving.store.retry import retry_while_away
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


class Dataset:
    """One snapshot, named by its content: ``name`` and ``digest`` (``sha256:…`` of its sorted manifest).

    Reading waits for a store that is away, up to ten minutes, and in a trial that was told to end most of its grace period.

    Attributes:
        give_up_at: until when it is waited for; see :func:`halving.store.retry.retry_while_away`. A run sets it for its own.
    """

    give_up_at: Callable[[], float]

    def __init__(self, store: Store, name: str, digest: str) -> None:
        self.store, self.name, self.digest = store, name, digest
        self.give_up_at = lambda: math.inf

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {self.digest!r})"

    def __reduce__(self) -> "tuple[type[Dataset], tuple[Store, str, str]]":
        return Dataset, (self.store, self.name, self.digest)  # a data loader's process gets no part of the run

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
        splits: dict[str, int] = self.manifest["splits"]
        return splits

    def read(self, split: str | None = None) -> "pa.Table":
        """The rows of a split in stored order, or all rows. Local snapshots are memory-mapped.

        Raises:
            NotFound: the snapshot has no such split.
            StoreAway: the store was away for all that time.
        """
        table = self._table(f"{self.folder}/data.arrow")
        if split is None:
            return table
        if split not in self.splits:
            raise NotFound(f"dataset {self.name} has no split {split!r}; it has {sorted(self.splits)}")
        return table.take(self._table(f"{self.folder}/splits/{split}.arrow")["row"])

    def file(self, path: str) -> bytes:
        """The content of one file of a snapshot that was made from a folder (column ``path`` names them)."""
        return self._read(f"{self.folder}/files/{path}")

    def _read(self, name: str) -> bytes:
        return retry_while_away(self.store, f"dataset {self.name}", partial(self.store.read, name), self.give_up_at)

    def _table(self, name: str) -> "pa.Table":
        import pyarrow as pa

        if self.store.folder is not None:
            if not self.store.exists(name):
                raise NotFound(f"no {name} in the store {self.store.root}; `dvc pull` in its datasets folder brings it back")
            source: Any = pa.memory_map(self.store.path(name))
        else:
            source = pa.BufferReader(self._read(name))
        return pa.ipc.open_file(source).read_all()


def snapshot_folder(name: str, digest: str) -> str:
    """``datasets/NAME/HASH`` in the store, with the first 16 hex digits of the digest."""
    return f"datasets/{name}/{digest.removeprefix('sha256:')[:16]}"
