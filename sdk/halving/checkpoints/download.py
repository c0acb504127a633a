"""Downloading a checkpoint as one file, whether the store holds it whole or in parts."""

from collections.abc import Iterator
from dataclasses import dataclass

from halving.checkpoints.sharded.manifest import MAGIC_BYTES, Manifest, is_manifest
from halving.store.files import CHUNK
from halving.store.store import Store, blob_name


@dataclass(frozen=True)
class Download:
    """A file that is read once.

    Attributes:
        size: bytes.
        pieces: its content, never whole in memory; they raise as the store's files do.
        is_assembled: whether it is in the store only in parts.
    """

    size: int
    pieces: Iterator[bytes]
    is_assembled: bool


def download(store: Store, digest: str) -> Download:
    """The file of a checkpoint as one process would write it; a sharded one is assembled while it is read.

    Raises:
        NotFound: no such blob.
        StoreError: it cannot be read, or lacks a part.
    """
    with store.open_file(blob_name(digest)) as file:
        size = int(file.size())
        sharded = is_manifest(file.read(MAGIC_BYTES))
    if not sharded:
        return Download(size, _pieces(store, digest), is_assembled=False)
    from halving.checkpoints.sharded.assembled import AssembledCheckpoint

    assembled = AssembledCheckpoint(store, Manifest.parse(store.get_blob(digest)))
    return Download(assembled.size, assembled.pieces(), is_assembled=True)


def is_sharded(store: Store, digest: str) -> bool:
    """Whether a checkpoint is stored in parts, so that its blob is a manifest of them.

    Raises:
        NotFound: no such blob.
        StoreError: it cannot be read.
    """
    with store.open_file(blob_name(digest)) as file:
        return is_manifest(file.read(MAGIC_BYTES))


def _pieces(store: Store, digest: str) -> Iterator[bytes]:
    with store.open_file(blob_name(digest)) as file:
        while piece := file.read(CHUNK):
            yield piece
