"""Authentication by a token, or by the session that a browser opened with one."""

import asyncio
import logging
import time
from http.cookies import CookieError, SimpleCookie

import anyio
import anyio.to_thread
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from starlette.datastructures import Headers

from server.identity.caller import LOCAL, Caller
from server.identity.sessions import COOKIE, Session, Sessions
from server.identity.tokens import PREFIX, Token, digest_of, find_token, note_use
from server.identity.wrong_tokens import WrongTokens
from server.state import State

FRESH_SECONDS = 2.0
"""How long a token is trusted before the catalog is asked again; a revoked one holds this much longer."""

# How long a token is trusted while the catalog is away, so that what needs only the store is still answered.
_KEPT_SECONDS = 300.0
_TOKENS = 1000  # how many are remembered
_THREADS = 4  # Slow queries of routes must not hold up authentication.
_WRONG_SECONDS = 0.2  # The answer to a wrong token is delayed.
_log = logging.getLogger(__name__)


class Authentication:
    """Finds the caller of each request."""

    def __init__(self, state: State) -> None:
        self.asks = state.settings.asks_for_tokens
        self.sessions = Sessions(state.signing_key)
        self.wrong = WrongTokens()
        self._catalog = state.access_catalog
        self._tokens: dict[tuple[str, str], tuple[Token | None, float]] = {}
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._noters = anyio.CapacityLimiter(1)
        self._noting: set[asyncio.Task[None]] = set()

    async def caller(self, headers: Headers) -> tuple[Caller | None, Session | None]:
        """Who sent a request with these headers, and by which session.

        None: tokens are asked for, and it has none that holds.

        Raises:
            DBAPIError: the catalog does not answer, and the token was not used lately.
        """
        if not self.asks:
            return LOCAL, None
        if (text := token_in(headers)) is not None:
            token = await self.find_by_text(text)
            if token:
                return token.caller(session=False), None
            return None, None
        session = self._session(headers.get("cookie", ""))
        if session is None:
            return None, None
        token = await self._find("name", session.token)
        if token:
            return token.caller(session=True), session
        return None, None

    async def find_by_text(self, text: str) -> Token | None:
        """Find the token that a client sent, if it still holds."""
        return await self._find("digest", digest_of(text.strip()))

    async def delay_refusal(self, address: str) -> int | None:
        """Wait before a wrong token is refused.

        Returns the seconds to wait for if this address has sent too many.
        """
        wait = self.wrong.count(address)
        await asyncio.sleep(_WRONG_SECONDS)
        return wait

    def _session(self, cookies: str) -> Session | None:
        try:
            morsel = SimpleCookie(cookies).get(COOKIE)
        except CookieError:
            return None
        if morsel is None:
            return None
        return self.sessions.read(morsel.value)

    async def _find(self, by: str, value: str) -> Token | None:
        token, read_at = self._tokens.get((by, value), (None, 0.0))
        now = time.monotonic()
        if token is not None and now - read_at < FRESH_SECONDS:
            return token if token.holds else None
        try:
            current = await anyio.to_thread.run_sync(self._read, by, value, limiter=self._threads)
        except (DBAPIError, NoConnectionLeft):
            if token is None or now - read_at > _KEPT_SECONDS:
                raise
            return token if token.holds else None
        self._tokens.pop((by, value), None)
        if current is not None:  # wrong ones are not remembered: there are too many of them
            self._tokens[by, value] = current, now
            noting = asyncio.create_task(
                self._note_use(current)
            )  # a request that reads does not wait for a write
            self._noting.add(noting)
            noting.add_done_callback(self._noting.discard)
            while len(self._tokens) > _TOKENS:
                del self._tokens[next(iter(self._tokens))]
        return current

    async def _note_use(self, token: Token) -> None:
        try:
            await anyio.to_thread.run_sync(note_use, self._catalog, token, limiter=self._noters)
        except (DBAPIError, NoConnectionLeft) as error:
            _log.info("that a token was used could not be noted: %s", type(error).__name__)

    def _read(self, by: str, value: str) -> Token | None:
        return find_token(self._catalog, **{by: value})


def token_in(headers: Headers) -> str | None:
    """The server's token in a request's headers; None if there is none.

    Other credentials, which a browser or a proxy adds for somebody else, say nothing here.
    """
    scheme, _, text = headers.get("authorization", "").partition(" ")
    text = text.strip()
    if scheme.lower() == "bearer" and text.startswith(PREFIX):
        return text
    return None
