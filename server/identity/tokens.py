"""Tokens: random texts that say who asks.

The catalog keeps their SHA-256 alone, so whoever reads it cannot ask in their name.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import or_, select, update

from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.identifiers import check_name
from resources.catalog import Catalog, TokenRow, utcnow
from resources.links.shared_links import PREFIX as LINK_PREFIX
from resources.tenancy.projects import all_names_of
from server.identity.caller import SCOPES, Caller, Scope

PREFIX = "hlv_"
"""What every token begins with, so that scanners of code and logs find one that was lost."""

_BYTES = 32
_LOOKS_LIKE_ONE = re.compile(rf"({PREFIX}|{LINK_PREFIX})[\w-]+")
_COARSE = timedelta(minutes=10)  # of when it was last used: more often would be a write for each request
_MAX_DAYS = 3650


@dataclass(frozen=True)
class Token:
    """A token without its text. ``projects`` None: it may see all projects."""

    name: str
    scope: Scope
    projects: list[str] | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None

    @property
    def holds(self) -> bool:
        """Whether the token is neither revoked nor too old."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > utcnow())

    def caller(self, *, session: bool) -> Caller:
        """The caller that uses this token."""
        projects = None if self.projects is None else frozenset(self.projects)
        return Caller(self.name, self.scope, projects, session)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


def create_token(
    catalog: Catalog,
    name: str,
    *,
    scope: str = "read",
    projects: Sequence[str] | None = None,
    days: float | None = None,
) -> str:
    """Create a token and return its text, which cannot be shown again.

    Args:
        name: who or what uses it; the write log shows it. Each name is used once.
        scope: ``read``, ``write`` (and read) or ``admin`` (and both).
        projects: the only projects whose runs, sweeps and models it may see and change; None is all.
        days: after which it no longer holds; None is never.

    Raises:
        InvalidInput: the name, the scope, a project or the days are not accepted.
        AlreadyExists: there is, or was, a token of this name.
    """
    check_name("the token's name", name)
    if scope not in SCOPES:
        raise InvalidInput(f"scope {scope!r} is not accepted: give one of {', '.join(SCOPES)}")
    if days is not None and not 0 < days <= _MAX_DAYS:
        raise InvalidInput(f"days = {days:g} is not accepted: give more than 0, at most {_MAX_DAYS}")
    if scope == "admin" and projects:
        raise InvalidInput(
            "scope 'admin' is not accepted together with projects: an administrator sees the write log, "
            "which is of all of them"
        )
    token = PREFIX + secrets.token_urlsafe(_BYTES)
    now = utcnow()
    expires_at = None
    if days is not None:
        expires_at = now + timedelta(days=days)
    project_names = None
    if projects:
        project_names = [check_name("project", project) for project in projects]
    row = TokenRow(
        name=name,
        digest=digest_of(token),
        scope=scope,
        projects=project_names,
        created_at=now,
        expires_at=expires_at,
    )
    with catalog.write(exclusive=True) as session:
        if session.get(TokenRow, name) is not None:
            raise AlreadyExists(
                f"there is, or was, a token {name!r}: give another name, so that the write log tells them "
                "apart"
            )
        session.add(row)
    return token


def list_tokens(catalog: Catalog) -> list[Token]:
    """All tokens, also those that no longer hold, oldest first."""
    with catalog.read() as session:
        return [
            _token_of(row)
            for row in session.scalars(select(TokenRow).order_by(TokenRow.created_at, TokenRow.name))
        ]


def revoke_token(catalog: Catalog, name: str) -> Token:
    """Revoke a token for good, and end the sessions that browsers opened with it.

    Raises:
        NotFound: there is no such token; the message names those that there are.
    """
    with catalog.write() as session:
        row = session.get(TokenRow, name)
        if row is None:
            raise NotFound(
                f"no token {name!r}; there are "
                f"{', '.join(session.scalars(select(TokenRow.name))) or 'none yet'}"
            )
        row.revoked_at = row.revoked_at or utcnow()
        return _token_of(row)


def find_token(catalog: Catalog, *, digest: str | None = None, name: str | None = None) -> Token | None:
    """Find a token by digest or name, if it holds, with all names that its projects have or had."""
    # By digest an index is searched: how long that takes says at most something about digests, from which no
    # token can be made.
    condition = TokenRow.digest == digest
    if digest is None:
        condition = TokenRow.name == name
    query = select(TokenRow).where(condition)
    with catalog.read() as session:
        row = session.scalar(query)
        if row is None:
            return None
        token = _token_of(row)
        if token.projects is not None:
            token = replace(token, projects=all_names_of(session, token.projects))
    return token if token.holds else None


def note_use(catalog: Catalog, token: Token) -> None:
    """Note that the token was used, at most every ten minutes."""
    now = utcnow()
    if token.last_used_at is None or now - token.last_used_at > _COARSE:
        old = or_(TokenRow.last_used_at.is_(None), TokenRow.last_used_at < now - _COARSE)
        with catalog.write() as session:
            session.execute(update(TokenRow).where(TokenRow.name == token.name, old).values(last_used_at=now))


def digest_of(token: str) -> str:
    """The digest that the catalog keeps of a token.

    A token is 256 random bits, so a plain hash cannot be guessed back.
    """
    return sha256(token.encode(errors="replace")).hexdigest()


def without_tokens(text: str) -> str:
    """A text with everything hidden that could be a token, or the secret of a view-only link."""
    return _LOOKS_LIKE_ONE.sub(r"\1…", text)


def _token_of(row: TokenRow) -> Token:
    names = ("name", "projects", "created_at", "last_used_at", "expires_at", "revoked_at")
    scope = SCOPES[SCOPES.index(row.scope)]
    return Token(scope=scope, **{name: getattr(row, name) for name in names})
