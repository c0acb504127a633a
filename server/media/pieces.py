"""Blobs in pieces, so that none is ever whole in memory."""

from collections.abc import Iterator

from halving import Store
from halving.store.store import blob_name

_PIECE = 1 << 20  # bytes


def pieces(store: Store, digest: str, first: int, end: int) -> Iterator[bytes]:
    """The bytes of a blob from ``first`` up to ``end``; of an object store only these are read."""
    with store.open_file(blob_name(digest)) as file:
        file.seek(first)
        while first < end and (piece := file.read(min(_PIECE, end - first))):
            first += len(piece)
            yield piece
