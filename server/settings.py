"""Settings of a server."""

from dataclasses import dataclass

from halving.errors import InvalidInput
from resources.alerts.addresses import parse_networks
from server.base_path import base_path_of
from server.identity.origins import is_loopback

PORT = 3001
WRITE_LOG_DAYS = 400.0
"""Days that the write log keeps a write by default: a year, and time to look back at it."""

_MAX_DAYS = 36_500
_MAX_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A server's settings.

    Attributes:
        root: the store (None: ``HALVING_ROOT``, then ``./.halving``).
        catalog_url: the catalog (None: ``HALVING_CATALOG``, then ``catalog.db`` in the store's folder).
        host, port: where it listens.
        tokens: ask for tokens also when it listens on this machine alone, because a proxy there lets others
            in.
        base_path: below which people see the server, behind a proxy that puts it there; a slash at its end is
            dropped.
        dagster_url: where Dagster's UI is, for links into it; None shows none.
        write_log_days: after which the write log forgets a write; None keeps all.
        page_url: where people reach the page, for links in messages of alerts; None: they have none.
        alert_networks: private networks that messages of alerts may be sent to, such as ``10.1.0.0/16``.

    Raises:
        InvalidInput: ``port``, ``write_log_days``, ``base_path`` or a network is not accepted.
    """

    root: str | None = None
    catalog_url: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    tokens: bool = False
    base_path: str = ""
    dagster_url: str | None = None
    write_log_days: float | None = WRITE_LOG_DAYS
    page_url: str | None = None
    alert_networks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.port <= _MAX_PORT:  # the system takes a larger number for another port
            raise InvalidInput(f"port = {self.port} is not accepted: give 1 to {_MAX_PORT}")
        if self.write_log_days is not None and not 0 < self.write_log_days <= _MAX_DAYS:
            raise InvalidInput(
                f"write_log_days = {self.write_log_days:g} is not accepted: give more than 0, at most "
                f"{_MAX_DAYS}"
            )
        parse_networks(self.alert_networks)
        object.__setattr__(self, "base_path", base_path_of(self.base_path))

    @property
    def asks_for_tokens(self) -> bool:
        """Whether who asks must have a token: always, unless only this machine can ask."""
        return self.tokens or not is_loopback(self.host)
