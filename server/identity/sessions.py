"""Browsers' sessions: signed cookies that name the token they were opened with, not the token itself.

A session holds as long as its token does, and at most a week. Nothing of it is stored: any replica reads it
by the key that all share.
"""

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256

from fastapi import Response
from itsdangerous import BadSignature, URLSafeTimedSerializer

COOKIE = "halving_session"
SECONDS = 7 * 86_400


@dataclass(frozen=True)
class Session:
    """An open session: the name of its token, and a random id."""

    token: str
    id: str


class Sessions:
    """Opens sessions, and reads those that browsers send."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._signer = URLSafeTimedSerializer(key, salt="session")

    def open(self, token: str) -> tuple[Session, str]:
        """Open a session of a token; returns it with its cookie's value."""
        session = Session(token, secrets.token_urlsafe(16))
        return session, str(self._signer.dumps([session.token, session.id]))

    def read(self, cookie: str) -> Session | None:
        """The session of a cookie; None when it is not ours, or too old."""
        try:
            token, identity = self._signer.loads(cookie, max_age=SECONDS)
        except (BadSignature, ValueError):
            return None
        return Session(str(token), str(identity))

    def csrf(self, session: Session) -> str:
        """The token that this session's writes carry in ``X-CSRF-Token``.

        A page of another origin cannot read it.
        """
        return hmac.new(self._key.encode(), f"csrf {session.id}".encode(), sha256).hexdigest()

    def proves(self, session: Session, csrf: str | None) -> bool:
        """Whether a write carries the session's CSRF token."""
        return csrf is not None and hmac.compare_digest(csrf.encode(), self.csrf(session).encode())


def set_cookie(response: Response, value: str, *, base_path: str, secure: bool) -> None:
    """Send the session's cookie.

    Only this site's own requests below the server's base path carry it, and scripts cannot read it.
    """
    response.set_cookie(
        COOKIE,
        value,
        max_age=SECONDS,
        path=f"{base_path}/api",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def clear_cookie(response: Response, *, base_path: str, secure: bool) -> None:
    response.delete_cookie(COOKIE, path=f"{base_path}/api", secure=secure, httponly=True, samesite="strict")
