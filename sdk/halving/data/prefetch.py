"""A background thread that goes on with an iterator while its results are used."""

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_END_SECONDS = 5.0  # for which the interpreter's exit waits for the threads


class Prefetched(Iterator[_Item], Generic[_Item]):
    """What an iterator yields, taken from it ahead by a daemon thread: at most ``depth`` items.

    The thread ends when this is closed or dropped; it holds no reference to it. An error of the iterator is raised here, behind the items
    before it. In a forked child, which has no such thread, the owner starts another (:attr:`is_here`).

    Args:
        begin: makes the iterator, in the thread. It is given a function that says whether to give up; what waits asks it.
    """

    def __init__(self, begin: "Callable[[Callable[[], bool]], Iterator[_Item]]", depth: int) -> None:
        self._shared: _Shared[_Item] = _Shared(depth)
        self._process = os.getpid()
        self._thread = threading.Thread(target=_run, args=(begin, self._shared), name="halving-loader", daemon=True)
        self._finalizer = weakref.finalize(self, self._shared.close)
        self._finalizer.atexit = False
        _LIVE.add(self)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the process whose thread it is."""
        return os.getpid() == self._process

    def __next__(self) -> _Item:
        return self._shared.take()

    def close(self, seconds: float = 0.0) -> None:
        """End the thread, and wait so long for it; what was taken ahead is dropped."""
        if self.is_here:
            self._shared.close()
            if seconds and self._thread is not threading.current_thread():
                self._thread.join(seconds)


class _Shared(Generic[_Item]):
    """What the thread and the user have in common."""

    def __init__(self, depth: int) -> None:
        self._items: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._depth = depth
        self._error: BaseException | None = None
        self._ended = False
        self.closed = False

    def put(self, item: _Item) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.closed or len(self._items) < self._depth)
            if not self.closed:
                self._items.append(item)
                self._changed.notify_all()

    def end(self, error: BaseException | None) -> None:
        with self._changed:
            self._error, self._ended = error, True
            self._changed.notify_all()

    def take(self) -> _Item:
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended or self.closed)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._items.clear()
            self._changed.notify_all()


_LIVE: "weakref.WeakSet[Prefetched[Any]]" = weakref.WeakSet()


def _run(begin: "Callable[[Callable[[], bool]], Iterator[_Item]]", shared: "_Shared[_Item]") -> None:
    error: BaseException | None = None
    try:
        for item in begin(lambda: shared.closed):
            shared.put(item)
            del item  # the thread holds nothing while it goes on
            if shared.closed:
                break
    except BaseException as raised:  # noqa: BLE001  # the user's thread raises it
        error = raised
    shared.end(error)


def _end_all() -> None:
    """Before the interpreter takes itself apart under threads that are in the middle of Arrow's code."""
    live = list(_LIVE)
    for each in live:
        each.close()
    for each in live:
        each.close(_END_SECONDS)


atexit.register(_end_all)
