"""View-only links: a secret address that shows one thing until a time, to whoever has it.

The catalog keeps the SHA-256 of the secret alone, so that nobody who reads it can open a link.

A link shows no more than the token that made it may see. It ends when it is revoked, at its time, and with
its token: when that is revoked, becomes too old, or may no longer see one of the link's projects.
"""

import re
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from resources.catalog import Catalog, SharedLinkRow, TokenRow, utcnow
from resources.links.targets import KINDS, Kind, Target
from resources.tenancy.projects import all_names_of

PREFIX = "hlk_"
"""What every secret begins with, so that scanners of code and logs find one that was lost."""

DAYS = 7.0
MAX_DAYS = 366
MAX_NOTE = 500
KEPT = timedelta(days=90)
"""How long a link that has ended is still listed."""

_BYTES = 24  # 192 bits
_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{32}}")
_COARSE = timedelta(minutes=10)  # of when it was last used: more often would be a write for each request
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_WRITERS = ("write", "admin")  # scopes of tokens that may make links


@dataclass(frozen=True)
class SharedLink:
    """A link without its secret.

    Attributes:
        target: ``project/run``, a view's query, or a sweep's id.
        projects: those that it may show.
        by: who made it.
        token: the token that made it; None: it was made on the server's own machine.
        ended: why it shows nothing any more: revoked, expired, or ``token`` where it has ended with its
            token; None: it shows what it was made for.
    """

    id: str
    kind: Kind
    target: str
    projects: list[str]
    note: str
    by: str
    token: str | None
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    ended: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def create_link(
    session: Session, target: Target, *, by: str, token: str | None, days: float = DAYS, note: str = ""
) -> tuple[SharedLink, str]:
    """Make a link, in a transaction that writes; returns it with its secret, which cannot be shown again.

    Args:
        by: who makes it.
        token: the name of the token that it ends with; None: of none.
        days: after which it ends, or earlier with its token.
        note: for whom and why, for those who list links.

    Raises:
        InvalidInput: the days or the note are not accepted.
    """
    if not 0 < days <= MAX_DAYS:
        raise InvalidInput(f"days = {days:g} is not accepted: give more than 0, at most {MAX_DAYS}")
    if len(note) > MAX_NOTE or _CONTROL.search(note):
        raise InvalidInput(
            f"note = {note!r:.60} is not accepted: give at most {MAX_NOTE} characters in one line"
        )
    now = utcnow()
    expires_at = now + timedelta(days=days)
    if token is not None:
        token_ends = session.scalar(select(TokenRow.expires_at).where(TokenRow.name == token))
        expires_at = min(expires_at, token_ends or expires_at)
    ended_long_ago = or_(SharedLinkRow.expires_at < now - KEPT, SharedLinkRow.revoked_at < now - KEPT)
    session.execute(delete(SharedLinkRow).where(ended_long_ago))
    secret = PREFIX + secrets.token_urlsafe(_BYTES)
    row = SharedLinkRow(
        id=secrets.token_hex(8),
        digest=_digest_of(secret),
        kind=target.kind,
        target=target.target,
        projects=target.projects,
        note=note,
        by=by,
        token=token,
        created_at=now,
        expires_at=expires_at,
    )
    session.add(row)
    session.flush()
    return _link_of(session, row), secret


def list_links(
    session: Session, projects: Collection[str] | None, *, limits: Collection[str] | None = None
) -> list[SharedLink]:
    """Links, the newest first, also those that have ended within the last ninety days.

    Args:
        projects: only links that show one of these, each by any of its names; None: all.
        limits: only links all of whose projects are among these, by any name; None: all.
    """
    wanted = None
    if projects is not None:
        wanted = set(all_names_of(session, projects))
    visible = None
    if limits is not None:
        visible = set(all_names_of(session, limits))
    query = select(SharedLinkRow).order_by(SharedLinkRow.created_at.desc(), SharedLinkRow.id)
    return [
        _link_of(session, row)
        for row in session.scalars(query)
        if (wanted is None or wanted.intersection(row.projects))
        and (visible is None or visible.issuperset(row.projects))
    ]


def load_link(session: Session, identity: str) -> SharedLink:
    """A link by its id, also one that has ended.

    Raises:
        NotFound: there is none.
    """
    row = session.get(SharedLinkRow, identity)
    if row is None:
        raise NotFound(f"no link {identity!r:.60}; halving links list shows all")
    return _link_of(session, row)


def revoke_link(session: Session, identity: str, *, by: str) -> SharedLink:
    """Revoke a link for good, in a transaction that writes; revoked again it stays as it was.

    Raises:
        NotFound: there is none.
    """
    load_link(session, identity)
    row = session.get_one(SharedLinkRow, identity)
    if row.revoked_at is None:
        row.revoked_at = utcnow()
        row.revoked_by = by
        session.flush()
    return _link_of(session, row)


def find_link(session: Session, secret: str) -> SharedLink | None:
    """Find the link of a secret, if it still shows something."""
    if not _SECRET.fullmatch(secret):
        return None
    # By digest an index is searched: how long that takes says at most something about digests, from which no
    # secret can be made.
    row = session.scalar(select(SharedLinkRow).where(SharedLinkRow.digest == _digest_of(secret)))
    if row is None:
        return None
    link = _link_of(session, row)
    return link if link.ended is None else None


def visible_projects(session: Session, link: SharedLink) -> list[str]:
    """All names that the link's projects have or had."""
    return all_names_of(session, link.projects)


def note_use(catalog: Catalog, link: SharedLink) -> None:
    """Note that the link was opened, at most every ten minutes."""
    now = utcnow()
    if link.last_used_at is None or now - link.last_used_at > _COARSE:
        old = or_(SharedLinkRow.last_used_at.is_(None), SharedLinkRow.last_used_at < now - _COARSE)
        with catalog.write() as session:
            session.execute(
                update(SharedLinkRow).where(SharedLinkRow.id == link.id, old).values(last_used_at=now)
            )


def _digest_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _link_of(session: Session, row: SharedLinkRow) -> SharedLink:
    names = [name for name in SharedLink.__dataclass_fields__ if name not in ("kind", "ended")]
    values = {name: getattr(row, name) for name in names}
    kind = KINDS[KINDS.index(row.kind)]
    return SharedLink(kind=kind, ended=_why_ended(session, row), **values)


def _why_ended(session: Session, row: SharedLinkRow) -> str | None:
    now = utcnow()
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at <= now:
        return "expired"
    if row.token is None:
        return None
    token = session.get(TokenRow, row.token)
    if token is None or token.revoked_at is not None or token.scope not in _WRITERS:
        return "token"
    if token.expires_at is not None and token.expires_at <= now:
        return "token"
    if token.projects is not None and not set(row.projects) <= set(all_names_of(session, token.projects)):
        return "token"
    return None
