"""Publishing files in a folder: whole or not at all, and durable once published."""

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

_CHUNK = 1 << 20


def chunks_of(content: bytes | Path) -> Iterator[bytes]:
    """Bytes, or a file's content, to go through once."""
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def write_temporary(target: Path, chunks: Iterable[bytes]) -> Path:
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


def link_new(target: Path, chunks: Iterable[bytes]) -> None:
    """Publish atomically, and fail with FileExistsError if the name is taken: a hard link never overwrites."""
    if target.exists():
        raise FileExistsError(str(target))
    temporary = write_temporary(target, chunks)
    try:
        os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: syncing a file does not sync its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
