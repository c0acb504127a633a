"""Folders for what is being made. What a killed process left behind, the next one deletes."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from halving.errors import StoreError

_PREFIX = ".making-"


@contextlib.contextmanager
def temporary_folder(base: Path) -> Iterator[Path]:
    """A new folder in a folder that is made where it is missing; deleted at the end.

    A folder that no living process holds is deleted first: each is locked as long as its process lives.

    Raises:
        OSError: the disk refuses it.
    """
    base.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(base)
    folder, lock = _make_locked(base)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def folder_of_user(name: str) -> Path:
    """A folder of this user's on the temporary disk, ``halving-NAME-1000``, that nobody else may write to.

    Raises:
        StoreError: there is one that another user owns.
    """
    folder = Path(tempfile.gettempdir()) / f"halving-{name}-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise StoreError(f"the folder {folder} is another user's; delete it, or give another place for temporary files by TMPDIR")
    return folder


def _make_locked(base: Path) -> tuple[Path, IO[str]]:
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
