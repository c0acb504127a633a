"""Opening the catalog of a store, once for each process."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.store.store import Store
from resources.catalog.catalog import Catalog


def open_catalog(store: Store, url: str | None = None, **options: Any) -> Catalog:
    """Open a store's catalog, and bring its schema up to date.

    Args:
        url: an SQLAlchemy URL (default: ``HALVING_CATALOG``, then ``catalog.db`` in the store's folder).
        options: other arguments of :class:`~resources.catalog.catalog.Catalog`, whose defaults suit workers.

    Raises:
        InvalidInput: no URL is given and the store is not a folder, which could hold an SQLite file.
    """
    return _open_once(url_of_catalog(store, url), **options)


def url_of_catalog(store: Store, url: str | None = None) -> str:
    """The URL of a store's catalog: ``url``, else ``HALVING_CATALOG``, else ``catalog.db`` in its folder.

    Raises:
        InvalidInput: no URL is given and the store is not a folder, which could hold an SQLite file.
    """
    url = url or os.environ.get("HALVING_CATALOG")
    if url is None and store.folder is None:
        raise InvalidInput(
            f"catalog_url is needed with the store {store.root}: set HALVING_CATALOG to a Postgres URL"
        )
    return url or f"sqlite:///{store.folder}/catalog.db"


def catalog_at_hand(store: Store, **options: Any) -> Catalog | None:
    """Open a store's catalog if there is one already; None otherwise.

    The options are those of :func:`open_catalog`.
    """
    if not has_catalog(store):
        return None
    return open_catalog(store, **options)


def has_catalog(store: Store) -> bool:
    """Whether a store's catalog exists, or ``HALVING_CATALOG`` says where it is."""
    if os.environ.get("HALVING_CATALOG"):
        return True
    return store.folder is not None and Path(store.folder, "catalog.db").exists()


@cache
def _open_once(url: str, **options: Any) -> Catalog:
    """Open a catalog once in a process, because Dagster makes its resources anew for every tick and step."""
    return Catalog(url, **options)
