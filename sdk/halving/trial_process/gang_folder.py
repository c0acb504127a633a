"""The folder in which the ranks of a gang write files for their agent."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "halving-gang-"
_LOCK = "lock"
_NEW_SECONDS = 60.0  # in which a new folder may not be locked yet


@contextlib.contextmanager
def gang_folder() -> Iterator[Path]:
    """A new folder for the files of one gang on this machine, which is removed at the end.

    It is locked as long as the agent lives, or one of the ranks that are forked from it. Folders of gangs
    whose processes were all killed are removed first.
    """
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # The gang lives, or another process removes the folder.
            status = folder.lstat()
            is_new = time.time() - status.st_mtime < _NEW_SECONDS
            if is_new or status.st_uid != os.geteuid() or folder.is_symlink():
                continue
            if (folder / _LOCK).exists():
                with (folder / _LOCK).open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
