"""The thread that keeps the index of runs up to date while a server runs."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from resources.analysis.run_index.lease import hold_lease, new_holder, release_lease
from resources.analysis.run_index.refresh import Refresher
from server.state import State

SHORTEST = 2.0
SHARE = 20
FIRST_SHARE = 3
"""It looks every two seconds where that takes at most one part in so many of the time, else as seldom as it
must: of a core's time where the store is a folder, so that a machine that trains is not taken for a slow
look; and of the store's, where it is elsewhere.

While runs are new to the index (a server's first start on an old store) it may take the greater part: they
cannot be seen before.
"""
_MAX_LOOK_SECONDS = 2.0  # then another server's turn, or a stop, is noticed
# Seconds to wait after a failure.
_FIRST_PAUSE = 5.0
_LAST_PAUSE = 60.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def keep_index_fresh(state: State) -> AsyncIterator[None]:
    """Keep the index up to date for the length of the ``with`` block; one of the server's services."""
    refresher = IndexRefresher(state)
    refresher.start()
    try:
        yield
    finally:
        await asyncio.to_thread(refresher.stop)


class IndexRefresher:
    """Refreshes the index in a thread of its own; only one of several servers on a catalog does at a time.

    Whatever fails is logged and tried again, less and less often: the index is then as old as it says.
    """

    def __init__(self, state: State) -> None:
        self._catalog = state.catalog
        self._refresher = Refresher(state.store, state.catalog)
        self._clock = time.thread_time
        if state.store.folder is None:
            self._clock = time.monotonic
        self._name = new_holder()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="halving-index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the thread. A look that takes longer ends with the process, which does no harm."""
        self._ended.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        failures = 0
        pause = 0.0
        while not self._ended.wait(pause):
            began = self._clock()
            try:
                share = SHARE
                if hold_lease(self._catalog, self._name) and self._refresher.refresh(_MAX_LOOK_SECONDS).left:
                    share = FIRST_SHARE
                failures = 0
                pause = max(SHORTEST, (share - 1) * (self._clock() - began))
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the server goes on answering.
                pause = min(_FIRST_PAUSE * 2**failures, _LAST_PAUSE)
                failures = min(failures + 1, 10)
                _log.warning(
                    "the index of runs was not refreshed, next try in %.0f s: %s: %s",
                    pause,
                    type(error).__name__,
                    error,
                )
        with contextlib.suppress(Exception):  # the catalog is away: the lease ends by itself
            release_lease(self._catalog, self._name)
