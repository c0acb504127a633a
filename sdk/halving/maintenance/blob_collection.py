"""Mark and sweep of blobs: those that nothing names are deleted after a grace time.

Blobs are shared by content, so a blob is deleted only when everything that named it is gone or expired. The
grace time counts from when it was last put, because a blob is put before it is recorded. A put of a blob that
is older than :data:`halving.store.store.REFRESH_SECONDS` writes it again, which makes it young, and never
overlaps its deletion (:meth:`halving.store.store.Store.collect`). So a process that puts a blob has the grace
time, less a day, to record it. A process that names a blob without putting it must ask the catalog whether
the blob stays (``resources.retention``).

Memory: 32 bytes for each name of a blob, and what is to be deleted.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from halving.errors import NotFound
from halving.maintenance.named_blobs import digests_in
from halving.store.store import Store, blob_name

# The beginning of a manifest; see halving.checkpoints.sharded.manifest.
SHARDED_CHECKPOINT = b'{"halving_checkpoint":'
_BLOBS = "artifacts/sha256"
_REQUESTS = 16  # Concurrent requests to an object store.
_BYTES = 32  # The bytes of a digest.
_DIGEST = re.compile("[0-9a-f]{64}")
_CHUNK = 1 << 20
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Owner(NamedTuple):
    """The project and the kind of a blob that only expired records name.

    Attributes:
        kind: ``checkpoints``, ``media`` and so on.
        sharded: whether the blob may be the manifest of a sharded checkpoint.
    """

    project: str
    kind: str
    sharded: bool = False


NOBODY = Owner("", "unnamed blobs")


class Blob(NamedTuple):
    """A blob to delete.

    Attributes:
        bytes: its size.
        is_part: whether it is a part of a sharded checkpoint, whose manifest is deleted first.
    """

    digest: str
    bytes: int
    owner: Owner
    is_part: bool = False


class Marks:
    """The digests that are named by records that stay, and those by expired records; 32 bytes each."""

    def __init__(self) -> None:
        self._kept = [bytearray() for _ in range(256)]
        self._expired = [bytearray() for _ in range(256)]
        self._owners: dict[Owner, int] = {}
        self._manifests: set[str] = set()

    def keep(self, digests: Collection[bytes], *, sharded: bool = False) -> None:
        """Keep these blobs; with ``sharded`` they may be manifests, whose parts are kept as well."""
        for digest in digests:
            self._kept[digest[0]] += digest
        if sharded:
            self._manifests.update(f"sha256:{digest.hex()}" for digest in digests)

    def expire(self, digests: Iterable[bytes], owner: Owner) -> None:
        """Let these blobs be deleted, unless something else keeps them."""
        number = self._owners.setdefault(owner, len(self._owners)).to_bytes(4)
        for digest in digests:
            self._expired[digest[0]] += digest + number

    def keep_parts(self, store: Store) -> None:
        """Keep the parts that the kept manifests name; a manifest that is gone names none.

        Raises:
            StoreError: a manifest cannot be read, so it is unknown which parts must stay.
        """
        for parts in _in_threads(store, lambda digest: parts_of(store, digest), sorted(self._manifests)):
            self.keep(parts)

    def kept_digests(self, first: int) -> set[bytes]:
        """The digests that stay and begin with this byte."""
        packed = self._kept[first]
        return {bytes(packed[start : start + _BYTES]) for start in range(0, len(packed), _BYTES)}

    def owners(self, first: int) -> dict[bytes, Owner]:
        """The owners of the expired digests that begin with this byte; of several owners the first."""
        owners = list(self._owners)
        packed = self._expired[first]
        step = _BYTES + 4
        owner_of: dict[bytes, Owner] = {}
        for start in reversed(range(0, len(packed), step)):
            end = start + _BYTES
            owner_of[bytes(packed[start:end])] = owners[int.from_bytes(packed[end : start + step])]
        return owner_of


def clock_of(store: Store, probe: str) -> float | None:
    """Read the store's clock, in seconds since 1970; None if the store records no times.

    A file is written for this, and its time is read.

    Args:
        probe: the file's name, in a folder with few other files, because the folder is listed.

    Raises:
        StoreError: the store refused.
    """
    store.replace(probe, b"what the store's clock says is this file's time\n")
    return next(
        (written for name, _, written in store.files(probe.rpartition("/")[0]) if name == probe and written),
        None,
    )


def find_unmarked(store: Store, marks: Marks, before: float) -> list[Blob]:
    """Find the blobs that nothing keeps and that were last put before a time.

    The parts of a sharded checkpoint have its owner.

    Args:
        before: seconds since 1970, by the store's clock.

    Raises:
        StoreError: the store cannot be listed.
    """
    unmarked = [
        blob
        for blobs in _in_threads(
            store, lambda folder: _find_in_folder(store, folder, marks, before), _folders(store)
        )
        for blob in blobs
    ]
    manifests = [blob for blob in unmarked if blob.owner.sharded]
    parts: dict[str, Owner] = {}
    for blob, named in zip(
        manifests, _in_threads(store, lambda blob: parts_of(store, blob.digest), manifests), strict=True
    ):
        parts.update((f"sha256:{part.hex()}", blob.owner) for part in named)
    return [
        blob._replace(owner=parts.get(blob.digest, blob.owner), is_part=blob.digest in parts)
        for blob in unmarked
    ]


def delete_unmarked(store: Store, blobs: Iterable[Blob], before: float) -> list[Blob]:
    """Delete blobs, except those that were put again meanwhile; return the deleted ones.

    It may be killed at any time and repeated. Parts of sharded checkpoints are deleted after all manifests,
    so that a manifest never lacks one of its parts.

    Raises:
        StoreError: the store refused.
    """
    wanted = list(blobs)
    deleted = []
    for group in ([blob for blob in wanted if not blob.is_part], [blob for blob in wanted if blob.is_part]):
        gone = _in_threads(store, lambda blob: store.collect(blob_name(blob.digest), before), group)
        deleted += [blob for blob, is_gone in zip(group, gone, strict=True) if is_gone]
    return deleted


def _folders(store: Store) -> list[str]:
    return [name for name in store.names(_BLOBS) if len(name) == 2]


def _find_in_folder(store: Store, folder: str, marks: Marks, before: float) -> list[Blob]:
    kept = marks.kept_digests(int(folder, 16))
    owners = marks.owners(int(folder, 16))
    unmarked = []
    for name, size, written in store.files(f"{_BLOBS}/{folder}"):
        value = name.rpartition("/")[2]
        if not _DIGEST.fullmatch(value) or not 0 < written < before:
            continue  # Without a time (0) it stays, because it may be young.
        digest = bytes.fromhex(value)
        if digest not in kept:
            unmarked.append(Blob(f"sha256:{value}", size, owners.get(digest, NOBODY)))
    return unmarked


def parts_of(store: Store, digest: str) -> tuple[bytes, ...]:
    """The digests that a blob names if it is the manifest of a sharded checkpoint; else none.

    Only the first bytes of other blobs are read.
    """
    try:
        with store.open_stream(blob_name(digest)) as stream:
            if stream.read(len(SHARDED_CHECKPOINT)) != SHARDED_CHECKPOINT:
                return ()
            content = bytearray()
            while chunk := stream.read(_CHUNK):
                content += chunk
    except NotFound:
        return ()
    return digests_in(bytes(content))


def _in_threads(
    store: Store, action: Callable[[_Item], _Result], items: Iterable[_Item]
) -> Iterator[_Result]:
    """Apply ``action`` to each item and yield the results in order; on an object store in many threads."""
    threads = _REQUESTS if store.folder is None else 1
    with ThreadPoolExecutor(threads, "halving-blobs") as pool:
        yield from pool.map(action, items)
