"""The pages of links, each built at most once in a few seconds, in bounded memory."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from halving.errors import HalvingError
from server.fair_queue import FairQueue
from server.links.pages import SealedPage
from server.store_threads import StoreThreads

FRESH_SECONDS = 5.0
"""How long a page is shown again before it is built anew."""

MAX_BYTES = 64 << 20
"""Of all pages in memory; the one that was shown the longest time ago goes first."""

_MAX_PAGES = 1_000
_BUILDS = 2
_WAITING = 50
_SECONDS = 15.0
_BUILD_SECONDS = 20.0


class _Built(NamedTuple):
    """A page, or why there is none: what cannot be built is not tried for each request, either."""

    page: SealedPage | HalvingError
    at: float

    @property
    def size(self) -> int:
        if isinstance(self.page, HalvingError):
            return 0
        return len(self.page.html)


class PageCache:
    """Pages by the ids of their links. To be used from the event loop.

    Two are built at a time, one of each link, in threads of their own; other requests wait for their turn, or
    are told to come again.
    """

    def __init__(self, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._pages: OrderedDict[str, _Built] = OrderedDict()
        self._max_bytes = max_bytes
        self._size = 0
        self._clock = clock
        self._queue = FairQueue(_BUILDS, 1, waiting=_WAITING, seconds=_SECONDS)
        self._threads = StoreThreads(_BUILDS)

    async def page(self, link: str, build: Callable[[], SealedPage]) -> SealedPage:
        """The page of a link, built now if it was not within the last seconds.

        Raises:
            Busy: too many wait for pages.
            HalvingError: it cannot be built.
        """
        if (page := self._fresh(link)) is not None:
            return page
        async with self._queue.turn(link):
            if (page := self._fresh(link)) is not None:  # somebody else had the turn before
                return page
            try:
                page = await self._threads.read(build, seconds=_BUILD_SECONDS)
            except HalvingError as error:
                self._keep(link, error)
                raise
            self._keep(link, page)
            return page

    def forget(self, link: str) -> None:
        """Forget a link's page, because it has ended."""
        built = self._pages.pop(link, None)
        if built is not None:
            self._size -= built.size

    def _fresh(self, link: str) -> SealedPage | None:
        built = self._pages.get(link)
        if built is None or self._clock() - built.at > FRESH_SECONDS:
            return None
        self._pages.move_to_end(link)
        if isinstance(built.page, HalvingError):
            raise built.page.with_traceback(None)
        return built.page

    def _keep(self, link: str, page: SealedPage | HalvingError) -> None:
        self.forget(link)
        built = _Built(page, self._clock())
        if built.size > self._max_bytes:
            return
        self._pages[link] = built
        self._size += built.size
        while self._size > self._max_bytes or len(self._pages) > _MAX_PAGES:
            self.forget(next(iter(self._pages)))
