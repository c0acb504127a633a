"""Copying shards from one store to another with a check of their bytes, and replacing damaged ones."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

from halving.data.prefetch import end_first
from halving.data.shards import Shard
from halving.errors import HalvingError, NotFound, StoreError
from halving.store.faults import store_faults
from halving.store.retry import warn
from halving.store.store import Store

REMOTE = "HALVING_DVC_REMOTE"
"""The variable that names the store to which a snapshot's shards are copied as they are made."""

Fetching = Callable[[Store, Callable[[], None]], None]
"""Runs a fetch from a store: calls the function, and calls it again while that store is unavailable."""


def copy_shard(source: Store, target: Store, shard: Shard) -> None:
    """Copy a shard durably, in the place of what the other store has under its name.

    If a process was killed while it copied, its remains are cleared by a copy into the same folder a day
    later.

    Raises:
        NotFound: the source lacks it.
        StoreError: it is damaged there, or a store refuses; then the other store is as it was.
    """
    with store_faults(f"cannot write {target.address(shard.name)}"):
        target.clear_abandoned(shard.name.rpartition("/")[0])
    target.replace(shard.name, _read_checked(source, shard))


def fetch_again(store: Store, shard: Shard, fault: NotFound | StoreError, fetching: Fetching) -> None:
    """Bring a shard back from the remote, and warn that this was done.

    Args:
        fault: what is wrong with the shard. It is raised where there is no remote, and with the reason where
            the remote does not help.
    """
    remote = os.environ.get(REMOTE)
    if not remote:
        raise fault
    try:
        source = Store(remote)
        fetching(source, partial(_connect, source))
        fetching(source, lambda: copy_shard(source, store, shard))
    except HalvingError as error:
        raise type(fault)(f"{fault}; nor could it be fetched from {REMOTE}: {error}") from error
    warn(f"{fault}; it was fetched again from {source.root}")


def _connect(store: Store) -> None:
    """Open the store's filesystem, before it is read in a thread."""
    _ = store.filesystem
    end_first()  # a loader's thread may be the first of this process to read S3


def _read_checked(source: Store, shard: Shard) -> Iterator[bytes]:
    """Read a shard's bytes once; the end is only reached if they match its name."""
    digest = sha256()
    for part in source.parts(shard.name):
        digest.update(part)
        yield part
    if digest.hexdigest() != shard.sha256:
        raise StoreError(
            f"the shard {shard.name} of {source.root} is damaged: its content hashes to {digest.hexdigest()}"
        )
