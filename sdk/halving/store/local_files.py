"""Files on this machine: temporary ones, and publishing others whole and durably."""

import errno
import os
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

_CHUNK = 1 << 20


Content = bytes | memoryview | Path
"""What can be stored: bytes, memory of others (which is not copied), or a file."""


def chunks_of(content: Content) -> Iterator[bytes | memoryview]:
    """Iterate over bytes, or a file's content, once. Memory is a view of bytes, in one dimension."""
    if isinstance(content, bytes):
        yield content
        return
    if isinstance(content, memoryview):
        for start in range(0, len(content), _CHUNK):
            yield content[start : start + _CHUNK]
        return
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def temporary_file() -> IO[bytes]:
    """A file that is deleted when it is closed.

    On Linux it has no name, so that a killed process does not leave it on the disk.

    Raises:
        OSError: the disk refuses it.
    """
    if sys.platform == "linux":
        return tempfile.TemporaryFile()
    return tempfile.NamedTemporaryFile(prefix="halving-")


def path_of(file: IO[bytes]) -> Path:
    """The path by which this process can open a :func:`temporary_file` once more, from its beginning."""
    if sys.platform == "linux":
        return Path(f"/proc/self/fd/{file.fileno()}")
    return Path(file.name)


def write_temporary(target: Path, chunks: Iterable[bytes | memoryview]) -> Path:
    """Write a hidden file beside ``target``, synced to the disk; a rename or a link then publishes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with temporary.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def link_new(target: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Publish a file atomically; FileExistsError if the name is taken, because a link never overwrites."""
    if target.exists():
        raise FileExistsError(str(target))
    temporary = write_temporary(target, chunks)
    try:
        os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def move_new(target: Path, file: Path) -> bool:
    """Publish a complete file under another name on the same disk, durably and without a copy.

    It returns False where the file is on another disk, or the name is taken.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as written:
        os.fsync(written.fileno())
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EEXIST):
            return False
        raise
    sync_folder(target.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, because syncing a file does not sync its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
