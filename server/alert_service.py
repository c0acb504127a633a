"""The thread that looks for what people should hear of, and sends it, while a server runs."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from resources.alerts.addresses import parse_networks
from resources.alerts.delivery import Deliverer
from resources.watch import LOOK_SECONDS, Watch
from server.state import State

# Seconds to wait after a failure.
_FIRST_PAUSE = 5.0
_LAST_PAUSE = 60.0
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
    """Looks and sends in a thread of its own.

    Several servers on a catalog may all do so: an alert is raised once, and a message is sent by whoever
    claims it first. Whatever fails is logged and tried again, less and less often.
    """

    def __init__(self, state: State) -> None:
        self._watch = Watch(state.catalog, state.store)
        settings = state.settings
        self._deliverer = Deliverer(state.catalog, settings.page_url, parse_networks(settings.alert_networks))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="halving-alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the thread. A message that is being sent then is sent again by the next server."""
        self._ended.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        failures = 0
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                self._watch.look()
                tries = self._deliverer.deliver()
                failures = 0
                pause = LOOK_SECONDS
                if tries:
                    pause = 0.0
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the server goes on answering.
                pause = min(_FIRST_PAUSE * 2**failures, _LAST_PAUSE)
                failures = min(failures + 1, 10)
                _log.warning(
                    "no alerts were looked for, next try in %.0f s: %s: %s",
                    pause,
                    type(error).__name__,
                    error,
                )
