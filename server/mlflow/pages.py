"""Pages of lists; the token of a page holds its offset."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from server.mlflow.call import Call, invalid
from server.mlflow.refusals import Refused

VIEWS = {
    "ACTIVE_ONLY": ("active", "archived"),
    "DELETED_ONLY": ("deleted",),
    "ALL": ("active", "archived", "deleted"),
}
"""Our stages, of which its clients know no archived one, by MLflow's view types, in the order of its enum,
which counts from 1.
"""

_Item = TypeVar("_Item")


def stages(call: Call, name: str) -> tuple[str, ...]:
    """The lifecycle stages that a search asks for."""
    view = call.fields.get(name) or "ACTIVE_ONLY"
    if str(view).isdecimal() and 1 <= int(view) <= len(VIEWS):
        return list(VIEWS.values())[int(view) - 1]
    if not isinstance(view, str) or view not in VIEWS:
        raise invalid(name, view, f"give one of {', '.join(VIEWS)}")
    return VIEWS[view]


def size(call: Call, otherwise: int, limit: int) -> int:
    """The requested page size, ``max_results``."""
    count = call.number("max_results", otherwise)
    if not 0 < count <= limit:
        raise invalid("max_results", count, f"It must be a positive integer, at most {limit}")
    return count


def offset(call: Call, question: Any = None) -> int:
    """The offset at which the requested page begins.

    With a ``question``, the token is accepted only for the same question.
    """
    token = call.maybe_text("page_token")
    if not token:
        return 0
    try:
        content = json.loads(base64.b64decode(token, validate=True))
        place = content["offset"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        place = None
    if not isinstance(place, int) or not 0 <= place < 2**62:
        raise Refused("INVALID_PARAMETER_VALUE", "Invalid page token, could not base64-decode")
    if question is not None and content.get("of") != _mark(question):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            "The page token is of another search: its experiments, filter or order were others",
        )
    return place


def token_of(place: int, question: Any = None) -> str:
    """The token of the page that begins at a place."""
    content: dict[str, Any] = {"offset": place}
    if question is not None:
        content["of"] = _mark(question)
    return base64.b64encode(json.dumps(content).encode()).decode()


def page(
    items: Sequence[_Item], begins: int, count: int, question: Any = None
) -> tuple[Sequence[_Item], dict[str, Any]]:
    """The items of a page, and the field with the token of the next one."""
    ends = begins + count
    following = {}
    if ends < len(items):
        following = {"next_page_token": token_of(ends, question)}
    return items[begins:ends], following


def _mark(question: Any) -> str:
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]
