"""Reads files in pieces, so that none is ever whole in memory."""

from collections.abc import Iterator

from halving import Store
from halving.store.store import blob_name

_PIECE = 1 << 20  # bytes


def pieces(store: Store, digest: str, first: int, end: int) -> Iterator[bytes]:
    """Read a blob's bytes from ``first`` up to ``end``; an object store reads only these."""
    yield from file_pieces(store, blob_name(digest), first, end)


def file_pieces(store: Store, name: str, first: int, end: int) -> Iterator[bytes]:
    """As :func:`pieces`, for any file."""
    with store.open_file(name) as file:
        file.seek(first)
        while first < end and (piece := file.read(min(_PIECE, end - first))):
            first += len(piece)
            yield piece
