"""Refuses addresses whose bytes are not text, or whose text no database accepts."""

from urllib.parse import unquote_to_bytes

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.access.policy import policy_of
from server.errors import problem


class ReadableAddresses:
    """ASGI middleware that refuses addresses that are not UTF-8 (400) or hold NUL (404; in a query 422)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            app = _refusal(scope) or app
        await app(scope, receive, send)


def _refusal(scope: Scope) -> Response | None:
    # Elsewhere the page says that nothing is there.
    if policy_of(scope) is not None and (reason := _why_not_utf8(scope)):
        return problem(400, reason)
    if not _is_text(scope["path"]):
        return problem(404, "nothing has an address with NUL or half of a surrogate pair in it")
    if b"%00" in scope["query_string"]:
        return problem(422, "the query holds NUL, which is not accepted: no text that is kept has one")
    return None


def _why_not_utf8(scope: Scope) -> str | None:
    """Why an address is refused whose bytes are not UTF-8; None: they are.

    Its path would hold �, as the paths of other such addresses do, so several addresses would be one.
    """
    for part in (scope.get("raw_path") or b"", scope["query_string"]):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError as error:
            address = part.decode("latin-1")
            byte = error.object[error.start]
            return (
                f"address {address!r:.200} is not accepted: its byte %{byte:02X} is no UTF-8; write names in "
                "UTF-8 and percent-encode that"
            )
    return None


def _is_text(text: str) -> bool:
    """Whether every database accepts the text: neither NUL nor half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
