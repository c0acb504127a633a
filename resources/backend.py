"""The store and the catalog together, as a Dagster resource and for the command line."""

import os
from functools import cache, cached_property

import dagster as dg
from pydantic import Field

from halving import Store
from halving.errors import InvalidInput
from resources.catalog import Catalog


class Backend(dg.ConfigurableResource):
    """Where everything is kept: files in the store, control state in the catalog."""

    root: str | None = Field(
        default=None, description="Root of the store: a folder or s3://bucket/prefix (default: HALVING_ROOT, then ./.halving)."
    )
    catalog_url: str | None = Field(
        default=None, description="SQLAlchemy URL of the catalog (default: HALVING_CATALOG, then catalog.db in the store's folder)."
    )

    @cached_property
    def store(self) -> Store:
        return Store(self.root)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, with its schema brought up to date.

        Raises:
            InvalidInput: no catalog URL is given and the store is not a folder, which could hold an SQLite file.
        """
        url = self.catalog_url or os.environ.get("HALVING_CATALOG")
        if url is None and self.store.folder is None:
            raise InvalidInput(f"catalog_url is needed with the store {self.store.root}: set HALVING_CATALOG to a Postgres URL")
        return _opened(url or f"sqlite:///{self.store.folder}/catalog.db")


@cache
def _opened(url: str) -> Catalog:
    """One catalog for each process: Dagster makes the resource anew for every tick and step, and would open new connections each time."""
    return Catalog(url)
