"""Records what of a run changes after its begin: config, tags, defined metrics, and assigned summary values.

A record is written once, so changes are amendments (:mod:`halving.records.amendments`). Each is a file with
everything, so a thread of its own writes the newest state: a second after the first change, and then the more
seldom the longer the run lasts. A killed process loses changes that were not written yet; ``flush`` and the
run's end write them at once.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from halving.records.amendments import Amendment, amend
from halving.store.retry import retry_while_unavailable, warn
from halving.store.store import Store

_FIRST_DELAY = 1.0
_AGE_SHARE = 0.02  # of the run's age that the next change waits
_MAX_DELAY = 60.0
_END_SECONDS = 10.0  # that the end of a run waits for its store


class RecordedChanges:
    """Writes changes of one run, by a daemon thread that is started at the first of them.

    Args:
        store, folder: where the run's record is.
        run: its id, for messages.
        tags: those that it has from its script, so that those that others add meanwhile stay.
        params: the names of those that it had before, so that those that others add meanwhile stay.
    """

    def __init__(
        self, store: Store, folder: str, run: str, tags: Mapping[str, str], params: Collection[str] = ()
    ) -> None:
        self._store = store
        self._folder = folder
        self._run = run
        self._process = os.getpid()
        self._params = params
        self._began = time.monotonic()
        self._sources: dict[str, Callable[[], Any]] = {}
        self._written: dict[str, Any] = {"tags": dict(tags)}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned = self._closed = False

    def note(self, field: str, read: Callable[[], Any]) -> None:
        """Note that a field of the amendment has changed; ``read`` gives its state when it is written."""
        if self._closed or os.getpid() != self._process:
            return  # A forked child has neither the thread nor the right to the run's record.
        self._sources[field] = read
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name=f"halving-changes-{self._run}", daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None  # The interpreter ends, and flush() writes it.

    def flush(self) -> bool:
        """Write what has changed; returns whether the store has it. It does not raise."""
        if os.getpid() != self._process:
            return True
        with self._lock:
            self._wake.clear()
            try:
                self._write()
            except Exception as error:  # noqa: BLE001
                # Whatever the store raises, training goes on; the next change or the end tries again.
                self._wake.set()
                if not self._warned:
                    self._warned = True
                    warn(f"changes of the config of {self._run} cannot be recorded yet: {error}")
                return False
        return True

    def close(self) -> None:
        """Write what has changed, and end the thread; what is noted later is not written.

        It waits some seconds for a store that is unavailable, and does not raise.
        """
        if os.getpid() == self._process:
            with self._lock:
                what = f"what has changed of {self._run}"
                try:
                    retry_while_unavailable(self._store, what, self._write, longest=_END_SECONDS)
                except Exception as error:  # noqa: BLE001
                    # The run's end must be recorded all the same.
                    warn(f"changes of the config of {self._run} are lost: {error}")
        self._closed = True
        self._wake.set()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            if self._closed:
                return
            age = time.monotonic() - self._began
            time.sleep(min(max(_FIRST_DELAY, _AGE_SHARE * age), _MAX_DELAY))
            if self._closed:
                return
            self.flush()

    def _write(self) -> None:
        try:
            state = {field: read() for field, read in dict(self._sources).items()}
        except RuntimeError:  # A dict changed while it was copied: there is a next time.
            self._wake.set()
            return
        changed = {field: value for field, value in state.items() if self._written.get(field) != value}
        if changed:
            tags = self._written["tags"]
            amend(self._store, self._folder, lambda before: _amended(before, changed, tags, self._params))
            self._written |= changed


def _amended(
    before: Amendment, changed: dict[str, Any], tags: Mapping[str, str], params: Collection[str]
) -> Amendment:
    """The amendment with what has changed; tags and params that others have added meanwhile stay.

    Args:
        tags: those that the run had from its script before.
        params: the names of those that the run had before; a new attempt need not have them.
    """
    after = {**before, **changed}
    if "tags" in changed:
        dropped = tags.keys() - changed["tags"].keys()
        others = {name: tag for name, tag in before.get("tags", tags).items() if name not in dropped}
        after["tags"] = others | changed["tags"]
    if "params" in changed:
        others = {name: value for name, value in before.get("params", {}).items() if name not in params}
        after["params"] = others | changed["params"]
    return after
