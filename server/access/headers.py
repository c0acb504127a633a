"""Security headers of every answer."""

import base64
import re
from hashlib import sha256

from starlette.datastructures import MutableHeaders

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


def add_headers(headers: MutableHeaders, policy: str, *, api: bool) -> None:
    """Add security headers to an answer; what the route has set stays."""
    headers.setdefault("Content-Security-Policy", policy)
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Referrer-Policy", "same-origin")
    headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    if api:
        headers.setdefault("Cache-Control", "no-store")
