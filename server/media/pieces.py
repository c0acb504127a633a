"""Files in pieces, so that none is ever whole in memory."""

from collections.abc import Iterator

from halving import Store
from halving.store.store import blob_name

_PIECE = 1 << 20  # bytes


def pieces(store: Store, digest: str, first: int, end: int) -> Iterator[bytes]:
    """The bytes of a blob from ``first`` up to ``end``; of an object store only these are read."""
    yield from file_pieces(store, blob_name(digest), first, end)


def file_pieces(store: Store, name: str, first: int, end: int) -> Iterator[bytes]:
    """The same of any file."""
    with store.open_file(name) as file:
        file.seek(first)
        while first < end and (piece := file.read(min(_PIECE, end - first))):
            first += len(piece)
            yield piece
