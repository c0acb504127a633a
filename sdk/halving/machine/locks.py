"""Locks among the threads and processes of one machine.

The system lets go of what a process held that has died.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_SECONDS = 0.2  # between looks at whether whoever waits still does
_LOCKED: set[int] = set()  # descriptors by which this process keeps others from something


def try_lock(descriptor: int, kind: int) -> bool:
    """Lock a file (``LOCK_SH`` or ``LOCK_EX`` of :mod:`fcntl`) unless others hold it; whether it is locked
    now.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def lockable(path: Path) -> Iterator[int]:
    """The descriptor of a file that is made where it is not there.

    Its lock is let go of at the end, and no forked child has it.

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
    """What the threads of a process do one after the other: at most one of them has a name at a time."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked child, which has none of the threads that had names."""
        self._taken: set[str] = set()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, name: str, check_wanted: Callable[[], None]) -> Iterator[None]:
        """Wait until no other thread has a name, and have it.

        Args:
            check_wanted: called again and again while it waits; it raises where nobody wants it any more.
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
    """In a forked child: with the descriptors it would hold its parent's locks, also after the parent's
    death.
    """
    for descriptor in _LOCKED:
        os.close(descriptor)
    _LOCKED.clear()


os.register_at_fork(after_in_child=_forget_locks)
