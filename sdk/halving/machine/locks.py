"""Locks among the threads and processes of one machine.

The system lets go of what a process held that has died.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_SECONDS = 0.2  # between two calls of check_wanted
_LOCKED: set[int] = set()  # the descriptors of the files that this process may have locked


def try_lock(descriptor: int, kind: int) -> bool:
    """Lock a file unless others hold it; return whether it is locked now.

    Args:
        descriptor: the open file.
        kind: ``LOCK_SH`` or ``LOCK_EX`` of :mod:`fcntl`.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def lockable(path: Path) -> Iterator[int]:
    """Open a file to be locked, which is created where it is missing; give its descriptor.

    Its lock is released at the end, and no forked child inherits it.

    Raises:
        OSError: the disk refuses it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _LOCKED.add(descriptor)
    try:
        yield descriptor
    finally:
        _LOCKED.discard(descriptor)
        with contextlib.suppress(OSError):  # of a disk that has no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


class Turns:
    """Turns of the threads of a process: a name belongs to at most one of them at a time."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Free all names, as is right in a forked child, which has no other threads."""
        self._taken: set[str] = set()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, name: str, check_wanted: Callable[[], None]) -> Iterator[None]:
        """Wait until no other thread has a name, and take it for the block.

        Args:
            check_wanted: called again and again while this waits; it raises an error to end the waiting.
        """
        with self._changed:
            while name in self._taken:
                check_wanted()
                self._changed.wait(_LOOK_SECONDS)
            self._taken.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._taken.discard(name)
                self._changed.notify_all()


def _forget_locks() -> None:
    """Close the inherited descriptors in a forked child; it would keep its parent's locks."""
    for descriptor in _LOCKED:
        os.close(descriptor)
    _LOCKED.clear()


os.register_at_fork(after_in_child=_forget_locks)
