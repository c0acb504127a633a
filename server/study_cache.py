"""The studies that external loops train, as far as this process answers their loops: each with its scheduler,
in memory.
"""

import threading
from collections import OrderedDict
from concurrent.futures import Future

from resources.catalog import Catalog
from resources.execution.external_loops import ExternalLoops

_MOST = 64  # a study of ten thousand trials takes some megabytes
_RETRY_SECONDS = 2.0  # while the catalog is away; the loop asks again


class StudyCache:
    """Keeps the studies that were asked about last; the others are read again from the catalog when they are
    asked about.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[ExternalLoops]] = OrderedDict()

    def of(self, study: str) -> ExternalLoops:
        """One study.

        The first who asks reads it; those who ask for the same meanwhile wait, and nobody else does.

        Raises:
            NotFound: no such sweep.
            DrivenOtherwise: Dagster runs its trials.
        """
        with self._lock:
            found = self._known.get(study)
            new = study not in self._known
            if found is None:
                found = self._known[study] = Future()
            self._known.move_to_end(study)
        if new:
            self._read(study, found)
        return found.result()

    def problem(self, study: str) -> str | None:
        """Why a study's loops get no trial, as far as they have asked here; nothing is read for it."""
        with self._lock:
            found = self._known.get(study)
        return found.result().problem if found and found.done() and not found.exception() else None

    def close(self) -> None:
        """End their threads."""
        with self._lock:
            left = list(self._known.values())
            self._known.clear()
        _close(left)

    def _read(self, study: str, place: "Future[ExternalLoops]") -> None:
        try:
            place.set_result(ExternalLoops(self._catalog, study, retry_seconds=_RETRY_SECONDS))
        except BaseException as error:  # noqa: BLE001
            # whoever waits is told, and whoever asks next tries again
            with self._lock:
                if self._known.get(study) is place:
                    del self._known[study]
            place.set_exception(error)
            return
        with self._lock:  # not before: a study that there is none of takes nobody's place
            left = [self._known.popitem(last=False)[1] for _ in range(len(self._known) - _MOST)]
        _close(left)


def _close(left: "list[Future[ExternalLoops]]") -> None:
    """End the threads of studies, of one that is being read as soon as it is there."""
    for place in left:
        place.add_done_callback(lambda done: None if done.exception() else done.result().close())
