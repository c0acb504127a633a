"""Sends a message as a mail, over SMTP, to an address that was checked at the connection."""

import contextlib
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from halving.errors import InvalidInput
from halving.text import comma_list
from resources.alerts import messages
from resources.alerts.addresses import Network, resolve
from resources.alerts.outbox import Message
from resources.catalog import AlertChannelRow

MAX_SECONDS = 10.0
"""For each answer of the server."""
MAX_TRY_SECONDS = 25.0
"""For all of them together, since a server that drips bytes would hold the sender beyond its lease."""
_ACCEPTED = "give smtps://USER@mail.example.com:465?from=halving@example.com&to=ann@example.com"
_PORTS = {"smtp": 587, "smtps": 465}
_MAX_RECIPIENTS = 20
_MAILBOX = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+")


@dataclass(frozen=True)
class MailServer:
    """The parts of a channel's address, such as ``smtps://USER@mail.example.com?from=…&to=…``."""

    is_encrypted: bool
    host: str
    port: int
    user: str | None
    sender: str
    recipients: tuple[str, ...]


def parse_mail_address(address: str) -> MailServer:
    """Parse the address of a channel of mails.

    Raises:
        InvalidInput: a part of it is missing or wrong.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"the channel's address is not accepted ({error}): {_ACCEPTED}") from None
    query = parse_qs(parts.query)
    senders = query.pop("from", [])
    recipients = [part for text in query.pop("to", []) for part in text.split(",")]
    if parts.scheme not in _PORTS or not parts.hostname or port == 0 or query or parts.fragment:
        raise InvalidInput(f"the channel's address is not accepted: {_ACCEPTED}")
    if parts.password is not None:
        raise InvalidInput("the channel's address is not accepted: give the password as the channel's secret")
    if len(senders) != 1 or not 1 <= len(recipients) <= _MAX_RECIPIENTS:
        raise InvalidInput(
            f"the channel's address is not accepted: it has one from=, and up to {_MAX_RECIPIENTS} to=; "
            f"{_ACCEPTED}"
        )
    for mailbox in (*senders, *recipients):
        if not _MAILBOX.fullmatch(mailbox):
            raise InvalidInput(f"{mailbox!r} is not accepted: give a mailbox such as ann@example.com")
    user = None
    if parts.username:
        user = unquote(parts.username)
    return MailServer(
        parts.scheme == "smtps",
        parts.hostname,
        port or _PORTS[parts.scheme],
        user,
        senders[0],
        tuple(recipients),
    )


def send_mail(
    channel: AlertChannelRow, message: Message, page_url: str | None, networks: Sequence[Network]
) -> None:
    """Send a message once; a password is sent over TLS only.

    Raises:
        InvalidInput: the server wants a password, and has no TLS.
        AddressRefused: the server has an address that no message may be sent to.
        OSError: the server cannot be reached, or refuses the mail.
    """
    server = parse_mail_address(channel.address)
    mail = EmailMessage()
    mail["Subject"] = " ".join(messages.subject_line(message.alerts).split())
    mail["From"] = server.sender
    mail["To"] = ", ".join(server.recipients)
    mail["Message-ID"] = f"<{message.id}@{server.host}>"  # the same in each try
    mail.set_content(messages.plain_text(message.alerts, page_url))
    with _Limit() as limit:
        try:
            with _connect(server, networks, limit) as connection:
                if server.user is not None:
                    connection.login(server.user, channel.secret or "")
                refused = connection.send_message(mail)
        except smtplib.SMTPException as error:
            if limit.is_reached:
                raise OSError(f"{server.host} was not done within {MAX_TRY_SECONDS:g} s") from None
            raise OSError(f"{type(error).__name__}: {error}") from None
    if refused:
        # The others have the mail, so that another try would send it to them twice.
        raise InvalidInput(f"{server.host} has refused {comma_list(refused)}; the others have got the mail")


def _connect(server: MailServer, networks: Sequence[Network], limit: "_Limit") -> smtplib.SMTP:
    context = ssl.create_default_context()
    place = (server.host, server.port)
    if server.is_encrypted:
        return _CheckedSmtpOverTls(networks, limit, *place, timeout=MAX_SECONDS, context=context)
    connection = _CheckedSmtp(networks, limit, *place, timeout=MAX_SECONDS)
    connection.ehlo()
    if connection.has_extn("starttls"):
        connection.starttls(context=context)
        limit.end(connection.sock)
        connection.ehlo()
    elif server.user is not None:
        connection.close()
        raise InvalidInput(
            f"{server.host} has no STARTTLS, and a password is sent over TLS only: use smtps://"
        )
    return connection


def _open_checked(networks: Sequence[Network], host: str, port: int, timeout: Any) -> socket.socket:
    problem: OSError = OSError(f"{host!r} has no address")
    for address in resolve(host, port, networks):
        try:
            return socket.create_connection((str(address), port), timeout)
        except OSError as error:
            problem = error
    raise problem


class _Limit:
    """Ends a connection after :data:`MAX_TRY_SECONDS`, whatever its thread waits for then."""

    def __init__(self) -> None:
        self.is_reached = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(MAX_TRY_SECONDS, self._reach)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def end(self, opened: socket.socket | None) -> None:
        """Say which socket is to be ended."""
        self._socket = opened

    def _reach(self) -> None:
        self.is_reached = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _CheckedSmtp(smtplib.SMTP):
    """SMTP over a connection to an address that was checked; smtplib opens it by ``_get_socket``."""

    def __init__(self, networks: Sequence[Network], limit: _Limit, *arguments: Any, **options: Any) -> None:
        self._networks = networks
        self._limit = limit
        super().__init__(*arguments, **options)

    def _get_socket(self, host: str, port: int, timeout: Any) -> socket.socket:
        opened = _open_checked(self._networks, host, port, timeout)
        self._limit.end(opened)
        return opened


class _CheckedSmtpOverTls(smtplib.SMTP_SSL):
    """The same over TLS from its begin."""

    def __init__(self, networks: Sequence[Network], limit: _Limit, *arguments: Any, **options: Any) -> None:
        self._networks = networks
        self._limit = limit
        super().__init__(*arguments, **options)

    def _get_socket(self, host: str, port: int, timeout: Any) -> socket.socket:
        opened = _open_checked(self._networks, host, port, timeout)
        encrypted = self.context.wrap_socket(opened, server_hostname=host)
        self._limit.end(encrypted)
        return encrypted
