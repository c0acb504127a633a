"""Readers of runs with what they have read, for as long as the runs have no other points: the next question reads nothing again."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from halving.query.curve_reader import RunCurves, open_run_curves
from halving.store.store import Store

MOST_BYTES = 256 << 20
_ITSELF = 8 << 10  # bytes that a reader takes without what it has read, about

Run = tuple[str, str]
_Name = tuple[str, str, tuple[str, ...]]  # project, run, keys


class KeptReaders:
    """A bounded memory of readers. The one that was not asked for the longest goes first.

    Args:
        most: bytes of what they hold.
    """

    def __init__(self, store: Store, most: int = MOST_BYTES) -> None:
        self._store, self._most = store, most
        self._kept: OrderedDict[_Name, tuple[bytes, RunCurves]] = OrderedDict()
        self._lock = threading.Lock()

    def opening(self, stamps: Mapping[Run, bytes]) -> Callable[[str, str, Sequence[str]], RunCurves]:
        """What opens a run's reader for some keys, or gives the one that was opened while the run had the same stamp.

        Args:
            stamps: made before, so that a reader never has less than its stamp says.
        """

        def opened(project: str, run: str, keys: Sequence[str]) -> RunCurves:
            name, stamp = (project, run, tuple(keys)), stamps[project, run]
            with self._lock:
                known, reader = self._kept.get(name, (b"", None))
                if reader is not None and known == stamp:
                    self._kept.move_to_end(name)
                    return reader
            reader = open_run_curves(self._store, project, run, keys)
            with self._lock:
                self._kept[name] = stamp, reader
                self._kept.move_to_end(name)
            return reader

        return opened

    def shrink(self) -> None:
        """Forget as many as are too many; to be called after they have read."""
        with self._lock:
            size = sum(reader.size + _ITSELF for _, reader in self._kept.values())
            while size > self._most:
                size -= self._kept.popitem(last=False)[1][1].size + _ITSELF
