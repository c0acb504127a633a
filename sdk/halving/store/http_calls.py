"""Calls of a server's API over connections that are kept, and which of its refusals are worth another try."""

import contextlib
import http.client
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from halving.errors import AlreadyExists, InvalidInput, NotFound, StoreError, StoreUnavailable
from halving.store.filesystem import CONNECT_SECONDS

ANSWER_SECONDS = 30.0  # without a byte from the server; it answers a write when its store has it
_LONGEST_TEXT = 500


class Answer(NamedTuple):
    """Status and body of an answer that is no refusal; the body is empty where it is given to :meth:`HttpCalls.stream` to read."""

    status: int
    body: bytes


class HttpCalls:
    """Calls of one server's API. Each thread, and each forked process, has a connection of its own.

    Args:
        url: of the server, ``http://…`` or ``https://…``, with the path under which a proxy has it, if any.
        token: sent with each call; None sends none.

    Raises:
        InvalidInput: the address or the token is none.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise InvalidInput(f"url = {url!r} is not accepted: give a server's address, such as http://127.0.0.1:3001")
        if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
            raise InvalidInput("token is not accepted: give what halving tokens create printed, hlv_…")  # which is a secret
        self.url = url.rstrip("/")
        self._host, self._port, self._path = parts.hostname, port, f"{parts.path.rstrip('/')}/api/v1"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._secure = parts.scheme == "https"
        self._kept: dict[tuple[int, int], http.client.HTTPConnection] = {}  # by process and thread

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        content: bytes | Path = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer of the API to one request; sending it again must do no harm.

        Args:
            path: after ``/api/v1``, with its parts quoted.
            content: the body; a file is never held in memory as a whole.

        Raises:
            NotFound: 404.
            AlreadyExists: 409.
            InvalidInput: the server does not accept what was sent (413, 422 and the like).
            StoreUnavailable: it does not answer, is too busy (408, 429), or is in trouble (5xx).
            StoreError: it refuses (401, 403).
        """
        with self._asked(method, path, query, content, headers) as answer:
            return Answer(answer.status, answer.read())

    def close(self) -> None:
        """Close the connections of all threads. Another call opens one again."""
        while self._kept:
            with contextlib.suppress(KeyError):  # another thread has just closed its own
                self._kept.popitem()[1].close()

    @contextlib.contextmanager
    def stream(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[http.client.HTTPResponse]:
        """The answer to a GET, to be read in parts in the ``with`` block; the same errors."""
        with self._asked("GET", path, query, b"", None) as answer:
            yield answer

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, query: Mapping[str, object] | None, content: bytes | Path, headers: Mapping[str, str] | None
    ) -> Iterator[http.client.HTTPResponse]:
        target = f"{self._path}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self._exchanged(method, target, content, {**self._headers, **(headers or {})})
            if answer.status >= 300:
                raise self._refusal(answer.status, answer.read(), f"{method} {path}")
            yield answer
            if not answer.isclosed():  # what was not read would be taken for the next answer
                self._close()
        except (OSError, http.client.HTTPException) as error:
            self._close()
            if isinstance(error, StoreError):
                raise
            raise StoreUnavailable(f"{self.url} does not answer ({method} {path}): {error or type(error).__name__}") from error
        except BaseException:
            self._close()
            raise

    def _exchanged(self, method: str, target: str, content: bytes | Path, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Send a request. A server may have closed a kept connection meanwhile: then once more, over a new one."""
        connection = self._kept.get(_here())
        if connection is not None:
            with contextlib.suppress(http.client.HTTPException, ConnectionError):
                return _send(connection, method, target, content, headers)
            self._close()
        return _send(self._connect(), method, target, content, headers)

    def _connect(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._secure:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS, context=self._certificates)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
        self._kept[_here()] = connection
        return connection

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _close(self) -> None:
        connection = self._kept.pop(_here(), None)
        if connection is not None:
            connection.close()

    def _refusal(self, status: int, body: bytes, what: str) -> Exception:
        text = _detail(body)
        if status == 404:
            return NotFound(text)
        if status == 409:
            return AlreadyExists(text)
        if status in (401, 403):
            hint = "; give halving.init(token=…) or HALVING_TOKEN one that may write" if status == 401 or "scope" in text else ""
            return StoreError(f"{self.url} refuses: {text}{hint}")
        if status in (408, 429) or status >= 500:
            return StoreUnavailable(f"{self.url} answered {what} with {status}: {text}")
        if status < 400:
            return StoreError(f"{self.url} answered {what} with {status}: give the address that it leads to")
        return InvalidInput(f"{self.url} does not take {what}: {text}")


def _here() -> tuple[int, int]:
    """This process and thread: a forked child must not write into its parent's connection."""
    return os.getpid(), threading.get_ident()


def _send(
    connection: http.client.HTTPConnection, method: str, target: str, content: bytes | Path, headers: dict[str, str]
) -> http.client.HTTPResponse:
    try:
        if isinstance(content, bytes):
            connection.request(method, target, content or None, headers)
        else:
            with content.open("rb") as file:
                connection.request(method, target, file, {**headers, "Content-Length": str(content.stat().st_size)})
    except ConnectionError as broken:
        # A server that refuses a large body answers before it has read it, and closes: what it says is worth more than that it has.
        with contextlib.suppress(OSError, http.client.HTTPException):
            return connection.getresponse()
        raise broken
    return connection.getresponse()


def _detail(body: bytes) -> str:
    """What an answer says in its own words."""
    try:
        found = json.loads(body)["detail"]
    except (ValueError, LookupError, TypeError):
        found = body.decode(errors="replace").strip() or "without a word"
    return str(found)[:_LONGEST_TEXT]
