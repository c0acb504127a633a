"""Conditional create on an object store: one process at a time may create, replace or delete a name.

Arrow (26) has no conditional PUT (``If-None-Match``; apache/arrow#44281), so the store makes do with marker
files. A process that wants a name writes a hidden marker file beside it and then lists the folder. Listings
are strongly consistent (S3's since 2020, Google's and Azure's too), so of two processes at least the later
one sees the other's marker. A process that sees no other marker acts; one that does deletes its own and tries
again after a random pause. It is the doorway of Lamport's bakery (CACM 1974) without the queue. The marker of
a process that died counts for :data:`STALE_SECONDS`.
"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from halving.store.backoff import backoff

if TYPE_CHECKING:
    from pyarrow import fs

# The longest time from writing a marker to acting. A request ends within half a minute (halving.store.s3).
HOLD_SECONDS = 20.0
STALE_SECONDS = 120.0  # By the store's clock; an older marker belongs to a dead process.
_GIVE_UP_SECONDS = 2 * STALE_SECONDS
_PROCESS = secrets.token_hex(6)
_PREFIX = ".claim-"


def create_once(
    filesystem: "fs.FileSystem", path: str, exists: Callable[[], bool], write: Callable[[], None]
) -> None:
    """Call ``write`` unless ``exists()``, while no other process does so for ``path``.

    ``write`` may also replace or delete what is there; ``exists`` then says that it must not: see
    ``Store.collect``.

    Raises:
        FileExistsError: ``exists()`` is true.
        OSError: the store's; or other processes have held their markers for minutes and none has created the
            file.
    """
    folder, _, name = path.rpartition("/")
    # Named by the thread: one that tries again, not knowing whether its first write arrived, is not blocked
    # by its own marker.
    own = f"{_PREFIX}{name}-{_PROCESS}.{os.getpid()}.{threading.get_ident()}"
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    pauses = backoff(0.05, 2.0)
    while time.monotonic() < deadline:
        if exists():
            raise FileExistsError(path)
        if _is_alone(filesystem, folder, own, name) and not exists():
            write()  # when it raises, the marker stays: the store may still be about to take what was sent
            _withdraw(filesystem, f"{folder}/{own}")
            return
        _withdraw(filesystem, f"{folder}/{own}")
        time.sleep(next(pauses))
    raise OSError(
        f"other processes have been about to write {path} for {_GIVE_UP_SECONDS:.0f} s, and none has; try "
        "again"
    )


def _is_alone(filesystem: "fs.FileSystem", folder: str, own: str, name: str) -> bool:
    """Write this process's marker; return whether there is no other."""
    from pyarrow import fs

    began = time.monotonic()
    with filesystem.open_output_stream(f"{folder}/{own}") as stream:
        stream.write(b"claim")
    markers = {
        info.base_name: info.mtime_ns or 0
        for info in filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        if info.base_name.startswith(f"{_PREFIX}{name}-")
    }
    if own not in markers or time.monotonic() - began > HOLD_SECONDS:
        return False  # too slow: other processes may soon take the marker for a dead one's
    since = markers.pop(own) - STALE_SECONDS * 1e9
    return all(written < since for written in markers.values())


def _withdraw(filesystem: "fs.FileSystem", path: str) -> None:
    """Delete this process's marker."""
    with contextlib.suppress(OSError):  # then it goes stale
        filesystem.delete_file(path)
