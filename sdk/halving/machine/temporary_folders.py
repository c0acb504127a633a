"""Folders for what is being made. What a killed process left behind, the next one deletes."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from halving.errors import StoreError
from halving.machine.locks import lockable

_PREFIX = ".halving-making-"
_LOCK = "lock"


@contextlib.contextmanager
def temporary_folder(base: Path) -> Iterator[Path]:
    """Make a new folder in ``base``, which is created where it is missing; delete it at the end.

    Folders that killed processes have left in ``base`` are deleted first: each folder is locked as long as
    its process lives. On a disk without locks they stay.

    Raises:
        OSError: the disk refuses it.
    """
    base.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(base)
    with contextlib.ExitStack() as locks:
        folder = _make_locked(base, locks)
        try:
            yield folder
        finally:
            _delete(folder)


@contextlib.contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Make a :func:`temporary_folder` in the user's folder of this name on the temporary disk.

    Raises:
        OSError: the disk refuses it.
        StoreError: as :func:`folder_of_user`.
    """
    with temporary_folder(folder_of_user(name)) as folder:
        yield folder


def folder_of_user(name: str) -> Path:
    """Make this user's folder on the temporary disk, ``halving-NAME-1000``, or check the one that exists.

    Raises:
        StoreError: the path is not a folder, or it belongs to another user, or others may write to it.
    """
    folder = Path(tempfile.gettempdir()) / f"halving-{name}-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise StoreError(
            f"{folder} is not accepted for temporary files: it has to be a folder of this user's that "
            "nobody else may write to; delete it, "
            "or give another place by TMPDIR"
        )
    return folder


def _make_locked(base: Path, locks: contextlib.ExitStack) -> Path:
    """Make a folder with a lock, which ends with this process and is not inherited by forked children."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        # Before it is locked, another process may take it for abandoned and delete it.
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            lock = opened.enter_context(lockable(folder / _LOCK))
            with contextlib.suppress(OSError):  # of a disk that has no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / _LOCK).exists():
                locks.push(opened.pop_all())
                return folder


def _delete_abandoned(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is in use, or another process has just deleted it
            if not (folder / _LOCK).exists():
                folder.rmdir()  # its process was killed before it was locked, or at the end of its deletion
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _delete(folder)


def _delete(folder: Path) -> None:
    """Delete a folder, its lock last, so that the next process tries again where this one is killed."""
    with contextlib.suppress(FileNotFoundError):  # another program has deleted it already
        for path in _content(folder):
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    _delete_tree(path)
                else:
                    path.unlink()
        if not _content(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _content(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != _LOCK]


def _delete_tree(top: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(top)
        return
    _open_up(top)
    for folder, names, _ in os.walk(top):
        for name in names:
            _open_up(Path(folder, name))
    shutil.rmtree(top, ignore_errors=True)


def _open_up(folder: Path) -> None:
    """Allow the deletion of a folder's content: a training may have made the folder read-only."""
    with contextlib.suppress(OSError):  # another user's
        if not folder.is_symlink():
            folder.chmod(0o700)
