"""A lock that threads get in the order in which they asked for it."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FairLock:
    """Held by one thread at a time; whoever waits longest is next.

    Python's own locks go to whichever thread is first to look, so that under load one of many that wait may
    wait for seconds. A thread that holds it must not ask for it again.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # one for each thread, opened when it is its turn; the first is the holder's
        self._queue: deque[threading.Lock] = deque()

    @contextmanager
    def held(self, seconds: float = -1) -> Iterator[bool]:
        """Hold it for the length of the ``with`` block: True.

        False where it could not be had within ``seconds``, if any are given.
        """
        turn = threading.Lock()
        turn.acquire()
        try:
            # from before it is in the queue: an interruption, which may come anywhere, must not leave it
            # there
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
