"""A log segment as a file: its name, making it, mapping it elsewhere, and whether it is still written."""

import contextlib
import fcntl
import mmap
import os
import re
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halving.journal.format import MAGIC
from halving.journal.trust import make_own, open_file

LOG_SEGMENT_BYTES = 4 << 20
MAIN = "main"
_NAME = re.compile(r"(main|\d+)-(\d{6,})\.journal")
_MADV_POPULATE_WRITE = 23  # Linux; Python's mmap has no name for it
_POPULATE_BYTES = 64 << 10


class LogSegment:
    """One mapped file, or memory without a file where the disk refuses it."""

    def __init__(self, path: Path | None, size: int) -> None:
        self.path = path
        self.size = size
        self.sealed = False
        self._unlock: Callable[[], Any] = lambda: None
        if path is None:
            self.memory = mmap.mmap(-1, size)
        else:
            descriptor, self.memory = _create(path, size)
            self._unlock = weakref.finalize(self, os.close, descriptor)  # the open file is the lock
            self._unlock.atexit = False
        self.memory.write(MAGIC)

    def populate(self) -> None:
        """Allocate the pages now, a few at a time: the first touch of each in ``log()`` would take 10 µs."""
        with contextlib.suppress(OSError, ValueError):
            # Before Linux 5.14, and elsewhere, each page is allocated when it is touched.
            for start in range(0, self.size, _POPULATE_BYTES):
                self.memory.madvise(_MADV_POPULATE_WRITE, start, min(_POPULATE_BYTES, self.size - start))
                time.sleep(0)  # the call holds the interpreter's lock

    def seal(self) -> None:
        """Take no more records.

        One that is being written meanwhile counts: readers go by the content and know of no end.
        """
        self.memory.seek(0, os.SEEK_END)
        self.sealed = True
        self._unlock()


def log_segment_name(appender: str, number: int) -> str:
    return f"{appender}-{number:06d}.journal"


def log_segment_files(folder: Path) -> dict[str, list[tuple[int, Path]]]:
    """The log segments in an attempt's folder: numbers and paths by the names of appenders, in order.

    Raises:
        OSError: there is no such folder, or it cannot be read.
    """
    appenders: dict[str, list[tuple[int, Path]]] = {}
    for name in sorted(os.listdir(folder)):
        if match := _NAME.fullmatch(name):
            appenders.setdefault(match[1], []).append((int(match[2]), folder / name))
    return {appender: sorted(files) for appender, files in appenders.items()}


def map_log_segment(path: Path) -> mmap.mmap:
    """A log segment that another process wrote, mapped read-only.

    Raises:
        FileNotFoundError: it is drained and deleted.
        ValueError: it is empty, or not a regular file.
        OSError: it cannot be read.
    """
    with os.fdopen(open_file(path), "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def is_written(path: Path) -> bool:
    """Whether the process that writes a log segment still lives.

    It holds a lock on the file, which ends with the process.
    """
    try:
        with os.fdopen(open_file(path, os.O_RDWR), "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, ValueError):
        return False
    except OSError:
        return True
    return False


def _create(path: Path, size: int) -> tuple[int, mmap.mmap]:
    """Make a new file of zeros, locked and mapped, with its blocks allocated.

    Writing to a hole on a full disk would kill the process.
    """
    # For a child that still logs after its parent has finished, the attempt's folder is removed.
    make_own(path.parent, path.parents[3])
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.write(descriptor, bytes(size))
        return descriptor, mmap.mmap(descriptor, size)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
