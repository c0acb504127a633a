"""The catalog's tables of the server: tokens, secrets, the write log, and answers to repeated writes."""

from datetime import datetime

from sqlalchemy import BigInteger, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.tables import Base, Excerpt


class TokenRow(Base):
    """A token of the server; only its SHA-256 (``digest``) is stored.

    ``projects`` are those that it gives access to; null for all. A name is never used for a second token, so
    that an actor in the write log is one token. ``last_used_at`` is at most ten minutes old.
    """

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(unique=True)
    scope: Mapped[str]
    projects: Mapped[list[str] | None]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SecretRow(Base):
    """A secret that all replicas of the server share, such as the key by which sessions are signed."""

    __tablename__ = "secrets"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    created_at: Mapped[datetime]


class WriteLogRow(Base):
    """A request that writes: who sent it, when, to which route, and the HTTP status of the answer."""

    __tablename__ = "write_log"
    __table_args__ = (Index("write_log_by_time", "at"),)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str]
    method: Mapped[str]
    route: Mapped[str]
    target: Mapped[str] = mapped_column(Excerpt)
    status: Mapped[int]


class AnswerRow(Base):
    """The answer to a write with an ``Idempotency-Key``, which is sent again if the write is repeated."""

    __tablename__ = "answers"
    __table_args__ = (Index("answers_by_time", "created_at"),)

    actor: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[str]
    status: Mapped[int]
    body: Mapped[str]
    created_at: Mapped[datetime]
