"""The thread that tells the store about changes of models.

While the store is away nobody who decides has to wait for it.
"""

import logging
import threading

from halving import Store
from resources.catalog import Catalog
from resources.registry.publishing import publish

WAIT_SECONDS = 1.0
"""That an answer waits for the store: who then asks it finds the new champion, if it is not away."""

# Seconds to wait after a failure.
_FIRST_PAUSE = 1.0
_LAST_PAUSE = 60.0
_log = logging.getLogger(__name__)


class Publisher:
    """Publishes changes of models in a thread of its own.

    What the store does not take is logged and tried again, less and less often.
    """

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._changed = threading.Condition()
        # Publish once at the beginning.
        self._requested = 1
        self._done = 0
        self._ended = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="halving-publisher", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the thread; the next server, or a command, publishes what is left."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def publish(self, seconds: float = WAIT_SECONDS) -> None:
        """Publish committed changes, and wait for at most ``seconds`` until that is done."""
        with self._changed:
            self._requested += 1
            request = self._requested
            self._changed.notify_all()
            if self._thread is not None:
                self._changed.wait_for(lambda: self._done >= request or self._ended, seconds)

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                if pause:
                    self._changed.wait_for(lambda: self._ended, pause)
                else:
                    self._changed.wait_for(lambda: self._ended or self._requested > self._done)
                if self._ended:
                    return
                requested = self._requested
            problems = self._publish()
            for problem in problems:
                _log.warning("%s", problem)
            pause = 0.0
            if problems:
                pause = min(2 * pause or _FIRST_PAUSE, _LAST_PAUSE)
            if not problems:
                with self._changed:
                    self._done = requested
                    self._changed.notify_all()

    def _publish(self) -> list[str]:
        try:
            return publish(self._store, self._catalog)
        except Exception as error:  # noqa: BLE001  # whatever it is, the thread is there for the next change
            return [f"models were not published: {type(error).__name__}: {error}"]
