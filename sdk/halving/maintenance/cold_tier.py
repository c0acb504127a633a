"""Moving a blob to a colder place: it is copied there, read back and checked, and then deleted here.

A process that is killed meanwhile leaves the blob here, there, or in both places. If the same bytes are put
meanwhile, the blob is written here again and stays here (:meth:`halving.store.store.Store.collect`): a put
never relies on what is in a colder place.
"""

import contextlib
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from halving.errors import NotFound
from halving.store.cold_roots import BLOBS
from halving.store.store import Store, blob_name

_THREADS = 8  # to copy from or to an object store


class Movable(NamedTuple):
    """A blob that is in the store's first place, and its size."""

    digest: str
    bytes: int


def find_movable(store: Store, cold: Collection[bytes], before: float) -> Iterator[Movable]:
    """Find the blobs among ``cold`` that are in the store's first place and were last put before a time.

    Args:
        cold: digests of 32 bytes.
        before: seconds since 1970.

    Raises:
        StoreError: the store cannot be listed.
    """
    for folder in sorted({digest[:1].hex() for digest in cold}):
        for name, size, written in store.files(f"{BLOBS}{folder}"):
            value = name.rpartition("/")[2]
            if len(value) == 64 and 0 < written < before and bytes.fromhex(value) in cold:
                yield Movable(f"sha256:{value}", size)


def move_blobs(store: Store, place: Store, blobs: Collection[Movable], before: float) -> Iterator[Movable]:
    """Move blobs to a colder place of the store, and yield those that were moved.

    The store must name the place already (:func:`halving.store.cold.add_cold_root`).

    Raises:
        StoreError: a place refused, or a blob is damaged; nothing is lost.
    """
    threads = _THREADS if store.folder is None or place.folder is None else 1
    with ThreadPoolExecutor(threads, "halving-cold") as pool:
        for blob, moved in zip(
            blobs, pool.map(lambda blob: move_blob(store, place, blob.digest, before), blobs), strict=True
        ):
            if moved:
                yield blob


def move_blob(store: Store, place: Store, digest: str, before: float) -> bool:
    """Move one blob; return False if it is not in the first place, or was put again after ``before``.

    Raises:
        StoreError: a place refused, or the blob is damaged here or there; what is here stays.
    """
    name = blob_name(digest)
    with contextlib.suppress(NotFound):
        with store.blob_file(digest) as content:
            place.put_hashed_blob(content, digest)
        with place.blob_file(digest):  # read back and checked: the only copy from now on
            return store.collect(name, before)
    return False
