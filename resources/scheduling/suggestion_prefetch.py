"""Suggestions chosen while a worker's trial trains, so that no worker waits for a slow sampler."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from resources.scheduling.scheduler import Scheduler

_MAX_AHEAD = 32
_SUGGESTING_SECONDS = 0.05  # assumed until the first suggestion has been timed

_log = logging.getLogger(__name__)


class Prefetch:
    """Chooses the next trials' params in a thread while this worker's trial trains.

    It keeps as many ready as trials are started during one suggestion (Little's law), plus one. A longer
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
        """Start the thread; call it once."""
        self._thread.start()

    def close(self) -> None:
        """Stop, without waiting for params that are being chosen."""
        self._closed = True
        self._wanted.set()

    @contextmanager
    def while_training(self) -> Iterator[None]:
        """Refill the queue while the attempt in the block runs."""
        began = time.monotonic()
        self.refill()
        yield
        self._training = time.monotonic() - began

    def refill(self) -> None:
        """Refill the queue in the thread, if params are chosen ahead of time at all."""
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
                # A worker that needs a trial chooses params itself, and then raises an error that lasts. An
                # external loop is told about the failure.
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
    """Chooses params for external loops: as many as are handed out during one suggestion, plus one."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._handed_out_at: deque[float] = deque(maxlen=_MAX_AHEAD)

    def note_handed_out(self) -> None:
        """Record that a loop has got a trial.

        The asks themselves do not count: they say how many loops wait, not how many trials they need.
        """
        self._handed_out_at.append(time.monotonic())
        self.refill()

    def _length(self) -> int:
        since = time.monotonic() - max(self._suggesting, _SUGGESTING_SECONDS)
        return 1 + sum(handed_out_at > since for handed_out_at in list(self._handed_out_at))
