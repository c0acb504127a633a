"""How connections to Postgres are opened: the catalog's, and those of Dagster's storage."""

import random
from typing import Any

from sqlalchemy import URL

_RECONNECT_SECONDS = 3600  # at most
_OPTIONS: dict[str, Any] = {
    "application_name": "halving",
    # A server whose machine is gone never answers: seconds to wait for each of its addresses, and
    # milliseconds for what was sent.
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_IMPATIENT = {
    "connect_timeout": 2,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 3_000,
}


def driver_options(url: URL, *, patient: bool = True) -> dict[str, Any]:
    """Options of libpq, but for those that the URL has itself; one who answers people is not patient."""
    known = _OPTIONS if patient else _OPTIONS | _IMPATIENT
    return {name: value for name, value in known.items() if name not in url.query}


def recycle_seconds() -> int:
    """After how long a connection is replaced: not the same for all, or processes that started together would
    do so in one instant.
    """
    return round(_RECONNECT_SECONDS * random.uniform(0.5, 1.0))
