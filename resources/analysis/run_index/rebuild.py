"""Rebuilding the index from the store while it is in use."""

from collections.abc import Callable

from sqlalchemy import update

from halving.store.store import Store
from resources.analysis.run_index.refresh import Refreshed, Refresher
from resources.analysis.run_index.write import count_revision
from resources.catalog import Catalog, RunIndexRow


def rebuild(
    store: Store, catalog: Catalog, progress: Callable[[Refreshed], None] | None = None, *, processes: int = 1
) -> Refreshed:
    """Read every run of the store again, and say what was done.

    Args:
        progress: called now and then.
        processes: how many processes read runs.

    Each row stays as it was until it is replaced, so readers never see an empty index. If this process is
    killed, the next refresh goes on from there.

    Raises:
        StoreError: the store cannot be listed, or does not answer any more.
    """
    mark_stale(catalog)
    return Refresher(store, catalog, processes=processes).refresh(progress=progress)


def mark_stale(catalog: Catalog) -> None:
    """Have refreshes read every run again that is in the index now."""
    with catalog.write() as session:
        revision = count_revision(session)
        session.execute(update(RunIndexRow).values(stale_below=revision + 1))
