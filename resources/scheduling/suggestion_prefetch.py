"""Suggestions chosen while a worker's trial trains, so that no worker waits for a slow sampler."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from resources.scheduling.scheduler import Scheduler

_MOST_AHEAD = 32
_SUGGESTING_SECONDS = 0.05  # until it is known how long a suggestion takes

_log = logging.getLogger(__name__)


class Prefetch:
    """Chooses the next trials' params in a thread while this worker's trial trains.

    It keeps as many ready as trials are started during one suggestion (Little's law), and one more. A longer
    queue would only mean params that were chosen without the newest results.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._wanted = threading.Event()
        self._closed = False
        self.failure: Exception | None = None
        """Why no params could be chosen the last time; None if they could."""
        self._suggesting = self._training = 0.0  # seconds that the last suggestion and the last attempt took
        self._thread = threading.Thread(target=self._refill, name="halving-suggestions", daemon=True)

    def __enter__(self) -> "Prefetch":
        self.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def close(self) -> None:
        """Choose nothing more. What is being chosen is not waited for."""
        self._closed = True
        self._wanted.set()

    @contextmanager
    def while_training(self) -> Iterator[None]:
        """Refill the queue now, while the attempt in the block runs."""
        began = time.monotonic()
        self.refill()
        yield
        self._training = time.monotonic() - began

    def refill(self) -> None:
        """Refill the queue now, if params are chosen ahead of time at all."""
        if self._scheduler.chooses_ahead:
            self._wanted.set()

    def _refill(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed:
                return
            began = time.monotonic()
            try:
                added = self._scheduler.suggest_ahead(self._length())
            except Exception as error:  # noqa: BLE001
                # a worker chooses itself when it needs a trial, and raises what lasts; a loop is told
                _log.exception("could not choose the next trials' params ahead of time")
                self.failure = error
                continue
            self.failure = None
            if added:
                self._suggesting = (time.monotonic() - began) / added

    def _length(self) -> int:
        if not self._training:
            return 1
        return 1 + math.ceil(self._scheduler.running() * min(1.0, self._suggesting / self._training))


class LoopPrefetch(Prefetch):
    """The same for external loops: as many are kept ready as are given out during one suggestion, and one
    more.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._given: deque[float] = deque(maxlen=_MOST_AHEAD)

    def given_out(self) -> None:
        """A loop has got a trial. How often they ask says how many wait, not how many trials they need."""
        self._given.append(time.monotonic())
        self.refill()

    def _length(self) -> int:
        since = time.monotonic() - max(self._suggesting, _SUGGESTING_SECONDS)
        return 1 + sum(moment > since for moment in list(self._given))
