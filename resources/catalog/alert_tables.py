"""The catalog's tables of alerts: channels, alerts, and the outbox of messages.

Times that decide something are in seconds since the epoch, by the database's clock.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.tables import Base, Excerpt

_IS_WAITING = text("state = 'waiting'")
_HAS_NO_MESSAGE = text("message IS NULL")


class AlertChannelRow(Base):
    """Where messages are sent to.

    ``kind`` is slack, discord, teams, webhook or email. ``address`` is a secret, as whoever has it
    can write there; so is ``secret``, by which messages to a webhook are signed, or an SMTP server's
    password. ``projects`` and ``events`` limit what is sent there; null is all.
    """

    __tablename__ = "alert_channels"

    name: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    address: Mapped[str]
    secret: Mapped[str | None]
    projects: Mapped[list[str] | None]
    events: Mapped[list[str] | None]
    created_by: Mapped[str]
    created_at: Mapped[datetime]


class AlertRow(Base):
    """An alert. It is raised once for each ``key``.

    ``subject`` is what it is about, of ``kind`` run, sweep, model, project or store.
    """

    __tablename__ = "alerts"
    __table_args__ = (Index("alerts_by_time", "at"),)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    event: Mapped[str]
    level: Mapped[str]
    project: Mapped[str | None]
    kind: Mapped[str]
    subject: Mapped[str]
    title: Mapped[str] = mapped_column(Excerpt)
    text: Mapped[str] = mapped_column(Excerpt)
    at: Mapped[float]


class AlertMessageRow(Base):
    """A message of the outbox: one or several alike alerts for one channel.

    ``id`` is the same in each try, so that a receiver knows a message that it has had. ``state`` is waiting,
    sent or dead. Nobody else sends it until ``claimed_until``; ``next_at`` is the time of the next try.
    """

    __tablename__ = "alert_messages"
    __table_args__ = (
        Index("alert_messages_waiting", "next_at", sqlite_where=_IS_WAITING, postgresql_where=_IS_WAITING),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    channel: Mapped[str] = mapped_column(index=True)
    state: Mapped[str]
    created: Mapped[float]
    next_at: Mapped[float]
    claimed_until: Mapped[float]
    tries: Mapped[int]
    error: Mapped[str | None] = mapped_column(Excerpt)
    sent: Mapped[float | None]


class AlertDeliveryRow(Base):
    """An alert that is to reach a channel; ``message`` is null until a message with it is written."""

    __tablename__ = "alert_deliveries"
    __table_args__ = (
        Index(
            "alert_deliveries_waiting",
            "channel",
            sqlite_where=_HAS_NO_MESSAGE,
            postgresql_where=_HAS_NO_MESSAGE,
        ),
    )

    alert: Mapped[int] = mapped_column(ForeignKey("alerts.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    message: Mapped[str | None] = mapped_column(ForeignKey("alert_messages.id"), index=True)


class AlertWatchRow(Base):
    """The one row of the watch: since when there are alerts, and up to where it has looked.

    ``revision`` is that of the index of runs.
    """

    __tablename__ = "alert_watch"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    begun: Mapped[float]
    looked_at: Mapped[float]
    revision: Mapped[int] = mapped_column(BigInteger)


class AlertRuleRow(Base):
    """What a project wants to be told of its runs; the project ``*`` is all that have no rule of their own.

    ``silent_after`` is in seconds, null for no limit. ``bounds`` are of metrics, each with ``metric`` and
    ``above`` or ``below``.
    """

    __tablename__ = "alert_rules"

    project: Mapped[str] = mapped_column(primary_key=True)
    silent_after: Mapped[float | None]
    bounds: Mapped[list[dict[str, Any]]]
    changed_by: Mapped[str]
    changed_at: Mapped[datetime]


class AlertConditionRow(Base):
    """Something that was wrong at the last look, so that its end can be told, too.

    ``key`` identifies it while it lasts, such as ``silent:digits/7f3a``; ``since`` is when it was first seen.
    """

    __tablename__ = "alert_conditions"

    key: Mapped[str] = mapped_column(primary_key=True)
    event: Mapped[str]
    project: Mapped[str | None]
    kind: Mapped[str]
    subject: Mapped[str]
    attempt: Mapped[int | None]
    since: Mapped[float]
