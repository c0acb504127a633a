"""Channels: where alerts are sent to. Administrators set them, because their addresses are secrets."""

import base64
import secrets
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.identifiers import check_name
from halving.text import comma_list, did_you_mean
from resources.alerts.alert import check_event
from resources.alerts.http_post import check_url
from resources.alerts.mail import parse_mail_address
from resources.catalog import AlertChannelRow, utcnow

KINDS = ("webhook", "slack", "discord", "teams", "email")
_MIN_KEY = 24  # bytes, which Standard Webhooks asks for
_MAX_KEY = 64


def add_channel(
    session: Session,
    name: str,
    kind: str,
    address: str,
    *,
    actor: str,
    secret: str | None = None,
    projects: Collection[str] | None = None,
    events: Collection[str] | None = None,
) -> AlertChannelRow:
    """Add a channel. A webhook without a secret gets a new one, by which its messages are signed.

    Args:
        projects, events: only alerts of these are sent there; None for all.

    Raises:
        InvalidInput: a value is not accepted.
        AlreadyExists: there is a channel of this name.
    """
    check_name("channel", name)
    if kind not in KINDS:
        raise InvalidInput(f"kind = {kind!r} is not accepted: give {comma_list(KINDS)}")
    if kind == "email":
        parse_mail_address(address)
    else:
        check_url(address)
    if kind == "webhook":
        secret = _checked_key(secret)
    elif kind != "email" and secret is not None:
        raise InvalidInput(f"secret is not accepted for {kind}: its address is the secret")
    for event in events or ():
        check_event(event)
    if session.get(AlertChannelRow, name) is not None:
        raise AlreadyExists(f"there is a channel {name!r} already: remove it first, or take another name")
    row = AlertChannelRow(
        name=name,
        kind=kind,
        address=address,
        secret=secret,
        projects=_sorted_or_none(projects),
        events=_sorted_or_none(events),
        created_by=actor,
        created_at=utcnow(),
    )
    session.add(row)
    session.flush()
    return row


def remove_channel(session: Session, name: str) -> None:
    """Remove a channel; messages that wait for it become dead letters.

    Raises:
        NotFound: there is none of this name.
    """
    session.delete(find_channel(session, name))
    session.flush()


def find_channel(session: Session, name: str) -> AlertChannelRow:
    """The channel of a name.

    Raises:
        NotFound: there is none.
    """
    row = session.get(AlertChannelRow, name)
    if row is None:
        names = [channel.name for channel in list_channels(session)]
        hint = did_you_mean(name, names) or f"; there are: {comma_list(names)}"
        raise NotFound(f"no channel {name!r}{hint}")
    return row


def list_channels(session: Session) -> list[AlertChannelRow]:
    """All channels, by name."""
    return list(session.scalars(select(AlertChannelRow).order_by(AlertChannelRow.name)))


def channel_as_dict(row: AlertChannelRow) -> dict[str, Any]:
    """A channel as plain data, without its secrets: of the address the host alone."""
    return {
        "name": row.name,
        "kind": row.kind,
        "host": urlsplit(row.address).hostname,
        "projects": row.projects,
        "events": row.events,
        "created_by": row.created_by,
        "created_at": row.created_at.isoformat(),
    }


def _checked_key(secret: str | None) -> str:
    """A webhook's key, or a new one."""
    if secret is None:
        return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith("whsec_") or not _MIN_KEY <= len(key) <= _MAX_KEY:
        raise InvalidInput(
            f"secret is not accepted: give whsec_ and {_MIN_KEY} to {_MAX_KEY} bytes in base64, or none"
        )
    return secret


def _sorted_or_none(texts: Collection[str] | None) -> list[str] | None:
    if texts is None:
        return None
    return sorted(set(texts))
