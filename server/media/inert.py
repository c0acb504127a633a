"""Headers for stored bytes so that nothing in them can act in a browser.

Only types that cannot act are named; everything else, HTML and SVG too, is a file to save.
"""

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
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".json": "application/json",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".csv": "text/csv",
}
_INERT = frozenset(_BY_SUFFIX.values())
_AS_TEXT = frozenset({"text/markdown"})


def inert_type(media_type: str | None, name: str) -> str:
    """The type to give: the recorded one, or without one that of the file's name, if it is inert."""
    if media_type in _AS_TEXT:
        return "text/plain"
    if media_type is None:
        _, dot, suffix = name.lower().rpartition(".")
        media_type = _BY_SUFFIX.get(dot + suffix, OCTETS)
    return media_type if media_type in _INERT else OCTETS


def inert_headers(kind: str, name: str) -> dict[str, str]:
    """With these a browser runs nothing in the bytes, and asks for them once."""
    ascii_name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._- ") else "_" for letter in name
    )
    disposition = "attachment" if kind == OCTETS else "inline"
    return {
        "Content-Type": f"{kind}; charset=utf-8" if kind.startswith("text/") else kind,
        "Content-Disposition": (
            f"{disposition}; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
        ),
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": KEPT,
    }
