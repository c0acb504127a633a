"""Verify that a snapshot's shards are as their names say, and copy them to and from another store."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from halving import Dataset, Store
from halving.data.shard_copies import REMOTE, copy_shard
from halving.data.shards import Shard, shards_of
from halving.errors import NotFound
from halving.store.store import digest_of


@dataclass(frozen=True)
class Fault:
    """A shard that is ``missing``, or ``damaged``: its bytes are not those of its name."""

    split: str
    shard: Shard
    problem: str


def push_shards(store: Store, manifest: dict[str, Any]) -> None:
    """Copy what the named remote, if there is one, lacks of a snapshot's shards.

    Without a named remote nothing is copied: a second copy on the same disk would protect nothing.

    Raises:
        StoreError: the remote cannot be written.
    """
    remote = os.environ.get(REMOTE)
    if not remote:
        return
    remote_store = Store(remote)
    sizes = {name: size for name, size, _ in remote_store.files("shards/sha256")}
    for split in manifest["shards"]:
        for shard in shards_of(manifest, split):
            hashes = shard.row_hashes_name(manifest["hash_rules"])
            if sizes.get(shard.name) != shard.bytes or hashes not in sizes:
                remote_store.replace(hashes, store.parts(hashes))
                copy_shard(store, remote_store, shard)


def verify(dataset: Dataset) -> Iterator[Fault | None]:
    """Read and hash each shard of a snapshot; yield its fault, or None if it is intact."""
    for split in sorted(dataset.manifest["shards"]):
        for shard in shards_of(dataset.manifest, split):
            problem = _find_problem(dataset.store, shard)
            if problem is None:
                yield None
            else:
                yield Fault(split, shard, problem)


def fetch(dataset: Dataset, source: Store) -> Iterator[Fault | None]:
    """Restore from another store what :func:`verify` finds missing or damaged; yield each restored fault.

    Raises:
        NotFound: the other store lacks it, too.
        StoreError: its copy is damaged, too, or a store refuses.
    """
    for fault in verify(dataset):
        if fault is not None:
            copy_shard(source, dataset.store, fault.shard)
        yield fault
    for split in dataset.manifest["shards"]:
        for shard in shards_of(dataset.manifest, split):
            if not dataset.store.exists(name := shard.row_hashes_name(dataset.manifest["hash_rules"])):
                dataset.store.replace(name, source.parts(name))


def _find_problem(store: Store, shard: Shard) -> str | None:
    """Read a shard and compare its bytes with its name; None if it is intact."""
    try:
        if store.folder is not None:
            actual = digest_of(store.folder / shard.name)
        else:
            digest = sha256()
            for part in store.parts(shard.name):
                digest.update(part)
            actual = f"sha256:{digest.hexdigest()}"
    except (NotFound, FileNotFoundError):
        return "missing"
    if actual != f"sha256:{shard.sha256}":
        return "damaged"
    return None
