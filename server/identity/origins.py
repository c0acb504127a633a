"""Where a request comes from.

Whether it addresses this server as its own machine, and whether another site's page has sent it.
"""

import ipaddress
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether a host (a name or an address, without a port) means this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(host: str) -> str:
    """The name or address in a Host header; empty where it holds none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def foreign_origin(origin: str | None, fetch_site: str | None, host: str) -> str | None:
    """The other site whose page sent a request, for a message.

    None: it is this server's own page, or no page at all.

    Args:
        origin: the header ``Origin``, which browsers send with every write.
        fetch_site: the header ``Sec-Fetch-Site``, which tells it where there is no ``Origin``.
        host: the header ``Host``. Schemes are not compared: a proxy may have ended TLS.
    """
    if origin is not None:
        scheme = origin.partition("://")[0]
        here = _place(f"{scheme}://{host}")
        if here is not None and _place(origin) == here:
            return None
        return origin
    if fetch_site in (None, "same-origin", "none"):
        return None
    return f"a page that is {fetch_site}"


def _place(origin: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(origin)
        if parts.hostname:
            return parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
        return None
    except ValueError:
        return None
