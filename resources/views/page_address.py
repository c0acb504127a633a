"""What the address of a page shows: a run, a sweep, or a view of Compare."""

from typing import Literal
from urllib.parse import unquote, urlsplit

_OTHER_PAGES = ("alerts", "runs", "sweeps", "models", "datasets", "journal", "login", "shared", "api")
"""Parts of the path of each page beside Compare's, which is the path where the server is."""


def is_address(text: str) -> bool:
    """Whether a person means an address, and neither a name nor a filter."""
    return "://" in text or text.startswith(("/", "?"))


def parse_address(text: str) -> tuple[Literal["run", "sweep", "view"], str] | None:
    """What an address shows: ``project/run``, a sweep's id, or a view's query; None: none of these.

    The server may be below a path of any name.
    """
    try:
        address = urlsplit(text)
    except ValueError:  # such as an IPv6 address without its end
        return None
    parts = address.path.rstrip("/").split("/")
    if len(parts) > 2 and parts[-3] == "runs":
        return "run", f"{unquote(parts[-2])}/{unquote(parts[-1])}"
    if len(parts) > 1 and parts[-2] == "sweeps":
        return "sweep", unquote(parts[-1])
    if set(_OTHER_PAGES).intersection(parts[-3:]):
        return None
    return "view", address.query
