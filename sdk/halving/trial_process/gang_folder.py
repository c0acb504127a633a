"""The folder in which the ranks of a gang leave something for their agent, and what becomes of those of
killed agents.
"""

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
_NEW_SECONDS = 60.0  # in which a folder that nobody has locked may be about to be


@contextlib.contextmanager
def gang_folder() -> Iterator[Path]:
    """A new folder for the files of one gang on this machine, which is removed at the end.

    It is locked by the agent, and by the ranks that are forked from it, as long as one of them lives. What
    was left by a gang of which none does, because its agent was killed, is removed first.
    """
    _remove_left()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # a living gang's; or another removes it
            found = folder.lstat()
            if (
                found.st_uid != os.geteuid()
                or folder.is_symlink()
                or time.time() - found.st_mtime < _NEW_SECONDS
            ):
                continue
            if (folder / _LOCK).exists():
                with (folder / _LOCK).open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
