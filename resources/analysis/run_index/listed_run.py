"""A store for reading one run that lists the run's folders only once.

On an object store each listing is a request, and costs as much as ten others.
"""

from collections.abc import Iterable

from halving.errors import NotFound
from halving.metrics.manifest import run_folder
from halving.metrics.segments import live_folder
from halving.store.store import Store


class ListedRun(Store):
    """A store that has listed one run's folders.

    Each listing is returned once. A second call means that a file of it is gone by now, and lists anew.

    Attributes:
        records, metrics, live: the names in the folders of the run's records, of its metric files and of its
            segments.

    Raises:
        NotFound: the run has no record.
        StoreError: the store cannot be listed.
    """

    def __init__(self, store: Store, project: str, run: str) -> None:
        store.path("")  # opens the store, so that the copies made for each run share its connection
        self.__dict__ |= store.__dict__
        records = f"runs/project={project}/{run}"
        metrics = run_folder(project, run)
        live = live_folder(project, run)
        self.records = super().names(records)
        if "record.json" not in self.records:
            raise NotFound(f"no run {run!r} in project {project!r} of {store.root}")
        # Segments are listed before the manifest, as in halving.metrics.manifest.run_files. One listing of
        # both has this order by the names.
        if self.folder is not None:
            self.live = super().names(live)
            self.metrics = super().names(metrics)
        else:
            below = [name.removeprefix(f"{metrics}/").split("/") for name, _, _ in self.files(metrics)]
            self.live = _visible_names(name for folder, *names in below if folder == "live" for name in names)
            self.metrics = _visible_names(name for name, *_ in below)
        self._listings = {records: self.records, metrics: self.metrics, live: self.live}

    def names(self, prefix: str) -> list[str]:
        listing = self._listings.pop(prefix, None)
        if listing is None:
            return super().names(prefix)
        return listing


def _visible_names(names: Iterable[str]) -> list[str]:
    """Names in the form that :meth:`Store.names` gives: sorted, distinct, without hidden ones."""
    return sorted({name for name in names if not name.startswith(".")})
