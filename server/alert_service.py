"""The threads that look for what people should hear of, and send it, while a server runs."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from resources.alerts.addresses import parse_networks
from resources.alerts.delivery import Deliverer
from resources.alerts.old_alerts import delete_old_alerts
from resources.watch import LOOK_SECONDS, Watch
from server.state import State

# Seconds to wait after a failure.
_FIRST_PAUSE = 5.0
_LAST_PAUSE = 60.0
_SENDERS = 2
_DELETE_SECONDS = 3_600.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def send_alerts(state: State) -> AsyncIterator[None]:
    """Look and send for the length of the ``with`` block; one of the server's services."""
    service = AlertService(state)
    service.start()
    try:
        yield
    finally:
        await asyncio.to_thread(service.stop)


class AlertService:
    """Looks and sends in threads of its own, so that a receiver that is slow delays no look.

    Several servers on a catalog may all do so: an alert is raised once, and a message is sent by whoever
    claims it first. Whatever fails is logged and tried again, less and less often.
    """

    def __init__(self, state: State) -> None:
        self._catalog = state.catalog
        self._watch = Watch(state.catalog, state.store)
        settings = state.settings
        self._deliverer = Deliverer(state.catalog, settings.page_url, parse_networks(settings.alert_networks))
        self._deleted_at = float("-inf")
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(act,), name="halving-alerts", daemon=True)
            for act in (self._look, *[self._send] * _SENDERS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the threads. A message that is being sent then is sent again by the next server."""
        self._ended.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _look(self) -> float:
        """Look once, and return the seconds until the next time."""
        self._watch.look()
        if time.monotonic() - self._deleted_at >= _DELETE_SECONDS:
            delete_old_alerts(self._catalog)
            self._deleted_at = time.monotonic()
        return LOOK_SECONDS

    def _send(self) -> float:
        """Send what is due, and return the seconds until the next time."""
        if self._deliverer.deliver():
            return 0.0
        return LOOK_SECONDS

    def _repeat(self, act: Callable[[], float]) -> None:
        failures = 0
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                pause = act()
                failures = 0
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the server goes on answering.
                pause = min(_FIRST_PAUSE * 2**failures, _LAST_PAUSE)
                failures = min(failures + 1, 10)
                _log.warning(
                    "no alerts were looked for or sent, next try in %.0f s: %s: %s",
                    pause,
                    type(error).__name__,
                    error,
                )
