"""Sending the messages of the outbox, and what becomes of those that do not reach their channel."""

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from halving.errors import HalvingError
from resources.alerts import messages
from resources.alerts.addresses import AddressRefused, Network
from resources.alerts.http_post import Answer, post
from resources.alerts.mail import send_mail
from resources.alerts.outbox import (
    GATHER_SECONDS,
    LEASE_SECONDS,
    MAX_PAUSE_SECONDS,
    Message,
    claim_messages,
    hold_channel,
    settle_failed,
    settle_sent,
    write_messages,
)
from resources.catalog import AlertChannelRow, AlertRow, Catalog

FIRST_PAUSE_SECONDS = 5.0
CHANNEL_PAUSE_SECONDS = 30.0
"""How long a channel that does not answer is left alone, so that its messages do not keep others waiting."""
MAX_TRIES = 20
"""With pauses that double up to an hour that is half a day."""
_AT_ONCE = 10  # messages that are claimed together; their tries must fit into the lease
_MAX_ERROR = 300  # characters that are kept
_MIN_SECRET = 8  # characters of a part of an address that may be a secret
_TOO_MANY = 429
_TIMEOUT = 408

_BODIES: dict[str, Callable[[Message, str | None], bytes]] = {
    "slack": messages.slack_body,
    "discord": messages.discord_body,
    "teams": messages.teams_body,
    "webhook": messages.webhook_body,
}


@dataclass(frozen=True)
class Outcome:
    """What became of a try.

    Attributes:
        error: why it failed; None if the message was delivered.
        is_final: another try would fail in the same way.
        retry_after: seconds that the receiver wants the next try to wait.
        has_answer: whether the receiver has said anything.
    """

    error: str | None = None
    is_final: bool = False
    retry_after: float | None = None
    has_answer: bool = True


class Deliverer:
    """Delivers the messages of a catalog; any number of processes may do so at the same time.

    Args:
        page_url: the address of the server's page, for links in messages; None: messages have none.
        networks: private networks that may be reached.
        haste: by how much gathering, leases and pauses are shorter than they are; for benchmarks and tests.
    """

    def __init__(
        self,
        catalog: Catalog,
        page_url: str | None = None,
        networks: Sequence[Network] = (),
        *,
        haste: float = 1.0,
    ) -> None:
        self._catalog = catalog
        self._page_url = page_url
        self._networks = networks
        self._haste = haste

    def deliver(self) -> int:
        """Send what is due, and return how many tries were made."""
        write_messages(self._catalog, GATHER_SECONDS / self._haste)
        tries = 0
        while claimed := claim_messages(self._catalog, 1, LEASE_SECONDS / self._haste):
            for message in claimed:
                self._try(message)
                tries += 1
            if tries >= _AT_ONCE:
                break
        return tries

    def _try(self, message: Message) -> None:
        outcome = self.send(message)
        if outcome.error is None:
            settle_sent(self._catalog, message)
            return
        pause = None
        if not outcome.is_final and message.tries < MAX_TRIES:
            pause = pause_after(message.tries, outcome.retry_after, random.random()) / self._haste
        settle_failed(self._catalog, message, outcome.error, pause)
        if not outcome.has_answer:
            hold_channel(self._catalog, message.channel.name, CHANNEL_PAUSE_SECONDS / self._haste)

    def send(self, message: Message) -> Outcome:
        """Send a message once; whatever fails is a failed try, so that no message keeps others waiting."""
        outcome = self._send(message)
        if outcome.error is None:
            return outcome
        return replace(outcome, error=without_address(outcome.error, message.channel)[:_MAX_ERROR])

    def _send(self, message: Message) -> Outcome:
        channel = message.channel
        try:
            if channel.kind == "email":
                send_mail(channel, message, self._page_url, self._networks)
                return Outcome()
            body = _BODIES[channel.kind](message, self._page_url)
            headers = {}
            if channel.kind == "webhook" and channel.secret:
                headers = messages.webhook_headers(message.id, body, channel.secret, self._catalog.now())
            return judge_answer(post(channel.address, body, headers, self._networks))
        except AddressRefused as error:
            return Outcome(str(error), is_final=True)
        except HalvingError as error:
            return Outcome(str(error), is_final=True)
        except OSError as error:
            return Outcome(str(error) or type(error).__name__, has_answer=False)
        except Exception as error:  # noqa: BLE001
            # Such as a password that SMTP cannot send, or an answer that httpcore cannot read.
            return Outcome(f"{type(error).__name__}: {error}")


def send_test(catalog: Catalog, channel: AlertChannelRow, networks: Sequence[Network] = ()) -> Outcome:
    """Send a message to a channel that says that it is only a test; it is not kept."""
    now = catalog.now()
    alert = AlertRow(
        id=0,
        key="test",
        event="logged",
        level="info",
        project=None,
        kind="project",
        subject="test",
        title="This is a test of Halving's alerts",
        text="Nothing has happened.",
        at=now,
    )
    message = Message(f"msg_{secrets.token_hex(16)}", 1, channel, (alert,))
    return Deliverer(catalog, networks=networks).send(message)


def without_address(error: str, channel: AlertChannelRow) -> str:
    """An error without the secrets of its channel, which a receiver's answer may repeat."""
    parts = urlsplit(channel.address)
    path = parts._replace(scheme="", netloc="").geturl()
    secret_texts = [channel.address, path, unquote(path), parts.path, channel.secret or ""]
    secret_texts += [part for part in parts.path.split("/") if len(part) >= _MIN_SECRET]
    secret_texts += [part for part in parts.query.split("&") if len(part) >= _MIN_SECRET]
    if channel.kind == "email":
        secret_texts = [channel.secret or ""]
    for text in secret_texts:
        if len(text) > 1:
            error = error.replace(text, "…")
    return error


def judge_answer(answer: Answer) -> Outcome:
    """What an answer means: delivered, try again, or never."""
    if 200 <= answer.status < 300:
        return Outcome()
    error = f"HTTP {answer.status}: {answer.text}".rstrip(": ")
    may_pass = answer.status >= 500 or answer.status in (_TIMEOUT, _TOO_MANY)
    return Outcome(error, is_final=not may_pass, retry_after=answer.retry_after)


def pause_after(tries: int, retry_after: float | None, chance: float) -> float:
    """Seconds until the next try: they double with each, with full jitter, and are never below what is asked.

    Args:
        tries: how many have failed, from 1.
        retry_after: what the receiver asks for.
        chance: a random number from 0 to 1.

    The formula is "full jitter" of https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter,
    from half of the pause on, so that no try follows at once.
    """
    longest = min(FIRST_PAUSE_SECONDS * 2 ** (tries - 1), MAX_PAUSE_SECONDS)
    pause = longest * (0.5 + 0.5 * chance)
    if retry_after is not None:
        pause = max(pause, retry_after)
    return min(pause, MAX_PAUSE_SECONDS)
