"""Shards: immutable Arrow files of about 128 MiB with rows of one split, named by the SHA-256 of their bytes.

A snapshot's manifest lists them in stored order: ``"shards": {"train": [["<64 hex>", rows, bytes], …], …}``.
They are uncompressed, so that a mapped file is read without a copy, and in small record batches. Snapshots
share the shards that they have in common.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from halving.errors import NotFound, StoreError
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Shard:
    """A file named by ``sha256`` (64 hex digits), of so many ``bytes`` and ``rows`` (at least one)."""

    sha256: str
    rows: int
    bytes: int

    @property
    def name(self) -> str:
        """The shard's name in a store: ``shards/sha256/ab/abcdef…``."""
        return f"shards/sha256/{self.sha256[:2]}/{self.sha256}"

    def row_hashes_name(self, rules: str) -> str:
        """The name of the file with a hash of each row, in the same order, and statistics of the columns.

        The file is derived, and training does not need it.

        Args:
            rules: the manifest's ``hash_rules``. Shards are shared, and what is hashed of a row depends on
                the spec.
        """
        return f"{self.name}.{rules}.rows"


def shards_of(manifest: Mapping[str, Any], split: str) -> list[Shard]:
    """The shards of a split in stored order; an empty split has none."""
    return [Shard(*entry) for entry in manifest["shards"].get(split, [])]


@contextmanager
def open_shard(store: Store, shard: Shard) -> "Iterator[pa.RecordBatchFileReader]":
    """Open a shard where it lies, without hashing its bytes.

    In a folder it is mapped; of an object store only what is read is fetched.

    Raises:
        NotFound: it is gone.
        StoreError: it has another size than the manifest says, or is no Arrow file.
    """
    import pyarrow as pa

    with _open_checked_size(store, shard) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid as error:
            raise StoreError(f"{damage_of(store, shard)}: {error}") from error
        with reader:
            yield reader


def checked_shard(store: Store, shard: Shard) -> "pa.Table":
    """Read all rows of a shard, after checking its bytes against its name.

    They are mapped in a folder, and in memory from an object store.

    Raises:
        NotFound: it is gone.
        StoreError: it is damaged.
    """
    import pyarrow as pa

    with _open_checked_size(store, shard) as file:
        data = file.read_buffer()
        if (actual := sha256(data).hexdigest()) != shard.sha256:
            raise StoreError(f"{damage_of(store, shard)}: its content hashes to {actual}")
        return pa.ipc.open_file(data).read_all()


def select_columns(table: "pa.Table", columns: Sequence[str] | None) -> "pa.Table":
    """Take these columns of a dataset's rows; None takes all.

    Raises:
        NotFound: there is no such column.
    """
    if columns is None:
        return table
    if absent := [column for column in columns if column not in table.column_names]:
        raise NotFound(f"the dataset has no column {absent[0]!r}; it has {table.column_names}")
    return table.select(list(columns))


@contextmanager
def _open_checked_size(store: Store, shard: Shard) -> "Iterator[pa.NativeFile]":
    """Open a shard's file, if it is there and has the right size."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(store.open_file(shard.name))
        except NotFound:
            raise NotFound(missing_message(store, shard)) from None
        if (size := file.size()) != shard.bytes:
            raise StoreError(f"{damage_of(store, shard)}: it has {size:,} bytes, not {shard.bytes:,}")
        yield file


def damage_of(store: Store, shard: Shard) -> str:
    """The beginning of a message about a damaged shard."""
    return (
        f"the shard {shard.name} of the store {store.root} is damaged (`halving datasets fetch` brings it "
        "back)"
    )


def missing_message(store: Store, shard: Shard) -> str:
    """The message about a missing shard."""
    return (
        f"the shard {shard.name} is missing from the store {store.root}; `halving datasets fetch` brings "
        "it back"
    )
