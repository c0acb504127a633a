"""A folder for what is being made, on the store's own disk where it has one. What a killed process left there, the next one deletes."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from halving import Store
from halving.store.faults import store_faults

_PREFIX = ".making-"


@contextlib.contextmanager
def staging_folder(store: Store) -> Iterator[Path]:
    """A new folder, deleted at the end.

    Raises:
        StoreError: the disk refuses it.
    """
    base = store.folder / "shards" if store.folder is not None else Path(tempfile.gettempdir()) / f"halving-snapshots-{os.getuid()}"
    with store_faults(f"cannot prepare a snapshot in {base}"):
        base.mkdir(parents=True, exist_ok=True)
        _delete_abandoned(base)
        folder, lock = _locked(base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _locked(base: Path) -> tuple[Path, IO[str]]:
    """A new folder and its lock, which the system lets go of when the process dies."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        lock = (folder / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        lock.close()  # before it was locked, another process took it for abandoned


def _delete_abandoned(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), (folder / "lock").open("r+") as lock:  # without a lock yet: another process has just made it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
