"""A cache of the studies that external loops train, each with its scheduler in memory."""

import threading
from collections import OrderedDict
from concurrent.futures import Future

from resources.catalog import Catalog
from resources.execution.external_loops import ExternalLoops

_MAX_STUDIES = 64  # a study of ten thousand trials takes some megabytes
_RETRY_SECONDS = 2.0  # while the catalog is away; the loop asks again


class StudyCache:
    """Keeps the studies that were used last.

    The others are read again from the catalog when they are asked for.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._studies: OrderedDict[str, Future[ExternalLoops]] = OrderedDict()

    def of(self, study: str) -> ExternalLoops:
        """The loops of one study, read from the catalog if they are not cached.

        The first who asks reads it; those who ask for the same meanwhile wait, and nobody else does.

        Raises:
            NotFound: no such sweep.
            DrivenOtherwise: Dagster runs its trials.
        """
        with self._lock:
            future = self._studies.get(study)
            is_new = study not in self._studies
            if future is None:
                future = self._studies[study] = Future()
            self._studies.move_to_end(study)
        if is_new:
            self._read(study, future)
        return future.result()

    def problem(self, study: str) -> str | None:
        """Why a study's loops get no trial, as far as they have asked here. Nothing is read for it."""
        with self._lock:
            future = self._studies.get(study)
        if future is None or not future.done() or future.exception():
            return None
        return future.result().problem

    def close(self) -> None:
        """Close all studies."""
        with self._lock:
            left = list(self._studies.values())
            self._studies.clear()
        _close(left)

    def _read(self, study: str, future: "Future[ExternalLoops]") -> None:
        try:
            future.set_result(ExternalLoops(self._catalog, study, retry_seconds=_RETRY_SECONDS))
        except BaseException as error:  # noqa: BLE001
            # Whoever waits gets the error, and whoever asks next tries again.
            with self._lock:
                if self._studies.get(study) is future:
                    del self._studies[study]
            future.set_exception(error)
            return
        with self._lock:  # not before: a study that there is none of takes nobody's place
            forgotten = [
                self._studies.popitem(last=False)[1] for _ in range(len(self._studies) - _MAX_STUDIES)
            ]
        _close(forgotten)


def _close(futures: "list[Future[ExternalLoops]]") -> None:
    """Close studies; one that is still being read is closed once it is there."""
    for future in futures:
        future.add_done_callback(lambda done: None if done.exception() else done.result().close())
