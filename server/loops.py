"""The studies that external loops train, as far as this process answers their loops: each with its scheduler, in memory."""

import threading
from collections import OrderedDict

from resources.catalog import Catalog
from resources.execution.external_loops import ExternalLoops

_MOST = 64  # a study of ten thousand trials takes some megabytes
_RETRY_SECONDS = 2.0  # while the catalog is away; the loop asks again


class Loops:
    """Keeps the studies that were asked about last; the others are read again from the catalog when they are asked about."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._lock = catalog, threading.Lock()
        self._known: OrderedDict[str, ExternalLoops] = OrderedDict()

    def of(self, study: str) -> ExternalLoops:
        """One study.

        Raises:
            NotFound: no such sweep.
            DrivenOtherwise: Dagster runs its trials.
        """
        with self._lock:
            if study in self._known:
                self._known.move_to_end(study)
                return self._known[study]
            loops = self._known[study] = ExternalLoops(self._catalog, study, retry_seconds=_RETRY_SECONDS)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)[1].close()
            return loops

    def close(self) -> None:
        """End their threads."""
        with self._lock:
            while self._known:
                self._known.popitem()[1].close()
