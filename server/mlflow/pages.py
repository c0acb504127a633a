"""Pages of lists, as MLflow's clients ask for them: a token holds the offset of the next one."""

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
    given = call.fields.get(name) or "ACTIVE_ONLY"
    if str(given).isdecimal() and 1 <= int(given) <= len(VIEWS):
        return list(VIEWS.values())[int(given) - 1]
    if not isinstance(given, str) or given not in VIEWS:
        raise invalid(name, given, f"give one of {', '.join(VIEWS)}")
    return VIEWS[given]


def size(call: Call, otherwise: int, most: int) -> int:
    """``max_results``."""
    found = call.number("max_results", otherwise)
    if not 0 < found <= most:
        raise invalid("max_results", found, f"It must be a positive integer, at most {most}")
    return found


def offset(call: Call, of: Any = None) -> int:
    """Where the page begins; ``of`` is the question whose pages these are, where a token may be used with no
    other.
    """
    token = call.maybe_text("page_token")
    if not token:
        return 0
    try:
        given = json.loads(base64.b64decode(token, validate=True))
        found = given["offset"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, int) or not 0 <= found < 2**62:
        raise Refused("INVALID_PARAMETER_VALUE", "Invalid page token, could not base64-decode")
    if of is not None and given.get("of") != _mark(of):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            "The page token is of another search: its experiments, filter or order were others",
        )
    return found


def token_of(place: int, of: Any = None) -> str:
    """The token of the page that begins there."""
    return base64.b64encode(
        json.dumps({"offset": place, **({"of": _mark(of)} if of is not None else {})}).encode()
    ).decode()


def page(
    items: Sequence[_Item], begins: int, count: int, of: Any = None
) -> tuple[Sequence[_Item], dict[str, Any]]:
    """The items of a page, and what its answer says of the next one."""
    ends = begins + count
    return items[begins:ends], {"next_page_token": token_of(ends, of)} if ends < len(items) else {}


def _mark(question: Any) -> str:
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]
