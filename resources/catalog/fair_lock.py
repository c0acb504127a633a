"""A lock that threads get in the order in which they asked for it."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairLock:
    """A lock for one thread at a time; the thread that has waited longest is next.

    Python's own locks go to any of the waiting threads, so that under load one of many may wait for seconds.
    A thread that holds the lock must not take it again.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # A lock for each thread, released when it is the thread's turn; the first is that of the holder.
        self._queue: deque[threading.Lock] = deque()

    @contextmanager
    def hold(self, seconds: float = -1) -> Iterator[bool]:
        """Hold the lock during the ``with`` block.

        Args:
            seconds: how long to wait for the lock; below 0 without a limit.

        Yields:
            Whether the lock is held; False if it was not available within ``seconds``.
        """
        turn = threading.Lock()
        turn.acquire()
        try:
            # The try block begins before the turn is in the queue, because an interruption may come at any
            # point and must not leave it there.
            with self._guard:
                self._queue.append(turn)
                if self._queue[0] is turn:
                    turn.release()
            yield turn.acquire(timeout=seconds)
        finally:
            self._leave(turn)

    def _leave(self, turn: threading.Lock) -> None:
        with self._guard:
            if turn not in self._queue:
                return
            was_first = self._queue[0] is turn
            self._queue.remove(turn)
            if was_first and self._queue:
                self._queue[0].release()
