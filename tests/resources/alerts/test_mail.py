"""A mail reaches those whom it is for, a title adds nothing to it, and no password goes without TLS."""

from collections.abc import Iterator
from email import message_from_bytes
from email.header import decode_header, make_header

import pytest

from resources.alerts import mail
from resources.alerts.alert import Alert
from resources.alerts.channels import add_channel
from resources.alerts.delivery import Deliverer, Outcome
from resources.alerts.outbox import GATHER_SECONDS, Message, claim_messages, raise_alert, write_messages
from resources.catalog import Catalog
from tests.alert_receiver import THIS_MACHINE
from tests.mail_server import MailServer, running_mail_server


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with running_mail_server() as server:
        yield server


def message_for(catalog: Catalog, address: str, title: str, secret: str | None = None) -> Message:
    """A message that is due for a mailbox."""
    with catalog.write() as session:
        add_channel(session, "ann", "email", address, actor="ada", secret=secret)
        alert = Alert("k", "crashed", "run", "digits/a", title, text="Look at it", project="digits")
        raise_alert(session, alert, catalog.now() - GATHER_SECONDS)
    write_messages(catalog)
    (message,) = claim_messages(catalog, 1)
    return message


def send(catalog: Catalog, message: Message) -> Outcome:
    return Deliverer(catalog, "https://halving.example.com", THIS_MACHINE).send(message)


def address_of(server: MailServer, to: str = "ann@example.com", user: str = "") -> str:
    return f"smtp://{user}127.0.0.1:{server.port}?from=halving@example.com&to={to}"


def test_a_mail_says_what_happened_and_a_title_adds_no_header(
    catalog: Catalog, mail_server: MailServer
) -> None:
    title = "digits/a crashed\r\nBcc: eve@example.com\r\n\r\nhello ünicode"
    message = message_for(catalog, address_of(mail_server), title)
    assert send(catalog, message) == Outcome()
    (text,) = mail_server.mails
    parsed = message_from_bytes(text.encode())
    assert parsed["Bcc"] is None
    subject = str(make_header(decode_header(parsed["Subject"]))).replace("\n", "")
    assert subject == "digits/a crashed Bcc: eve@example.com hello ünicode"
    assert parsed["To"] == "ann@example.com"
    assert parsed["Message-ID"].startswith(f"<{message.id}@")
    body = parsed.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert "https://halving.example.com/runs/digits/a" in body.decode()


def test_a_password_is_not_sent_where_there_is_no_tls(catalog: Catalog, mail_server: MailServer) -> None:
    address = address_of(mail_server, user="ann@")
    outcome = send(catalog, message_for(catalog, address, "crashed", secret="pass-word-1"))
    assert outcome.is_final
    assert "TLS only" in str(outcome.error)
    assert not mail_server.mails


def test_a_refused_mailbox_is_named_and_the_others_get_the_mail_once(
    catalog: Catalog, mail_server: MailServer
) -> None:
    mail_server.refused = {"bob@example.com"}
    address = address_of(mail_server, to="ann@example.com,bob@example.com")
    outcome = send(catalog, message_for(catalog, address, "crashed"))
    assert outcome.is_final
    assert "bob@example.com" in str(outcome.error)
    assert len(mail_server.mails) == 1


def test_a_server_that_drips_bytes_does_not_hold_the_sender(
    catalog: Catalog, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail_server.drips = True
    monkeypatch.setattr(mail, "MAX_TRY_SECONDS", 0.3)
    outcome = send(catalog, message_for(catalog, address_of(mail_server), "crashed"))
    assert "not done within" in str(outcome.error)
    assert not outcome.is_final
