"""The outbox: alerts that wait, the messages made of them, and whose turn it is to send one.

An alert is raised in the transaction of what it tells of, so neither exists without the other. A message is
claimed by moving ``claimed_until`` a lease ahead; the claim of a killed process runs out, and the next one
sends the message again under the same id.
"""

import secrets
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select, update
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from resources.alerts.alert import Alert
from resources.catalog import (
    AHEAD_SECONDS,
    AlertChannelRow,
    AlertDeliveryRow,
    AlertMessageRow,
    AlertRow,
    Catalog,
)
from resources.tenancy.projects import names_of

WAITING = "waiting"
SENT = "sent"
DEAD = "dead"

GATHER_SECONDS = 10.0
"""How long an alert waits for others like it, to be sent in one message with them."""
LEASE_SECONDS = 60.0
"""Longer than a try can take, which ends after 25 seconds whatever the receiver does."""
MAX_PAUSE_SECONDS = 3_600.0
"""The longest pause between two tries, whatever the receiver asks for."""
MAX_ALERTS = 50
"""Of one message; what is beyond that comes in the next one."""
_MAX_FORMED = 2_000  # alerts that one transaction makes messages of


@dataclass(frozen=True)
class Message:
    """A message that this process has claimed, with its channel and its alerts, the oldest first."""

    id: str
    tries: int
    channel: AlertChannelRow
    alerts: tuple[AlertRow, ...]


def raise_alert(session: Session, alert: Alert, now: float) -> bool:
    """Raise an alert in the transaction of what it tells of; return whether it is new.

    Args:
        now: seconds since the epoch, by the catalog's clock.
    """
    values = {
        "key": alert.key,
        "event": alert.event,
        "level": alert.level,
        "project": alert.project,
        "kind": alert.kind,
        "subject": alert.subject,
        "title": alert.title,
        "text": alert.text,
        "at": now,
    }
    insert = sqlite_insert
    if session.get_bind().dialect.name == "postgresql":
        insert = postgres_insert  # type: ignore[assignment]
    statement = insert(AlertRow).values(values).on_conflict_do_nothing(index_elements=["key"])
    number = session.scalar(statement.returning(AlertRow.id))
    if number is None:
        return False
    names: set[str] = set()
    if alert.project is not None:
        names = set(names_of(session, alert.project))
    for channel in session.scalars(select(AlertChannelRow)):
        if is_wanted(channel, alert.event, names):
            session.add(AlertDeliveryRow(alert=number, channel=channel.name))
    session.flush()
    return True


def is_wanted(channel: AlertChannelRow, event: str, projects: Set[str]) -> bool:
    """Whether a channel wants alerts of an event in a project; those of all projects reach every channel.

    Args:
        projects: the names of the project, its former ones too; none if it concerns all projects.
    """
    if channel.events is not None and event not in channel.events:
        return False
    return channel.projects is None or not projects or not projects.isdisjoint(channel.projects)


def write_messages(catalog: Catalog, gather_seconds: float = GATHER_SECONDS) -> int:
    """Make messages of the alerts that have waited long enough for others; return their number.

    Alerts for one channel of one event in one project become one message.
    """
    # A look without a transaction that writes, because mostly there is nothing.
    with catalog.read() as session:
        if session.scalar(_without_message().limit(1)) is None:
            return 0
    with catalog.write(exclusive=True) as session:
        now = catalog.now()
        columns = (AlertDeliveryRow.channel, AlertRow.event, AlertRow.project, AlertRow.at, AlertRow.id)
        rows = session.execute(
            select(*columns)
            .join(AlertRow, AlertRow.id == AlertDeliveryRow.alert)
            .where(AlertDeliveryRow.message.is_(None))
            .order_by(AlertDeliveryRow.channel, AlertRow.event, AlertRow.project, AlertRow.id)
            .limit(_MAX_FORMED)
        ).all()
        count = 0
        for (channel, _, _), group in groupby(rows, key=lambda row: (row.channel, row.event, row.project)):
            alike = list(group)
            oldest = min(row.at for row in alike)
            # An alert from the future was raised before the clock was set back.
            is_ripe = not now - gather_seconds < oldest <= now + AHEAD_SECONDS
            if not is_ripe and len(alike) < MAX_ALERTS:
                continue
            for first in range(0, len(alike), MAX_ALERTS):
                part = [row.id for row in alike[first : first + MAX_ALERTS]]
                _write_message(session, channel, part, now)
                count += 1
    return count


def claim_messages(catalog: Catalog, count: int, lease_seconds: float = LEASE_SECONDS) -> list[Message]:
    """Claim at most ``count`` messages whose time has come; each try counts from here on.

    Args:
        lease_seconds: after that others may claim them, for this process must have died.
    """
    with catalog.read() as session:
        if session.scalar(select(AlertMessageRow.id).where(_is_due(catalog.now())).limit(1)) is None:
            return []
    with catalog.write() as session:
        now = catalog.now()
        due = select(AlertMessageRow).where(_is_due(now)).order_by(AlertMessageRow.next_at).limit(count)
        claimed = []
        for row in session.scalars(due.with_for_update(skip_locked=True)).all():
            channel = session.get(AlertChannelRow, row.channel)
            if channel is None:
                row.state = DEAD
                row.error = "the channel was removed"
                continue
            row.claimed_until = now + lease_seconds
            row.tries += 1
            claimed.append(Message(row.id, row.tries, channel, _alerts_of(session, row.id)))
    return claimed


def settle_sent(catalog: Catalog, message: Message) -> None:
    """Note that a message has reached its channel, also where another process has claimed it since."""
    row = AlertMessageRow
    values = {"state": SENT, "sent": catalog.now(), "error": None, "claimed_until": 0.0}
    with catalog.write() as session:
        session.execute(
            update(row).where(row.id == message.id).values(**values),
            execution_options={"synchronize_session": False},
        )


def settle_failed(catalog: Catalog, message: Message, error: str, pause: float | None) -> None:
    """Note that a try has failed.

    Args:
        pause: seconds until the next try; None: there is none, and the message is a dead letter.
    """
    if pause is None:
        _settle(catalog, message, state=DEAD, error=error, claimed_until=0.0)
    else:
        _settle(catalog, message, error=error, next_at=catalog.now() + pause, claimed_until=0.0)


def hold_channel(catalog: Catalog, channel: str, seconds: float) -> None:
    """Let the messages that wait for a channel wait for some seconds more; this is no try of theirs."""
    row = AlertMessageRow
    until = catalog.now() + seconds
    with catalog.write() as session:
        session.execute(
            update(row)
            .where(row.channel == channel, row.state == WAITING, row.next_at < until)
            .values(next_at=until),
            execution_options={"synchronize_session": False},
        )


def send_again(session: Session, messages: Iterable[str], now: float) -> int:
    """Let dead letters be tried again at once; return how many of these there were."""
    revive = (
        update(AlertMessageRow)
        .where(AlertMessageRow.id.in_(list(messages)), AlertMessageRow.state == DEAD)
        .values(state=WAITING, next_at=now, claimed_until=0.0, tries=0)
        .returning(AlertMessageRow.id)
    )
    return len(session.scalars(revive, execution_options={"synchronize_session": False}).all())


def _without_message() -> Select[Any]:
    return select(AlertDeliveryRow.alert).where(AlertDeliveryRow.message.is_(None))


def _is_due(now: float) -> ColumnElement[bool]:
    row = AlertMessageRow
    # Times that lie further ahead than any was set are from before the clock was set back.
    is_time = or_(row.next_at <= now, row.next_at > now + MAX_PAUSE_SECONDS + AHEAD_SECONDS)
    is_free = or_(row.claimed_until <= now, row.claimed_until > now + LEASE_SECONDS + AHEAD_SECONDS)
    return and_(row.state == WAITING, is_time, is_free)


def _write_message(session: Session, channel: str, alerts: Sequence[int], now: float) -> None:
    message = f"msg_{secrets.token_hex(16)}"
    session.add(
        AlertMessageRow(
            id=message, channel=channel, state=WAITING, created=now, next_at=now, claimed_until=0.0, tries=0
        )
    )
    session.flush()
    session.execute(
        update(AlertDeliveryRow)
        .where(AlertDeliveryRow.channel == channel, AlertDeliveryRow.alert.in_(alerts))
        .values(message=message),
        execution_options={"synchronize_session": False},
    )


def _alerts_of(session: Session, message: str) -> tuple[AlertRow, ...]:
    alerts = (
        select(AlertRow)
        .join(AlertDeliveryRow, AlertDeliveryRow.alert == AlertRow.id)
        .where(AlertDeliveryRow.message == message)
        .order_by(AlertRow.id)
    )
    return tuple(session.scalars(alerts))


def _settle(catalog: Catalog, message: Message, **values: object) -> None:
    """Write a try's outcome, unless the claim has run out and another process has the message."""
    row = AlertMessageRow
    own = and_(row.id == message.id, row.tries == message.tries, row.state == WAITING)
    with catalog.write() as session:
        session.execute(
            update(row).where(own).values(**values), execution_options={"synchronize_session": False}
        )
