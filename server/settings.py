"""What a server is started with."""

from dataclasses import dataclass

PORT = 3001


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A server's settings.

    Attributes:
        root: the store (None: ``HALVING_ROOT``, then ``./.halving``).
        catalog_url: the catalog (None: ``HALVING_CATALOG``, then ``catalog.db`` in the store's folder).
        host, port: where it listens.
        dagster_url: where Dagster's UI is, for links into it; None shows none.
    """

    root: str | None = None
    catalog_url: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    dagster_url: str | None = None
