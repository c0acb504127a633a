"""What a server is started with."""

from dataclasses import dataclass

from server.identity.origins import is_loopback

PORT = 3001


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A server's settings.

    Attributes:
        root: the store (None: ``HALVING_ROOT``, then ``./.halving``).
        catalog_url: the catalog (None: ``HALVING_CATALOG``, then ``catalog.db`` in the store's folder).
        host, port: where it listens.
        tokens: ask for tokens also when it listens on this machine alone, because a proxy there lets others in.
        dagster_url: where Dagster's UI is, for links into it; None shows none.
    """

    root: str | None = None
    catalog_url: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    tokens: bool = False
    dagster_url: str | None = None

    @property
    def asks_for_tokens(self) -> bool:
        """Whether who asks must have a token: always, unless only this machine can ask."""
        return self.tokens or not is_loopback(self.host)
