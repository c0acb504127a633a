"""The catalog's tables of the server: tokens, its own secrets, the audit, and answers that may be asked for
again.
"""

from datetime import datetime

from sqlalchemy import BigInteger, Index, Integer
from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.tables import Base, Excerpt


class TokenRow(Base):
    """A token: ``digest`` is its SHA-256, and the token itself is nowhere.

    ``projects`` null: it may see all of them.

    A name is used once: what the audit says was done by it was done with one token. ``last_used_at`` is at
    most ten minutes behind.
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
    """A secret that all replicas of the server share, such as the key that they sign sessions with."""

    __tablename__ = "secrets"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    created_at: Mapped[datetime]


class WriteLogRow(Base):
    """One write that was asked of the server: by whom, when, what, and the HTTP status that it was answered
    with.
    """

    __tablename__ = "audit"
    __table_args__ = (Index("audit_by_time", "at"),)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str]
    method: Mapped[str]
    route: Mapped[str]
    target: Mapped[str] = mapped_column(Excerpt)
    status: Mapped[int]


class AnswerRow(Base):
    """The answer to a write that was sent with a key (``Idempotency-Key``): sent again, it is answered so,
    and not done again.
    """

    __tablename__ = "answers"
    __table_args__ = (Index("answers_by_time", "created_at"),)

    actor: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[str]
    status: Mapped[int]
    body: Mapped[str]
    created_at: Mapped[datetime]
