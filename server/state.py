"""What every request of a server shares: the store, the catalog and the settings."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from halving import Store
from resources.catalog import Catalog
from resources.catalog.opening import open_catalog
from server.settings import Settings


@dataclass(frozen=True)
class State:
    """A server's own state; nothing in it is lost with the process."""

    settings: Settings
    store: Store
    catalog: Catalog

    @classmethod
    def of(cls, settings: Settings) -> "State":
        store = Store(settings.root)
        return cls(settings, store, open_catalog(store, settings.catalog_url))


def _state(request: Request) -> State:
    state: State = request.app.state.halving
    return state


Shared = Annotated[State, Depends(_state)]
"""In a route's arguments: the server's state."""
