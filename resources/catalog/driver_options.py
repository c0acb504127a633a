"""Options of connections to Postgres, for the catalog and for Dagster's storage."""

import random
from typing import Any

from sqlalchemy import URL

_RECONNECT_SECONDS = 3600  # at most
_OPTIONS: dict[str, Any] = {
    "application_name": "halving",
    # Seconds to wait for each of a server's addresses, and milliseconds for what was sent, because a server
    # whose machine is gone never answers.
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
    """The options of libpq, without those that the URL sets.

    Args:
        patient: whether the process can wait; one that answers people cannot.
    """
    options = _OPTIONS
    if not patient:
        options = _OPTIONS | _IMPATIENT
    return {name: value for name, value in options.items() if name not in url.query}


def recycle_seconds() -> int:
    """After how long a connection is replaced; random, so that processes do not all do so at once."""
    return round(_RECONNECT_SECONDS * random.uniform(0.5, 1.0))
