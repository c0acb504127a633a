"""Shards: immutable Arrow files of about 128 MiB, named by the SHA-256 of their bytes, each with rows of one split.

A snapshot's manifest lists them in stored order: ``"shards": {"train": [["<64 hex>", rows, bytes], …], …}``. They are uncompressed, so that
a mapped file is read without a copy, and in small record batches. Snapshots share the shards that they have in common.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halving.errors import NotFound, StoreError
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: ``sha256`` (64 hex digits) of its ``bytes``, and how many ``rows`` it has (at least one)."""

    sha256: str
    rows: int
    bytes: int

    @property
    def name(self) -> str:
        """Where it lies in a store: ``shards/sha256/ab/abcdef…``."""
        return f"shards/sha256/{self.sha256[:2]}/{self.sha256}"

    @property
    def row_hashes_name(self) -> str:
        """Where the hash of each of its rows lies, in the same order, with the statistics of its columns; derived, and not for training."""
        return f"{self.name}.rows"


def shards_of(manifest: Mapping[str, Any], split: str) -> list[Shard]:
    """The shards of a split in stored order; an empty split has none."""
    return [Shard(*entry) for entry in manifest["shards"].get(split, [])]


@contextmanager
def open_shard(store: Store, shard: Shard) -> "Iterator[pa.RecordBatchFileReader]":
    """A shard where it lies: mapped in a folder, and on an object store only what is read is fetched. Its bytes are not hashed.

    Raises:
        NotFound: it is gone.
        StoreError: it has another size than the manifest says, or is no Arrow file.
    """
    import pyarrow as pa

    try:
        with store.open_file(shard.name) as file:
            if (found := file.size()) != shard.bytes:
                raise StoreError(f"{damaged(store, shard)}: it has {found:,} bytes, not {shard.bytes:,}")
            with pa.ipc.open_file(file) as reader:
                yield reader
    except pa.ArrowInvalid as error:
        raise StoreError(f"{damaged(store, shard)}: {error}") from error
    except NotFound:
        raise NotFound(f"the shard {shard.name} is missing from the store {store.root}; `halving datasets fetch` brings it back") from None


def damaged(store: Store, shard: Shard) -> str:
    """How a message about a damaged shard begins."""
    return f"the shard {shard.name} of the store {store.root} is damaged (`halving datasets fetch` brings it back)"
