"""The studies whose trials run elsewhere, as far as this process answers their loops: each with its scheduler, in memory."""

import threading
from collections import OrderedDict

from resources.catalog import Catalog
from resources.execution.elsewhere import Elsewhere

_MOST = 64  # a study of ten thousand trials takes some megabytes
_RETRY_SECONDS = 2.0  # while the catalog is away; the loop asks again


class Loops:
    """Keeps the studies that were asked about last; the others are read again from the catalog when they are asked about."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._lock = catalog, threading.Lock()
        self._known: OrderedDict[str, Elsewhere] = OrderedDict()

    def of(self, study: str) -> Elsewhere:
        """One study.

        Raises:
            NotFound: no such sweep.
            DrivenOtherwise: Dagster runs its trials.
        """
        with self._lock:
            if study in self._known:
                self._known.move_to_end(study)
                return self._known[study]
            elsewhere = self._known[study] = Elsewhere(self._catalog, study, retry_seconds=_RETRY_SECONDS)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)[1].close()
            return elsewhere

    def close(self) -> None:
        """End their threads."""
        with self._lock:
            while self._known:
                self._known.popitem()[1].close()
