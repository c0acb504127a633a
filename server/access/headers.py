"""Security headers of every answer."""

import base64
import re
from hashlib import sha256

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.access.policy import policy_of

_IMPORT_MAP = re.compile(r'<script type="importmap"[^>]*>(.*?)</script>', re.DOTALL)


def content_policy(page: str) -> str:
    """The page's content security policy: only its own files, and no inline script or style.

    The import map is the exception, because it cannot be a file.

    Args:
        page: its HTML; the import map in it is allowed by its hash.
    """
    hashes = [
        f"'sha256-{base64.b64encode(sha256(import_map.encode()).digest()).decode()}'"
        for import_map in _IMPORT_MAP.findall(page)
    ]
    return "; ".join(
        (
            "default-src 'self'",
            " ".join(["script-src 'self'", *hashes]),
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "object-src 'none'",
        )
    )


class SecurityHeaders:
    """ASGI middleware that adds security headers to every answer; what the route has set stays.

    Args:
        content_policy: the page's; see :func:`content_policy`.
    """

    def __init__(self, app: ASGIApp, content_policy: str) -> None:
        self._app = app
        self._headers = {
            "Content-Security-Policy": content_policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added = self._headers
        if policy_of(scope) is not None:
            added = {**added, "Cache-Control": "no-store"}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in added.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
