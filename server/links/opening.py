"""Opening view-only links: ``GET /shared/SECRET``, which answers with one page that stands alone.

It answers everything at and below its path by itself, before the guard, the page's files and the API see the
request, and reads neither cookie, header nor query. An unknown secret, one that has ended, and an address
that can be none have the same answer, and count against who sent them as wrong tokens do.
"""

import asyncio
import logging
import re
import time
from collections import OrderedDict
from functools import partial

import anyio
import anyio.to_thread
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from halving.errors import HalvingError, NotFound
from resources.links.shared_links import SharedLink, find_link, note_use
from server.access.authentication import Authentication
from server.errors import RETRY_SECONDS, answer_of
from server.fair_queue import FairQueue
from server.links.page_cache import PageCache
from server.links.pages import show
from server.state import State

ROOT = "/shared"
MAX_OPENS = 120
"""How often one link is opened within a minute; further ones are told to wait."""

_LOOKUPS = 2
_LOOKUPS_WAITING = 50
_LOOKUP_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.5  # A link that was revoked while its page was built shows nothing.
_MAX_NOTING = 20
_MAX_COUNTED = 10_000
_ADDRESS = re.compile(r"/shared/([A-Za-z0-9_-]{1,100})")
_SEALED = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _SEALED,
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "X-Frame-Options": "DENY",
}
"""Of every answer; a page has a policy of its own in place of the first."""

_WORDS = {
    404: (
        "This link shows nothing",
        "It is incomplete, has ended or was revoked, or what it showed is gone. Ask its sender for another.",
    ),
    405: ("This link can only be opened", "Its page takes no other request than GET."),
    429: ("Too many requests", "This was asked for too often within a minute. Try again in a little while."),
    500: ("This page could not be made", "The server made an error; its log has more."),
    503: (
        "This page is not there now",
        "Too much is asked of the server, or what it needs is away. Try again soon.",
    ),
}
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
    'content="width=device-width"><title>{title}</title><style>:root{{color-scheme:light dark}}body{{font:'
    "16px/1.5 system-ui,sans-serif;max-width:34em;margin:15vh auto;padding:0 20px}}</style><h1>{title}</h1>"
    "<p>{text}</p></html>"
)
_FAILURES = (HalvingError, DBAPIError, NoConnectionLeft, OSError)
"""Whose words are not for guests."""

_log = logging.getLogger(__name__)


class SharedLinks:
    """ASGI middleware that answers requests at and below ``/shared``, and leaves all others alone."""

    def __init__(self, app: ASGIApp, state: State, authentication: Authentication) -> None:
        self._app = app
        self._state = state
        self._authentication = authentication
        self._pages = PageCache()
        self._opens = _Opens()
        self._lookups = FairQueue(_LOOKUPS, _LOOKUPS, waiting=_LOOKUPS_WAITING, seconds=_LOOKUP_SECONDS)
        self._threads = anyio.CapacityLimiter(_LOOKUPS)
        self._noters = anyio.CapacityLimiter(1)
        self._noting: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not f"{scope['path']}/".startswith(f"{ROOT}/"):
            await self._app(scope, receive, send)
            return
        try:
            response = await self._answer(scope)
        except _FAILURES as error:
            response = _failure(error)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        if scope["method"] != "GET":
            return _refusal(405, {"Allow": "GET"})
        client, _ = scope.get("client") or ("", 0)
        match = _ADDRESS.fullmatch(scope["path"])
        link = None
        if match is not None:
            link = await self._find(client, match[1])
        if match is None or link is None:
            wait = await self._authentication.delay_refusal(client)
            if wait is not None:
                return _refusal(429, {"Retry-After": str(wait)})
            return _refusal(404)
        wait = self._opens.count(link.id)
        if wait is not None:
            return _refusal(429, {"Retry-After": str(wait)})
        found_at = time.monotonic()
        try:
            page = await self._pages.page(link.id, partial(show, self._state, link))
        except NotFound:  # It was deleted: the link still holds, so nobody is made to wait.
            return _refusal(404)
        if time.monotonic() - found_at > _LOOK_AGAIN_SECONDS and await self._find(client, match[1]) is None:
            self._pages.forget(link.id)
            return _refusal(404)
        self._note_use(link)
        headers = {**HEADERS, "Content-Security-Policy": page.policy}
        return Response(page.html, media_type="text/html; charset=utf-8", headers=headers)

    async def _find(self, client: str, secret: str) -> SharedLink | None:
        """Ask the catalog for a link, each time, so that a revoked one ends at once on every server."""
        async with self._lookups.turn(client):
            return await anyio.to_thread.run_sync(self._read, secret, limiter=self._threads)

    def _read(self, secret: str) -> SharedLink | None:
        with self._state.catalog.read() as session:
            return find_link(session, secret)

    def _note_use(self, link: SharedLink) -> None:
        if len(self._noting) >= _MAX_NOTING:  # the catalog takes none now; the next opening is noted as well
            return
        noting = asyncio.create_task(self._note(link))  # who opens a link does not wait for a write
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)

    async def _note(self, link: SharedLink) -> None:
        try:
            await anyio.to_thread.run_sync(note_use, self._state.catalog, link, limiter=self._noters)
        except (DBAPIError, NoConnectionLeft) as error:
            _log.info("that a link was opened could not be noted: %s", type(error).__name__)


class _Opens:
    """Counts how often each link is opened within a minute."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def count(self, link: str) -> int | None:
        """Count an opening; returns the seconds to wait for if there were too many."""
        minute, second = divmod(int(time.monotonic()), 60)
        minute_before, opens = self._counts.pop(link, (minute, 0))
        if minute_before != minute:
            opens = 0
        opens += 1
        self._counts[link] = (minute, opens)
        while len(self._counts) > _MAX_COUNTED:
            self._counts.popitem(last=False)
        return None if opens <= MAX_OPENS else 60 - second


def _failure(error: Exception) -> Response:
    status = answer_of(error).status_code  # which logs what is unexpected
    if status == 503:
        return _refusal(503, {"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, HalvingError):
        _log.error("the page of a view-only link could not be built: %s", error)
    return _refusal(500)


def _refusal(status: int, more: dict[str, str] | None = None) -> Response:
    title, text = _WORDS[status]
    page = _PAGE.format(title=title, text=text)
    return Response(page, status, {**HEADERS, **(more or {})}, media_type="text/html; charset=utf-8")
