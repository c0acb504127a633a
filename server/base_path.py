"""The path below which a proxy shows the server, such as JupyterHub's ``/user/ada/proxy/3001``.

This module says which paths are accepted, and removes the path from requests.

Some proxies take it off themselves, others leave it, so the server answers with and without it.
"""

import re
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from halving.errors import InvalidInput

_PROGRAMS = {"ajax-api", "api", "get-artifact", "health", "mcp", "model-versions", "version"}
_PAGES = {"alerts", "datasets", "journal", "login", "models", "runs", "shared", "sweeps"}
_FILES = {"charts", "compare", "components", "lib", "pages", "static", "vendor"}
OWN = _PROGRAMS | _PAGES | _FILES
"""What the server's own addresses begin with: below one of these nobody could tell which of the two an
address is.
"""

# It is written into HTML, a cookie and scripts as it is given.
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9._~@+-]|%[0-9A-Fa-f]{2})+)*")


def base_path_of(path: str) -> str:
    """Normalise a base path: no slash at its end, and empty where there is none.

    Raises:
        InvalidInput: it is none.
    """
    base = path.removesuffix("/")
    parts = base.split("/")[1:]
    texts = [unquote(part, errors="surrogateescape") for part in parts]
    reserved = any(
        text in (".", "..") or re.search(r"[\x00-\x1f\x7f/\\\udc80-\udcff]", text) for text in texts
    )
    if not _PATH.fullmatch(base) or reserved:
        raise InvalidInput(
            f"base_path = {path!r} is not accepted: give the path below which a proxy shows the server, such "
            "as /user/ada/proxy/3001 (letters, digits, . _ ~ % @ + - and /)"
        )
    if texts and texts[0] in OWN:
        raise InvalidInput(
            f"base_path = {path!r} is not accepted: addresses of the server's own begin with /{texts[0]}; "
            "give another first part, such as /halving"
        )
    return base


class BasePath:
    """ASGI middleware outside of all others that removes the base path from requests.

    Everything inside sees the server's own addresses alone.

    Args:
        base_path: as :func:`base_path_of` gives it, not empty.
    """

    def __init__(self, app: ASGIApp, base_path: str) -> None:
        self._app = app
        self._base = unquote(base_path)  # as a scope has its path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._base}/"):
            scope = {
                **scope,
                "path": scope["path"].removeprefix(self._base) or "/",
                "raw_path": self._inside(scope.get("raw_path")),
            }
        await self._app(scope, receive, send)

    def _inside(self, raw: bytes | None) -> bytes | None:
        """The raw path without the base.

        The decoded path cannot say any more whether its bytes were UTF-8.
        """
        if raw is None:
            return None
        return quote(unquote_to_bytes(raw).removeprefix(self._base.encode()) or b"/").encode()
