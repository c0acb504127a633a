"""All live streams of a server, with one poller for each watched run, however many watch it."""

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from halving.errors import HalvingError, StoreError
from halving.journal import directory
from halving.query.run_follower import BEGINNING, Position
from halving.query.runs import in_threads
from halving.store.store import Store
from server.live.cursor import Run
from server.live.subscription import Backlog, Subscription
from server.live.watcher import Watcher
from server.store_threads import StoreThreads

SECONDS = 1.0
"""From one look to the next: a point is shown within two."""

MAX_STREAMS = 1_000
MAX_PER_CLIENT = 64
MAX_LOCAL = 256
MAX_RUNS = 200
MAX_KEYS = 100
# Threads that open streams, and seconds that a new stream waits for one.
_JOINING = 8
_JOINING_SECONDS = 20.0
_log = logging.getLogger(__name__)


class TooManyStreams(HalvingError, RuntimeError):
    """The limit on open streams is reached, of one client or of all."""


class Hub:
    """The streams of one store. Its thread runs while anybody watches.

    Args:
        seconds: from one look to the next.
        max_streams, max_per_client, max_local: limits on open streams, in all, for each client, and for this
            machine.
    """

    def __init__(
        self,
        store: Store,
        seconds: float = SECONDS,
        max_streams: int = MAX_STREAMS,
        max_per_client: int = MAX_PER_CLIENT,
        max_local: int = MAX_LOCAL,
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._max_streams = max_streams
        self._max_per_client = max_per_client
        self._max_local = max_local
        self._watchers: dict[Run, Watcher] = {}
        self._streams: dict[Subscription, str | None] = {}
        self._backlog = Backlog()
        self._joining = StoreThreads(_JOINING, _JOINING_SECONDS)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._closed = False

    async def open(
        self,
        runs: Collection[Run],
        keys: Collection[str],
        after: Mapping[Run, Position] | None = None,
        *,
        client: str | None = None,
        history: bool = False,
    ) -> Subscription:
        """Open a stream; it must be given back to :meth:`leave`.

        Args:
            after: positions to go on from; a run that is not among them is followed from now on, or from its
                beginning with ``history``.
            client: who asks, for the limit; None is everybody on this machine, where no tokens are asked for.

        Raises:
            NotFound: no such run.
            TooManyStreams: this one is not given.
            StoreError: the store cannot be read.
        """
        subscription = Subscription(runs, keys, asyncio.get_running_loop(), backlog=self._backlog)
        with self._lock:
            if len(self._streams) >= self._max_streams:
                raise TooManyStreams(
                    f"{self._max_streams} streams are open, and more are not given: close others, or come "
                    "again later"
                )
            limit = self._max_per_client
            if client is None:
                limit = self._max_local
            if Counter(self._streams.values())[client] >= limit:
                name = client or "this machine"
                raise TooManyStreams(
                    f"{name} has {limit} streams open, and more are not given to one client: close others"
                )
            self._streams[subscription] = client
        try:
            await self._joining.read(self._join, subscription, after or {}, history)
        except BaseException:
            self.leave(subscription)
            raise
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Close a stream."""
        with self._lock:
            self._streams.pop(subscription, None)
            for run in subscription.runs:
                if watcher := self._watchers.get(run):
                    watcher.leave(subscription)
                    if not watcher.is_watched:
                        self._watchers.pop(run, None)
        subscription.close()

    def close(self) -> None:
        """Close all streams, and open no more."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        self._stop.set()
        for subscription in streams:
            subscription.close()

    def _join(self, subscription: Subscription, after: Mapping[Run, Position], history: bool) -> None:
        beginning = None
        if history:
            beginning = BEGINNING

        def join(run: Run) -> None:
            while True:
                with self._lock:
                    watcher = self._watchers.get(run)
                opened = watcher or Watcher(self._store, run)
                with self._lock:
                    watcher = self._watchers.setdefault(run, opened)
                watcher.join(subscription, after.get(run, beginning))
                with self._lock:
                    if self._watchers.setdefault(run, watcher) is watcher:
                        # Otherwise its last viewer left meanwhile, and another one opened it.
                        return

        try:
            in_threads(join, subscription.runs)
        finally:
            with self._lock:
                # The client gave up while the store was silent.
                gone = self._closed or subscription not in self._streams
                if not gone and self._thread is None:
                    self._thread = threading.Thread(target=self._poll, name="halving-live", daemon=True)
                    self._thread.start()
            if gone:
                self.leave(subscription)

    def _poll(self) -> None:
        while True:
            began = time.monotonic()
            with self._lock:
                watchers = list(self._watchers.values())
                if not watchers or self._closed:
                    self._thread = None
                    return
            try:
                self._look(watchers)
                self._wake()
            except Exception:  # noqa: BLE001  # the streams are told nothing by a thread that has ended
                _log.exception("cannot follow any run; trying again")
            self._stop.wait(max(0.0, self._seconds - (time.monotonic() - began)))

    def _wake(self) -> None:
        """Wake the clients that have events, once for all of their runs."""
        with self._lock:
            streams = list(self._streams)
        for subscription in streams:
            if subscription.waits:
                subscription.wake()

    def _look(self, watchers: list[Watcher]) -> None:
        folders: dict[Run, list[Path]] = defaultdict(list)
        for folder in directory.attempt_folders(self._store):
            whose = directory.whose(folder)
            folders[whose.project, whose.run].append(folder)

        def poll(watcher: Watcher) -> None:
            try:
                watcher.poll(folders.get(watcher.run, ()))
            except StoreError as error:  # the next look misses nothing
                _log.warning("cannot follow run %s: %s", "/".join(watcher.run), error)
            except Exception:  # noqa: BLE001  # one run must not end the others' streams
                _log.exception("cannot follow run %s", "/".join(watcher.run))

        if self._store.folder is not None:
            for watcher in watchers:
                poll(watcher)
        else:
            in_threads(poll, watchers)
