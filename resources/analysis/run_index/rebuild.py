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
    """Read every run of the store again; return what was done.

    Each row stays as it was until it is replaced, so readers never see an empty index. If this process is
    killed, the next refresh goes on from there.

    Args:
        progress: called after each part of the runs, with what was done so far.
        processes: the number of processes that read runs.

    Raises:
        StoreError: the store cannot be listed, or does not answer any more.
    """
    mark_stale(catalog)
    return Refresher(store, catalog, processes=processes).refresh(progress=progress)


def mark_stale(catalog: Catalog) -> None:
    """Mark all runs of the index, so that refreshes read them again."""
    with catalog.write() as session:
        revision = count_revision(session)
        session.execute(update(RunIndexRow).values(stale_below=revision + 1))
