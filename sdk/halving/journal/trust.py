"""What a journal may contain: directories and files of this user alone, and names that stay inside them.

A journal may lie where other users can write, such as the folder for temporary files, and recovery publishes
and deletes what a journal names. So another user must be able neither to plant a journal nor to change one.
"""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

_MEDIA_NAME = re.compile(r"media-(?:main|\d+)-\d{6,}[^/\0]*")


class UntrustedDirectory(PermissionError):
    """Another user may have written what is in a directory."""


def make_own(folder: Path, base: Path) -> None:
    """Create what is missing of ``folder`` below the existing ``base``, for this user alone.

    Raises:
        UntrustedDirectory: a part of it exists and others can change it.
        OSError: the disk refuses.
    """
    for part in _parts(folder, base):
        try:
            part.mkdir(mode=0o700)
        except FileExistsError:
            _check(part)


def check_own(folder: Path, base: Path) -> None:
    """Check that every part of ``folder`` below ``base`` is a directory that only this user can change.

    Raises:
        UntrustedDirectory: one of them is not.
        OSError: it cannot be looked at, or does not exist.
    """
    for part in _parts(folder, base):
        _check(part)


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor; symbolic links and pipes are refused.

    Raises:
        ValueError: it is something else.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path} is a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is not a regular file")
    return descriptor


def read_file(path: Path) -> bytes:
    """The content of a regular file; raises as :func:`open_file` does."""
    with os.fdopen(open_file(path), "rb") as file:
        return file.read()


def media_name(appender: str, number: int, suffix: str) -> str:
    """The name under which an artifact's content waits in the attempt's folder for the store."""
    return f"media-{appender}-{number:06d}{suffix}"


def media_file(folder: Path, name: Any) -> Path:
    """The path of the file that a note names.

    Raises:
        ValueError: :func:`media_name` gives no such name; the file may be anywhere.
    """
    if not isinstance(name, str) or not _MEDIA_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an artifact in a journal")
    return folder / name


def _parts(folder: Path, base: Path) -> list[Path]:
    inside = folder.relative_to(base).parts
    return [base.joinpath(*inside[:count]) for count in range(1, len(inside) + 1)]


def _check(path: Path) -> None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISDIR(status.st_mode):
        problem = "is not a directory"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"can be written to by other users (mode {stat.S_IMODE(status.st_mode):04o})"
    else:
        return
    raise UntrustedDirectory(
        f"{path} {problem}: journals in it may be forged, so it is neither read nor written. If its "
        "content is yours, make it yours alone "
        "(chown -R, chmod -R go-w); else remove it, or name another folder with HALVING_JOURNAL"
    )
