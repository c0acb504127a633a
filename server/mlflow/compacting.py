"""Compaction of runs with many small segments, because each logging request makes one."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from halving.maintenance.compaction import compact
from halving.store.store import Store

_pool = ThreadPoolExecutor(1, thread_name_prefix="halving-compaction")
_waiting: set[tuple[str, str, str]] = set()
_lock = threading.Lock()
_log = logging.getLogger(__name__)


def compact_soon(store: Store, project: str, run: str) -> None:
    """Queue a run for compaction, unless it is queued already; one run at a time is compacted.

    What fails is tried with the run's next points.
    """
    key = (store.root, project, run)
    with _lock:
        if key in _waiting:
            return
        _waiting.add(key)
    _pool.submit(_compact, store, *key)


def _compact(store: Store, root: str, project: str, run: str) -> None:
    try:
        compact(store, project, run)
    except Exception as error:  # noqa: BLE001  # the run is read as it is
        _log.warning("run %s/%s was not compacted: %s: %s", project, run, type(error).__name__, error)
    finally:
        with _lock:
            _waiting.discard((root, project, run))
