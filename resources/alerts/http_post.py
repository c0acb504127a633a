"""Posts a message over HTTP to an address that was checked at the connection."""

import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpcore

from halving import __version__
from halving.errors import InvalidInput
from resources.alerts.addresses import AddressRefused, Network, resolve

MAX_SECONDS = 10.0
"""For each of connecting, sending and reading: a receiver answers at once, and does its work later."""
MAX_TRY_SECONDS = 25.0
"""For all of it together, since a receiver that drips bytes would hold the sender beyond its lease."""
_MAX_ANSWER = 2_000  # bytes of an answer that are read, for the error
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Answer:
    """How a receiver answered.

    Attributes:
        status: of HTTP.
        text: the beginning of the answer.
        retry_after: seconds that it wants the next try to wait; None if it does not say so.
    """

    status: int
    text: str
    retry_after: float | None


def check_url(url: str) -> None:
    """Check the form of an address; whether it may be reached is seen at the connection.

    Raises:
        InvalidInput: it is no address over HTTP, or holds a user name.
    """
    accepted = "give an address such as https://hooks.example.com/services/T0/B0/SECRET"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"the channel's address is not accepted ({error}): {accepted}") from None
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise InvalidInput(
            f"the channel's address is not accepted: it has characters of no address; {accepted}"
        )
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InvalidInput(f"the channel's address is not accepted: {accepted}")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            f"the channel's address is not accepted: it has a user name, which hides the host; {accepted}"
        )
    if parts.fragment:
        raise InvalidInput(f"the channel's address is not accepted: it has a part after #; {accepted}")


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network] = ()) -> Answer:
    """Post a body once and return the answer, whatever its status; a redirection is not followed.

    Args:
        allowed: private networks that may be reached.

    Raises:
        AddressRefused: the host has an address that no message may be sent to.
        OSError: it cannot be reached, or does not answer in time.
    """
    check_url(url)
    timeouts = dict.fromkeys(("connect", "write", "read", "pool"), MAX_SECONDS)
    fixed = {"User-Agent": f"Halving/{__version__}", "Content-Type": "application/json"}
    sent = [*fixed.items(), *headers.items()]
    limit = time.monotonic() + MAX_TRY_SECONDS
    with httpcore.ConnectionPool(network_backend=_CheckedConnections(allowed, limit)) as pool:
        try:
            with pool.stream(
                "POST", url, headers=sent, content=body, extensions={"timeout": timeouts}
            ) as response:
                beginning = b""
                for piece in response.iter_stream():
                    beginning += piece
                    if len(beginning) >= _MAX_ANSWER:
                        break
                text = beginning[:_MAX_ANSWER].decode(errors="replace")
                return Answer(response.status, text, _retry_after(response.headers))
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise OSError(f"{type(error).__name__}: {error}".rstrip(": ")) from None


class _CheckedConnections(httpcore.NetworkBackend):
    """Opens connections to addresses that were checked after their name was resolved."""

    def __init__(self, allowed: Sequence[Network], limit: float) -> None:
        self._allowed = allowed
        self._limit = limit
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            addresses = resolve(host, port, self._allowed)
        except AddressRefused:
            raise
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host!r} cannot be resolved: {error}") from None
        problem = httpcore.ConnectError(f"{host!r} has no address")
        for address in addresses:
            try:
                stream = self._sockets.connect_tcp(
                    str(address), port, _shorter(timeout, self._limit), local_address, socket_options
                )
                return _LimitedStream(stream, self._limit)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                problem = httpcore.ConnectError(str(error) or type(error).__name__)
        raise problem


class _LimitedStream(httpcore.NetworkStream):
    """A connection on which all that is read and written together has an end.

    Args:
        limit: by the monotonic clock.
    """

    def __init__(self, stream: httpcore.NetworkStream, limit: float) -> None:
        self._stream = stream
        self._limit = limit

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _shorter(timeout, self._limit))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _shorter(timeout, self._limit))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, _shorter(timeout, self._limit))
        return _LimitedStream(stream, self._limit)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _shorter(timeout: float | None, limit: float) -> float:
    """A timeout that ends at the limit at the latest.

    Raises:
        httpcore.TimeoutException: the limit is reached.
    """
    left = limit - time.monotonic()
    if left <= 0:
        raise httpcore.TimeoutException(f"not done within {MAX_TRY_SECONDS:g} s")
    if timeout is None:
        return left
    return min(timeout, left)


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """The seconds of ``Retry-After``, which is a number or a date; None if it is missing or neither."""
    for name, value in headers:
        if name.lower() == b"retry-after":
            text = value.decode("ascii", errors="replace").strip()
            if text.isascii() and text.isdigit():
                return float(text[:9])
            try:
                return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
            except (ValueError, OverflowError):
                return None
    return None
