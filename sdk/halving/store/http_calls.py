"""Calls of a server's API over kept connections, and which refusals are worth another try."""

import contextlib
import http.client
import io
import json
import os
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from halving.errors import AlreadyExists, BatchMissing, InvalidInput, NotFound, StoreError, StoreUnavailable
from halving.store.local_files import Content
from halving.store.s3 import CONNECT_SECONDS

ANSWER_SECONDS = 30.0  # the server's longest silence; it answers a write only once its store has it
_MAX_TEXT = 500
_MAX_RETRY_AFTER = 60.0
_READ_BYTES = 1 << 20

Connection = http.client.HTTPConnection  # also one over TLS, which is a subclass
Body = bytes | memoryview | IO[bytes]


class Answer(NamedTuple):
    """Status and body of an answer that is no refusal.

    The body is empty where :meth:`HttpCalls.stream` lets the caller read it.
    """

    status: int
    body: bytes


class HttpCalls:
    """Calls of one server's API; each thread, and each forked process, has its own connection.

    Args:
        url: of the server, ``http://…`` or ``https://…``, with the path under which a proxy has it, if any.
        token: sent with each call; None sends none.

    Raises:
        InvalidInput: the address or the token is none, or the proxy that the environment names.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or port == -1
            or parts.query
            or parts.fragment
        ):
            raise InvalidInput(
                f"url = {url!r} is not accepted: give a server's address, such as http://127.0.0.1:3001"
            )
        if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
            # The token is a secret, so the message does not show it.
            raise InvalidInput("token is not accepted: give what halving tokens create printed, hlv_…")
        self.url = url.rstrip("/")
        self._host = parts.hostname
        self._port = port
        self._path = f"{parts.path.rstrip('/')}/api/v1"
        self._headers: dict[str, str] = {}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._secure = parts.scheme == "https"
        self._proxy = _proxy_of(parts.scheme, parts.hostname)
        if self._proxy and not self._secure:  # without a tunnel, the proxy reads the server's address here
            self._path = f"http://{parts.netloc}{self._path}"
            self._headers |= self._proxy.headers
        self._kept: dict[tuple[int, int], Connection] = {}  # Connections by process and thread.

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        content: Content = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Call the API once and return its answer; calling again must do no harm.

        Args:
            path: after ``/api/v1``, with its parts quoted.
            content: the body; a file is never held in memory as a whole.

        Raises:
            NotFound: 404.
            AlreadyExists: 409.
            BatchMissing: 409, with the sequence that is missing.
            InvalidInput: the server does not accept what was sent (413, 422 and the like).
            StoreUnavailable: it does not answer, is too busy (408, 429), or is in trouble (5xx).
            StoreError: it refuses (401, 403), or its certificate does not hold.
            OSError: the file cannot be read.
        """
        with contextlib.ExitStack() as opened:
            if isinstance(content, Path):
                body: Body = opened.enter_context(content.open("rb"))
            else:
                body = content
            with (
                self._request(method, path, query, body, headers) as (answer, what),
                self._naming_faults(what),
            ):
                return Answer(answer.status, answer.read())

    def close(self) -> None:
        """Close the connections of all threads. Another call opens one again."""
        while self._kept:
            with contextlib.suppress(KeyError):  # another thread has just closed its own
                self._kept.popitem()[1].close()

    @contextlib.contextmanager
    def stream(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[IO[bytes]]:
        """The answer to a GET, to be read in parts in the ``with`` block.

        It raises the same errors as :meth:`call`, also while it is read.
        """
        with self._request("GET", path, query, b"", None) as (answer, what):
            yield io.BufferedReader(_Body(answer, lambda: self._naming_faults(what)), _READ_BYTES)

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        content: Body,
        headers: Mapping[str, str] | None,
    ) -> Iterator[tuple[http.client.HTTPResponse, str]]:
        """Send a request; yield an answer that is no refusal, and a name of the request for messages.

        What the ``with`` block raises is passed on.
        """
        target = f"{self._path}{path}"
        if query:
            target += f"?{urlencode(query)}"
        what = f"{method} {path}"
        try:
            with self._naming_faults(what):
                answer = self._exchange(method, target, content, {**self._headers, **(headers or {})})
                if answer.status >= 300:
                    raise self._refusal(answer, what)
            yield answer, what
            if not answer.isclosed():  # what was not read would be taken for the next answer
                self._close()
        except BaseException:
            self._close()
            raise

    @contextlib.contextmanager
    def _naming_faults(self, what: str) -> Iterator[None]:
        """Raise connection failures as StoreUnavailable, and invalid certificates as StoreError.

        A certificate that does not hold is nothing to wait for.
        """
        try:
            yield
        except StoreError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise StoreError(
                f"{self.url} has a certificate that does not hold here ({error.verify_message}): give the "
                "address that it is for, "
                "or name its authority's file by SSL_CERT_FILE"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(
                f"{self.url} does not answer ({what}): {error or type(error).__name__}"
            ) from error

    def _exchange(
        self, method: str, target: str, content: Body, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request, over a kept connection if there is one.

        The server may have closed that meanwhile: then the request is sent once more, over a new one.
        """
        kept = self._kept.get(_here())
        if kept is not None:
            with contextlib.suppress(http.client.HTTPException, ConnectionError):
                return _send(kept, method, target, content, headers)
            self._close()
        return _send(self._connect(), method, target, content, headers)

    def _connect(self) -> Connection:
        """Open a connection, and keep it for this thread."""
        connection = self._connection()
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
        self._kept[_here()] = connection
        return connection

    def _connection(self) -> Connection:
        """A connection that is not open yet, through the proxy that the environment names, if any."""
        proxy = self._proxy
        if not self._secure:
            if proxy:
                return http.client.HTTPConnection(proxy.host, proxy.port, timeout=CONNECT_SECONDS)
            return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        if not proxy:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_SECONDS, context=self._certificates
            )
        connection = http.client.HTTPSConnection(
            proxy.host, proxy.port, timeout=CONNECT_SECONDS, context=self._certificates
        )
        connection.set_tunnel(self._host, self._port, proxy.headers)
        return connection

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        """The authorities that this machine trusts, read once."""
        return ssl.create_default_context()

    def _close(self) -> None:
        """Close this thread's connection, if it has one."""
        connection = self._kept.pop(_here(), None)
        if connection is not None:
            connection.close()

    def _refusal(self, answer: http.client.HTTPResponse, what: str) -> Exception:
        """The error that an answer of status 300 or above stands for."""
        status = answer.status
        body = answer.read()
        text = _detail(body)
        if status == 404:
            return NotFound(text)
        if status == 409:
            missing = _member(body, "next")
            if isinstance(missing, int):
                return BatchMissing(text, missing)
            return AlreadyExists(text)
        if status in (401, 403):
            hint = ""
            if status == 401 or "scope" in text:
                hint = "; give halving.init(token=…) or HALVING_TOKEN one that may write"
            return StoreError(f"{self.url} refuses: {text}{hint}")
        if status in (408, 429) or status >= 500:
            away = StoreUnavailable(f"{self.url} answered {what} with {status}: {text}")
            away.retry_after = _retry_after(answer)
            return away
        if status < 400:
            return StoreError(f"{self.url} answered {what} with {status}: give the address that it leads to")
        return InvalidInput(f"{self.url} does not take {what}: {text}")


class _Body(io.RawIOBase):
    """An answer's body, whose reading raises the same errors as calling; one that ends too early fails."""

    def __init__(
        self,
        answer: http.client.HTTPResponse,
        naming_faults: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._answer = answer
        self._naming_faults = naming_faults

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._naming_faults():
            count = self._answer.readinto(buffer)
            if not count and self._answer.length:
                raise http.client.IncompleteRead(b"", self._answer.length)
        return count


class _Proxy(NamedTuple):
    """An HTTP proxy, and the headers by which this machine may use it."""

    host: str
    port: int
    headers: dict[str, str]


def _proxy_of(scheme: str, host: str) -> _Proxy | None:
    """The proxy that the environment names for a host; None where there is none.

    It is named by ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``, in capitals or not. This machine itself
    has none.

    Raises:
        InvalidInput: what it names is no HTTP proxy.
    """
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(scheme)
    if not address or _is_this_machine(host) or proxy_bypass(host):
        return None
    if "://" not in address:
        address = f"http://{address}"
    parts = urlsplit(address)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:  # it may have a password, which is not shown
        raise InvalidInput(
            f"{scheme.upper()}_PROXY is not accepted: give http://HOST:PORT, or name {host} in NO_PROXY"
        )
    if parts.username is None:
        return _Proxy(parts.hostname, port, {})
    secret = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()
    return _Proxy(parts.hostname, port, {"Proxy-Authorization": f"Basic {secret}"})


def _is_this_machine(host: str) -> bool:
    """Whether a host's name or address is that of this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _here() -> tuple[int, int]:
    """This process and thread: a forked child must not write into its parent's connection."""
    return os.getpid(), threading.get_ident()


def _send(
    connection: Connection, method: str, target: str, content: Body, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Send a request over an open connection, and return the beginning of its answer."""
    try:
        if isinstance(content, (bytes, memoryview)):
            connection.request(method, target, content or None, headers)
        else:
            content.seek(0)
            connection.request(
                method,
                target,
                content,
                {**headers, "Content-Length": str(os.fstat(content.fileno()).st_size)},
            )
    except ConnectionError as broken:
        # A server that refuses a large body answers before it has read it, and closes. Its answer says more
        # than the error that it has closed.
        with contextlib.suppress(OSError, http.client.HTTPException):
            return connection.getresponse()
        raise broken
    return connection.getresponse()


def _retry_after(answer: http.client.HTTPResponse) -> float:
    """Seconds that the server wants the next try to wait; a date is ignored."""
    seconds = answer.getheader("Retry-After", "")
    if not seconds.isdecimal():
        return 0.0
    return min(float(seconds), _MAX_RETRY_AFTER)


def _detail(body: bytes) -> str:
    """The answer's own explanation."""
    detail = _member(body, "detail")
    if detail is None:
        detail = body.decode(errors="replace").strip() or "without a word"
    return str(detail)[:_MAX_TEXT]


def _member(body: bytes, name: str) -> Any:
    """A member of a JSON object; None where there is none, or the text is no object."""
    try:
        return json.loads(body)[name]
    except (ValueError, LookupError, TypeError):
        return None
