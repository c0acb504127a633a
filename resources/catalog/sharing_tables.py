"""The catalog's tables of what people show each other: saved views, and view-only links."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from resources.catalog.tables import Base


class SavedViewRow(Base):
    """A view of Compare that was saved under a name for a project.

    ``query`` is the query of the page's address. ``revision`` is another one after each save, also where a
    view was deleted in between: who saves says which one they saw.
    """

    __tablename__ = "saved_views"

    project: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    query: Mapped[str]
    revision: Mapped[str]
    by: Mapped[str]
    at: Mapped[datetime]


class SharedLinkRow(Base):
    """A view-only link; only the SHA-256 (``digest``) of its secret is stored.

    ``kind`` is run, view, sweep or report. ``target`` is a run's ``project/run``, a view's query, or a
    sweep's id. ``projects`` are those that it may show. ``token`` is the token that made it, with which it
    ends; null: it was made on the server's own machine. ``last_used_at`` is at most ten minutes old.
    """

    __tablename__ = "shared_links"

    id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    target: Mapped[str]
    projects: Mapped[list[str]]
    note: Mapped[str]
    by: Mapped[str]
    token: Mapped[str | None]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    revoked_by: Mapped[str | None]
    last_used_at: Mapped[datetime | None]
