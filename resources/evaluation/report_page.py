"""The page of a sweep's report, as it was made."""

from halving.errors import NotFound
from halving.store.store import Store
from resources.catalog import Catalog, ReportRow
from resources.evaluation.report import report_path


def has_page(store: Store, catalog: Catalog, sweep: str) -> bool:
    """Whether a sweep has a report's page; one without a winner has one, too, which shows what happened."""
    return _digest_of(catalog, sweep) is not None or store.exists(report_path(sweep))


def read_page(store: Store, catalog: Catalog, sweep: str) -> bytes:
    """The HTML of a sweep's report.

    Raises:
        NotFound: it has none yet.
        StoreError: it cannot be read.
    """
    digest = _digest_of(catalog, sweep)
    if digest is not None:
        return store.get_blob(digest)
    if store.exists(report_path(sweep)):
        return store.read(report_path(sweep))
    raise NotFound(f"sweep {sweep} has no evaluation report yet")


def _digest_of(catalog: Catalog, sweep: str) -> str | None:
    with catalog.read() as session:
        row = session.get(ReportRow, sweep)
        return None if row is None else row.html
