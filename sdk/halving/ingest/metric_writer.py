"""The way of metric points from ``log()`` into the journal at once, and to the store by one daemon thread.

Nothing here raises into training. While the store cannot be reached the journal keeps the points and writing
is retried; what exceeds the journal's bound is dropped, counted, and reported when the run finishes.
"""

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from halving.errors import StoreUnavailable
from halving.ingest.device_tensors import capture
from halving.ingest.drain import Drain
from halving.journal import directory
from halving.journal.appender import Appender, JournalFull
from halving.journal.log_segment import LOG_SEGMENT_BYTES, MAIN
from halving.journal.own_tail import OwnTail
from halving.journal.trust import media_name
from halving.store.backoff import backoff
from halving.store.deadline import Deadline
from halving.store.json_files import to_json
from halving.store.retry import warn
from halving.store.store import Store

MAX_JOURNAL_BYTES = 1 << 30
MAX_DEVICE_CALLS = 10_000  # calls of log() whose values a device computes and nobody has fetched yet
_MAX_DELAY = 60.0
_AGE_SHARE = 0.05
# Seconds between attempts while the store cannot be reached.
_FIRST_PAUSE = 0.2
_MAX_PAUSE = 30.0


class MetricWriter:
    """Streams one attempt's points to ``metrics/project=P/run=RUN/live/ATTEMPT-SEQ.parquet``.

    Args:
        store: where the segments go.
        project, run, attempt: whose points these are.
        delay: seconds that a point waits at most before it is written. In an object store, where each write
            is a request that costs money, it grows with the writer's age, to a twentieth of it and at most 60
            s: a run has written some 20 segments after 100 s, 70 after 20 minutes, and then one a minute.
            ``flush``, a full log segment, a SIGTERM and the end write at once.
        max_bytes: room of the journal while the store cannot be reached; more is dropped and counted.
        log_segment_bytes: size of each of the journal's files.

    Attributes:
        drain: counts the points in the store, and has the last value of each key.
        dropped: points and artifacts that found no room.
    """

    def __init__(
        self,
        store: Store,
        project: str,
        run: str,
        attempt: int,
        *,
        delay: float = 5.0,
        max_bytes: int = MAX_JOURNAL_BYTES,
        log_segment_bytes: int = LOG_SEGMENT_BYTES,
    ) -> None:
        # Imported now, because the thread cannot import them any more when a script ends at once.
        import numpy  # noqa: F401
        import pyarrow.parquet  # noqa: F401

        self._store = store
        self._run = run
        self._delay = delay
        self._began = time.monotonic()
        self._limits = {"max_bytes": max_bytes, "log_segment_bytes": log_segment_bytes}
        self.dropped = 0
        self._refused = self._memory_only = False
        try:
            self.folder = directory.create_folder(store, project, run, attempt)
        except OSError as error:
            # The attempt's folder may be another process's: without its lock neither this process nor its
            # children write there.
            self.folder = directory.no_folder(store, project, run)
            self._memory_only = True
            self._on_refused(error)
        self.appender = self._new_appender(MAIN)
        self.drain = Drain(store, project, run, attempt, self.folder)
        self._tail = OwnTail(self.folder, self.appender)
        # Values that a device may still be computing.
        self._device: list[tuple[tuple[str, ...], Callable[[], list[float]], int, int]] = []
        self._flushes = self._last_flushed = self._failed_ticket = self._spooled_bytes = 0
        self._pauses: Iterator[float] | None = None  # while writing fails
        self._left_alone_until = 0.0  # A server asked for it; by time.monotonic.
        self._spooled = itertools.count(1)
        self._closed = self._complete = self._abandoned = False
        self._wake = _Bell()
        self._done = threading.Condition()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._work, name=f"halving-metrics-{run}", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:  # the system gives no thread, or Ctrl-C
            self._closed = True
            self._wake.ring()
            self.appender.close()
            with contextlib.suppress(RuntimeError):  # it has not begun
                self._thread.join(timeout=5.0)
            directory.release(self.folder, remove=True)
            raise
        _LIVE.add(self)

    def append(self, numbers: Mapping[str, float], step: int, at: int) -> None:
        """Journal one record, or drop and count it where there is no room."""
        try:
            self.appender.append(tuple(numbers), tuple(numbers.values()), step, at)
        except JournalFull as error:
            self._drop(len(numbers), error)

    def append_device(self, tensors: Mapping[str, Any], step: int, at: int) -> None:
        """Remember 0-d tensors that a device may still be computing; the drain thread fetches their values.

        They are copied on the device, so that training may change them; nothing here waits for the device.
        """
        try:
            if len(self._device) >= MAX_DEVICE_CALLS:
                raise JournalFull(f"{MAX_DEVICE_CALLS:,} calls of log() wait for values from a device")
            self._device.extend((keys, fetch, step, at) for keys, fetch in capture(tensors))
        except Exception as error:  # noqa: BLE001
            # The device may have no memory left, or be one that a forked child must not use.
            self._drop(len(tensors), error)

    def append_artifact(
        self, key: str, content: bytes, suffix: str, described: Mapping[str, Any], step: int, at: int
    ) -> None:
        """Write an artifact into the journal's folder and note its reference, or drop and count it.

        It is dropped where there is no room.
        """
        name = media_name(self.appender.name, next(self._spooled), suffix)
        try:
            waiting = self._spooled_bytes - self.drain.unspooled
            if waiting + len(content) > self._limits["max_bytes"]:
                raise JournalFull(f"{waiting >> 20} MiB of artifacts wait for the store")
            self._spooled_bytes += len(content)
            with (self.folder / name).open("wb") as file:
                file.write(content)
            self.appender.note({**described, "key": key, "step": step, "time": at, "file": name})
        except (OSError, JournalFull) as error:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
            self._drop(1, error)

    def flush(self, deadline: float = 5.0, *, insist: bool = True) -> bool:
        """Write everything logged so far; return whether the store has all of it within ``deadline`` seconds.

        Without ``insist`` it also stops waiting at the store's first refusal. The drain thread goes on trying
        either way.
        """
        if self._thread is None:
            return False
        if self._closed:
            return self._complete
        # The drain thread writes, so that a store that hangs holds up the caller no longer than the deadline.
        with self._done:
            self._flushes += 1
            ticket = self._flushes
            self._wake.ring()
            self._done.wait_for(
                lambda: self._last_flushed >= ticket or (not insist and self._failed_ticket >= ticket),
                deadline,
            )
        return self._last_flushed >= ticket

    def close(self, deadline: float = 20.0) -> bool:
        """Flush and stop the thread, within ``deadline`` seconds; return whether the store has everything.

        Call :meth:`release` after it.
        """
        if self._closed or self._thread is None:
            return self._complete
        end = Deadline.after(deadline)
        self._complete = self.flush(deadline)
        self.appender.close()
        # Another thread may have been logging meanwhile.
        self._complete = self._complete and self.flush(max(0.1, end.remaining()))
        self._closed = True
        self._wake.ring()
        self._thread.join(timeout=1.0)
        self.dropped += self.drain.lost_media
        if not self._complete:
            self.dropped += self._tail.points_in_memory(self.drain.drained) + sum(
                len(keys) for keys, _, _, _ in list(self._device)
            )
        _LIVE.discard(self)
        return self._complete

    def release(self, end: Mapping[str, Any] | None = None) -> Path | None:
        """Remove the journal; with ``end`` keep it for recovery, together with how the attempt ended.

        It is kept, too, while a forked child goes on logging: what that child logs is recovered later.

        Returns:
            The folder of a journal that was kept with its end, or None.
        """
        kept = False
        if end is not None:
            with contextlib.suppress(OSError):
                (self.folder / "end.json").write_bytes(to_json({**end, "segments": self.drain.sequence}))
                kept = True
        if self._thread is not None and self._thread.is_alive():
            # The store hangs in a write, and no other process may drain until it has answered.
            self._abandoned = True
        else:
            directory.release(
                self.folder, remove=not kept and not self._tail.has_children(self.drain.drained)
            )
        if not kept:
            return None
        return self.folder

    def _new_appender(self, name: str) -> Appender:
        folder = None if self._memory_only else self.folder
        return Appender(
            folder, name, **self._limits, on_full=lambda: self._wake.ring(), on_refused=self._on_refused
        )

    def _work(self) -> None:
        with contextlib.suppress(Exception):
            # Make the first log segment. If that fails, the first call of log() makes it.
            self.appender.prepare()
        while not self._closed:
            self._wake.wait(self._pause())
            while not self._closed and (left := self._left_alone_until - time.monotonic()) > 0:
                self._wake.wait(left)
            ticket = self._flushes
            try:
                self._pass()
                self._pauses = None
            except Exception as error:  # noqa: BLE001
                # The drain thread outlives any fault, and the journal keeps the points.
                if isinstance(error, StoreUnavailable):
                    self._left_alone_until = time.monotonic() + error.retry_after
                if self._pauses is None:
                    self._pauses = backoff(_FIRST_PAUSE, _MAX_PAUSE)
                    warn(
                        f"cannot write metrics to {self._store.root} ({type(error).__name__}: {error}). "
                        "The journal keeps them, and writing is retried until the run ends"
                    )
            with self._done:
                if self._pauses:
                    self._failed_ticket = ticket
                else:
                    self._last_flushed = ticket
                self._done.notify_all()
            # A flush or a full log segment wakes this thread at once, even while the store cannot be reached:
            # it still gets some rest.
            if self._pauses and not self._closed:
                time.sleep(0.05)
        if self._abandoned:
            directory.release(self.folder, remove=False)

    def _pause(self) -> float:
        if self._pauses:
            return next(self._pauses)
        if not self._store.is_paid_by_request:
            return self._delay
        return max(self._delay, min(_AGE_SHARE * (time.monotonic() - self._began), _MAX_DELAY))

    def _pass(self) -> None:
        """Write everything that is in the journal."""
        self._fetch_from_devices()
        sources = self._tail.sources()
        while self.drain.take(sources):
            self.drain.publish()
        for appender in self._tail.delete_ended():
            self.drain.forget(appender)
        self.appender.prepare()
        self.appender.follow_clock()

    def _fetch_from_devices(self) -> None:
        while self._device:
            keys, fetch, step, at = self._device[0]
            try:
                self.append(dict(zip(keys, fetch(), strict=True)), step, at)
            except Exception as error:  # noqa: BLE001
                # The device or its computation failed, which is no reason to hold up the rest.
                self._drop(len(keys), error)
            self._device.pop(0)

    def _drop(self, count: int, error: Exception) -> None:
        if not self.dropped:
            warn(f"points of run {self._run} are dropped and counted: {error}")
        self.dropped += count

    def _on_refused(self, error: OSError) -> None:
        if not self._refused:
            self._refused = True
            warn(
                f"cannot write the journal of run {self._run} ({error}): points wait in memory, and are "
                "lost if the process dies"
            )

    def _after_fork(self) -> None:
        """Log into log segments of its own, in a forked child such as a worker of a DataLoader.

        The parent drains them.
        """
        self._thread = None
        self._device = []
        self._spooled_bytes = self.drain.unspooled
        self._done = threading.Condition()
        self._wake = _Bell()
        self.appender = self._new_appender(f"{os.getpid()}{time.time_ns()}")  # process ids are used again


class _Bell:
    """Wakes a thread; unlike an Event, a signal handler may ring it that has interrupted the ringing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has been rung already
            self._lock.release()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


_LIVE: "weakref.WeakSet[MetricWriter]" = weakref.WeakSet()


def _in_child() -> None:
    directory.disown_in_child()
    for writer in list(_LIVE):
        writer._after_fork()


os.register_at_fork(after_in_child=_in_child)
