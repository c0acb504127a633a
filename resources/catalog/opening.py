"""Which catalog belongs to a store, and one open catalog for each process."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from halving.errors import InvalidInput
from halving.store.store import Store
from resources.catalog.catalog import Catalog


def open_catalog(store: Store, url: str | None = None, **options: Any) -> Catalog:
    """A store's catalog, with its schema brought up to date.

    Args:
        url: an SQLAlchemy URL (default: ``HALVING_CATALOG``, then ``catalog.db`` in the store's folder).
        options: of :class:`~resources.catalog.catalog.Catalog`, for a process that wants others than workers
            do.

    Raises:
        InvalidInput: no URL is given and the store is not a folder, which could hold an SQLite file.
    """
    return _opened(url_of_catalog(store, url), **options)


def url_of_catalog(store: Store, url: str | None = None) -> str:
    """Where a store's catalog is: the URL that is given, else ``HALVING_CATALOG``, else ``catalog.db`` in the
    store's folder.

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
    """A store's catalog if there is one already: whoever only asks makes none.

    Options as of :func:`open_catalog`.
    """
    return open_catalog(store, **options) if has_catalog(store) else None


def has_catalog(store: Store) -> bool:
    """Whether a store's catalog is there, or somebody says where it is."""
    return bool(os.environ.get("HALVING_CATALOG")) or (
        store.folder is not None and Path(store.folder, "catalog.db").exists()
    )


@cache
def _opened(url: str, **options: Any) -> Catalog:
    """One catalog for each process: Dagster makes its resources anew for every tick and step, and would open
    new connections each time.
    """
    return Catalog(url, **options)
