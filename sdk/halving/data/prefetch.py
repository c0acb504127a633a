"""A background thread that advances an iterator while its results are used.

Such threads are ended before the interpreter is.
"""

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

_Item = TypeVar("_Item")
# How long the interpreter's exit waits: about as long as a call to a store that does not answer.
_END_SECONDS = 30.0


class Prefetched(Iterator[_Item], Generic[_Item]):
    """The items of an iterator, taken ahead by a daemon thread: at most ``depth`` of them.

    The thread ends when this object is closed or dropped, to which it holds no reference. An error of the
    iterator is raised here, after the items before it. A forked child has no such thread; there the owner
    starts another one (:attr:`is_here`).

    Args:
        begin: makes the iterator, in the thread. It gets a function that says whether to give up, which
            whatever waits in there has to ask.
    """

    def __init__(self, begin: "Callable[[Callable[[], bool]], Iterator[_Item]]", depth: int) -> None:
        self._shared: _Shared[_Item] = _Shared(depth)
        weakref.finalize(self, self._shared.close).atexit = False
        self._shared.start(begin)

    @property
    def is_here(self) -> bool:
        """Whether the thread is this process's, and not that of the parent that forked it."""
        return self._shared.is_here

    def __next__(self) -> _Item:
        return self._shared.take()

    def close(self) -> None:
        """End the thread without waiting for it; what was taken ahead is dropped."""
        self._shared.close()


class Background(Protocol):
    """Threads that can be ended."""

    def close(self) -> None:
        """Tell the threads to end."""

    def join(self, seconds: float) -> None:
        """Wait for their end, for at most so many seconds."""


def end_before_exit(background: Background) -> None:
    """End these threads at the interpreter's exit, before Arrow closes S3.

    A thread that reads S3 after that would crash the process.
    """
    _LIVE.add(background)
    end_first()


def end_first() -> None:
    """Make the end of all such threads the first thing that happens at the interpreter's exit.

    Python calls exit handlers in reverse order of their registration. So the handler is registered again,
    after those of all modules that were imported since.
    """
    atexit.unregister(_end_all)
    atexit.register(_end_all)


_LIVE: "weakref.WeakSet[Background]" = weakref.WeakSet()


def _end_all() -> None:
    """End all threads that are left, and wait for them."""
    live = list(_LIVE)
    until = time.monotonic() + _END_SECONDS
    for background in live:
        background.close()
    for background in live:
        background.join(max(0.0, until - time.monotonic()))


def _forget_all() -> None:
    """Forget the parent's threads in a forked child, which has none of them."""
    _LIVE.clear()


os.register_at_fork(after_in_child=_forget_all)


class _Shared(Generic[_Item]):
    """What the thread and its user share."""

    def __init__(self, depth: int) -> None:
        self._items: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._depth = depth
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether the thread is this process's."""
        return os.getpid() == self._process

    def start(self, begin: "Callable[[Callable[[], bool]], Iterator[_Item]]") -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, args=(begin,), name="halving-loader", daemon=True)
        end_before_exit(self)
        self._thread.start()

    def take(self) -> _Item:
        """Wait for the next item; then raise the iterator's error, or StopIteration."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self._closed)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            error = self._error
            self._error = None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Tell the thread to end, and drop what was taken ahead."""
        if not self.is_here:  # the thread may have held the lock when this process was forked
            return
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, for at most so many seconds."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self, begin: "Callable[[Callable[[], bool]], Iterator[_Item]]") -> None:
        """Advance the iterator until it ends or is closed: what the thread does."""
        error: BaseException | None = None
        try:
            for item in begin(lambda: self._closed):
                self._put(item)
                del item  # the thread holds nothing while it goes on
                if self._closed:
                    break
        except BaseException as raised:  # noqa: BLE001  # the user's thread raises it
            error = raised
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()

    def _put(self, item: _Item) -> None:
        """Wait for room, and offer an item."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._depth)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
