"""Daily retention, started by a server.

On a disk the server may be the only process on a day when nothing is trained.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from halving import Store
from halving.maintenance.daily import begin_daily, begun_line
from server.state import State

LOOK_SECONDS = 600.0
_log = logging.getLogger(__name__)


@asynccontextmanager
async def begin_retention(state: State) -> AsyncIterator[None]:
    """Check every ten minutes whether retention is due; one of the server's services."""
    looks = asyncio.create_task(_look(state.store))
    try:
        yield
    finally:
        looks.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looks


async def _look(store: Store) -> None:
    while True:
        if await asyncio.to_thread(begin_daily, store) is not None:
            _log.warning("%s", begun_line(store))
        await asyncio.sleep(LOOK_SECONDS)
