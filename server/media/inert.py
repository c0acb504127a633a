"""Headers for stored bytes so that nothing in them can act in a browser.

Only types that cannot act are named; everything else, HTML and SVG too, is a file to save.
"""

import re
from urllib.parse import quote

OCTETS = "application/octet-stream"
KEPT = "private, max-age=31536000, immutable"
"""``Cache-Control`` of what a digest names, which never changes: a browser asks for it once."""
_BY_SUFFIX = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".ogv": "video/ogg",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".json": "application/json",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".csv": "text/csv",
}
_INERT = frozenset(_BY_SUFFIX.values())
PAGE_HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": KEPT,
}
"""Headers of HTML that is shown: its scripts run in an origin of their own and can load nothing."""
_AS_TEXT = frozenset({"text/markdown"})
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._\- ]")


def inert_type(media_type: str | None, name: str) -> str:
    """The recorded media type, or the one of the file's suffix, if it is inert; else that of a plain file."""
    if media_type in _AS_TEXT:
        return "text/plain"
    if media_type is None:
        _, dot, suffix = name.lower().rpartition(".")
        media_type = _BY_SUFFIX.get(dot + suffix, OCTETS)
    if media_type in _INERT:
        return media_type
    return OCTETS


def inert_headers(kind: str, name: str) -> dict[str, str]:
    """Headers with which a browser runs nothing in the bytes, and asks for them once."""
    ascii_name = _NOT_PLAIN.sub("_", name)
    disposition = "attachment" if kind == OCTETS else "inline"
    content_type = kind
    if kind.startswith("text/"):
        content_type = f"{kind}; charset=utf-8"
    return {
        "Content-Type": content_type,
        "Content-Disposition": (
            f"{disposition}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
        ),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": KEPT,
    }
