"""The store and the catalog together, as a Dagster resource and for the command line."""

from functools import cached_property

import dagster as dg
from pydantic import Field

from halving import Store
from resources.catalog import Catalog
from resources.catalog.opening import open_catalog


class Backend(dg.ConfigurableResource):
    """Where everything is kept: files in the store, control state in the catalog."""

    root: str | None = Field(
        default=None,
        description=(
            "Root of the store: a folder or s3://bucket/prefix (default: HALVING_ROOT, then ./.halving)."
        ),
    )
    catalog_url: str | None = Field(
        default=None,
        description=(
            "SQLAlchemy URL of the catalog (default: HALVING_CATALOG, then catalog.db in the store's folder)."
        ),
    )

    @cached_property
    def store(self) -> Store:
        """The store at the configured root."""
        return Store(self.root)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog; see :func:`resources.catalog.opening.open_catalog`."""
        return open_catalog(self.store, self.catalog_url)
