"""The way of metric points from ``log()`` to the store: a record in the journal, and one daemon thread behind it.

Nothing here raises into training. A store that is away is retried with backoff while the journal keeps the points; what
exceeds the journal's bound is dropped, counted and reported when the run finishes.
"""

import contextlib
import itertools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halving.ingest.drain import Drain, Source, sources_behind
from halving.journal import directory
from halving.journal.appender import PIECE_BYTES, JournalFull, Lane, Piece
from halving.journal.format import MAIN, Block, Reading, is_written, map_piece, piece_files
from halving.store.json_files import to_json
from halving.store.store import Store

MAX_JOURNAL_BYTES = 1 << 30
MAX_DEVICE_CALLS = 10_000  # with values that a device computes, waiting to be fetched
_LONGEST_DELAY = 60.0
_AGE_SHARE = 0.05
_BACKOFF = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between attempts while the store is away


class MetricWriter:
    """Streams one attempt's points to ``metrics/project=P/run=RUN/live/ATTEMPT-SEQ.parquet``.

    Args:
        store: where the segments go.
        project, run, attempt: whose points these are.
        delay: seconds that a point waits at most before it is written. In an object store, where each write is a request that is paid
            for and counted, it grows with the writer's age, to a twentieth of it and at most 60 s: a run has written some 20 segments
            after 100 s, 70 after 20 minutes, and then one a minute. ``flush``, a full piece, a SIGTERM and the end write at once.
        max_bytes: room of the journal while the store is away; more is dropped and counted.
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
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        # Imported now: a script that ends at once leaves the thread no interpreter to import them in.
        import numpy  # noqa: F401
        import pyarrow.parquet  # noqa: F401

        self._store, self._run, self._delay, self._began = store, run, delay, time.monotonic()
        self._limits = {"max_bytes": max_bytes, "piece_bytes": piece_bytes}
        self.dropped = 0
        self._refused = self._memory_only = False
        try:
            self.folder = directory.create_folder(store, project, run, attempt)
        except OSError as error:
            # Without the lock of the attempt's folder, which may be another process's, nothing is written there: not by a child either.
            self.folder, self._memory_only = directory.no_folder(store, project, run), True
            self._on_refused(error)
        self.lane = self._new_lane(MAIN)
        self._drain = Drain(store, project, run, attempt, self.folder)
        self._readings: dict[tuple[str, int], Reading] = {}
        self._device: list[tuple[tuple[str, ...], Any, int, int]] = []  # values that a device still computes
        self._asked = self._answered = self._failed_ticket = self._failures = self._spooled_bytes = 0
        self._spooled = itertools.count(1)
        self._closed = self._complete = self._abandoned = False
        self._wake, self._done = _Bell(), threading.Condition()
        self._thread: threading.Thread | None = threading.Thread(target=self._work, name=f"halving-metrics-{run}", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system gives no thread, or Ctrl-C
            self._closed = True
            self._wake.ring()
            self.lane.close()
            directory.release(self.folder, remove=True)
            raise
        _LIVE.add(self)

    @property
    def last(self) -> dict[str, float]:
        """Key to the value logged last, of what is in the store."""
        return self._drain.last

    @property
    def points(self) -> int:
        """Points that are in the store."""
        return self._drain.points

    def append(self, numbers: Mapping[str, float], step: int, at: int) -> None:
        """Journal one record, or drop and count it where there is no room."""
        try:
            self.lane.append(tuple(numbers), tuple(numbers.values()), step, at)
        except JournalFull as error:
            self._drop(len(numbers), error)

    def append_device(self, tensors: Mapping[str, Any], step: int, at: int) -> None:
        """Remember 0-d tensors that a device may still be computing: the drain thread fetches them.

        One kernel copies them, so that training may change them; nothing here waits for the device.
        """
        from halving.ingest.device_tensors import capture

        try:
            if len(self._device) >= MAX_DEVICE_CALLS:
                raise JournalFull(f"{MAX_DEVICE_CALLS:,} calls of log() wait for values from a device")
            self._device.extend((keys, pending, step, at) for keys, pending in capture(tensors))
        except Exception as error:  # noqa: BLE001  # a device without memory, or one that a forked child may not use
            self._drop(len(tensors), error)

    def append_artifact(self, key: str, content: bytes, suffix: str, described: Mapping[str, Any], step: int, at: int) -> None:
        """Spool an artifact's content beside the journal and note its reference; or drop and count it where there is no room."""
        name = f"media-{self.lane.name}-{next(self._spooled):06d}{suffix}"
        try:
            waiting = self._spooled_bytes - self._drain.unspooled
            if waiting + len(content) > self._limits["max_bytes"]:
                raise JournalFull(f"{waiting >> 20} MiB of artifacts wait for the store")
            self._spooled_bytes += len(content)
            with (self.folder / name).open("wb") as file:
                file.write(content)
            self.lane.note({**described, "key": key, "step": step, "time": at, "file": name})
        except (OSError, JournalFull) as error:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
            self._drop(1, error)

    def flush(self, deadline: float = 5.0, *, insist: bool = True) -> bool:
        """Write everything logged so far and say whether all of it is in the store, after ``deadline`` s at most.

        Without ``insist`` the store's first refusal is the answer; the drain thread goes on trying either way.
        """
        if self._thread is None:
            return False
        if self._closed:
            return self._complete
        # The drain thread writes, so that a store that hangs holds up the caller no longer than the deadline.
        with self._done:
            self._asked += 1
            ticket = self._asked
            self._wake.ring()
            self._done.wait_for(lambda: self._answered >= ticket or (not insist and self._failed_ticket >= ticket), deadline)
        return self._answered >= ticket

    def close(self, deadline: float = 20.0) -> bool:
        """Flush and stop the thread, in ``deadline`` s at most; say whether the store has everything. :meth:`release` comes after it."""
        if self._closed or self._thread is None:
            return self._complete
        end = time.monotonic() + deadline
        self._complete = self.flush(deadline)
        self.lane.close()
        self._complete = self._complete and self.flush(max(0.1, end - time.monotonic()))  # what another thread was logging
        self._closed = True
        self._wake.ring()
        self._thread.join(timeout=1.0)
        self.dropped += self._drain.lost_media
        if not self._complete:
            self.dropped += self._in_memory_only() + sum(len(keys) for keys, _, _, _ in list(self._device))
        _LIVE.discard(self)
        return self._complete

    def release(self, end: Mapping[str, Any] | None = None) -> Path | None:
        """Take the journal away. With ``end`` keep it, and how the attempt ended, for the recovery: gives the folder, if it could.

        It stays, too, while a forked child logs on: what that child logs is recovered later.
        """
        kept = False
        if end is not None:
            with contextlib.suppress(OSError):
                (self.folder / "end.json").write_bytes(to_json({**end, "segments": self._drain.sequence}))
                kept = True
        if self._thread is not None and self._thread.is_alive():
            self._abandoned = True  # the store hangs in the middle of a write: nobody else may drain until it has answered
        else:
            directory.release(self.folder, remove=not kept and not self._children_left())
        return self.folder if kept else None

    def _children_left(self) -> bool:
        """Whether a forked child still logs, or has logged behind what was drained."""
        if any(is_written(path) for files in self._children().values() for _, path in files):
            return True
        try:
            behind = sources_behind(self.folder, self._drain.drained)
        except OSError:
            return False
        return any(next(source.reading.blocks(), None) is not None for source in behind if source.lane != MAIN)

    def _new_lane(self, name: str) -> Lane:
        folder = None if self._memory_only else self.folder
        return Lane(folder, name, **self._limits, on_full=lambda: self._wake.ring(), on_refused=self._on_refused)

    def _work(self) -> None:
        with contextlib.suppress(Exception):  # the first piece; a lane that has none makes one when it needs it
            self.lane.prepare()
        while not self._closed:
            self._wake.wait(self._pause())
            ticket = self._asked
            try:
                self._pass()
                self._failures = 0
            except Exception as error:  # noqa: BLE001  # the drain thread outlives any fault; the journal keeps the points
                self._failures += 1
                if self._failures == 1:
                    self._warn(
                        f"cannot write metrics to {self._store.root} ({type(error).__name__}: {error}); keeping them and trying again"
                    )
                with self._done:
                    self._failed_ticket = ticket
                    self._done.notify_all()
            else:
                with self._done:
                    self._answered = ticket
                    self._done.notify_all()
            # A flush or a full piece may wake this thread at once; while the store is away it still gets some rest.
            if self._failures and not self._closed:
                time.sleep(0.05)
        if self._abandoned:
            directory.release(self.folder, remove=False)

    def _pause(self) -> float:
        if self._failures:
            return _BACKOFF[min(self._failures, len(_BACKOFF)) - 1]
        if self._store.folder is not None:
            return self._delay
        return max(self._delay, min(_AGE_SHARE * (time.monotonic() - self._began), _LONGEST_DELAY))

    def _pass(self) -> None:
        """Write everything that is in the journal."""
        self._fetch_from_devices()
        sources, ended = self._sources()
        while self._drain.take(sources):
            self._drain.publish()
        for lane, number in ended:
            self._forget(lane, number)
        self.lane.prepare()
        self.lane.follow_clock()

    def _sources(self) -> tuple[list[Source], list[tuple[str, int]]]:
        """The pieces to read, and those of them that nobody writes any more."""
        sources, ended = [], []
        for number, piece in sorted(self.lane.pieces.items()):
            if piece.sealed:  # asked before its end is read
                ended.append((MAIN, number))
            sources.append(Source(MAIN, number, self._reading(MAIN, number, piece)))
        for lane, files in self._children().items():
            alive = is_written(files[-1][1])  # asked before its end is read, too
            for number, path in files:
                try:
                    sources.append(Source(lane, number, self._reading(lane, number, path)))
                except (FileNotFoundError, ValueError):  # not a piece
                    continue
                if not alive or number != files[-1][0]:
                    ended.append((lane, number))
        return sources, ended

    def _children(self) -> dict[str, list[tuple[int, Path]]]:
        """What forked children log: pieces of lanes that are not ours."""
        try:
            return {lane: files for lane, files in piece_files(self.folder).items() if lane != MAIN}
        except OSError:
            return {}

    def _reading(self, lane: str, number: int, piece: Piece | Path) -> Reading:
        known = self._readings.get((lane, number))
        if known is None:
            memory, verify = (map_piece(piece), True) if isinstance(piece, Path) else (piece.memory, False)
            known = self._readings[lane, number] = Reading(memory, verify=verify)
        return known

    def _forget(self, lane: str, number: int) -> None:
        self._readings.pop((lane, number), None)
        piece = self.lane.pieces.pop(number, None) if lane == MAIN else None
        path = piece.path if piece else self.folder / f"{lane}-{number:06d}.journal"
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
        if lane != MAIN and not any(other == lane for other, _ in self._readings):
            self._drain.forget(lane)

    def _fetch_from_devices(self) -> None:
        while self._device:
            keys, pending, step, at = self._device[0]
            try:
                self.append(dict(zip(keys, pending.fetch(), strict=True)), step, at)
            except Exception as error:  # noqa: BLE001  # the device is gone, or its computation failed: no reason to hold up the rest
                self._drop(len(keys), error)
            self._device.pop(0)

    def _in_memory_only(self) -> int:
        """Points that no disk took, and that end with this process."""
        count, (last, offset) = 0, self._drain.drained.get(MAIN, [-1, 0])
        for number, piece in list(self.lane.pieces.items()):
            if piece.path is None and number >= last:
                reading = Reading(piece.memory, verify=False)
                blocks = [block for block in reading.blocks() if isinstance(block, Block)]
                count += sum(block.records * (block.length // 8 - 4) for block in blocks if number > last or block.start >= offset)
        return count

    def _drop(self, count: int, error: Exception) -> None:
        if not self.dropped:
            self._warn(f"dropping points of run {self._run}: {error}")
        self.dropped += count

    def _on_refused(self, error: OSError) -> None:
        if not self._refused:
            self._refused = True
            self._warn(f"cannot write the journal of run {self._run} ({error}); points wait in memory, and a killed process loses them")

    def _warn(self, message: str) -> None:
        with contextlib.suppress(Warning):  # `python -W error` raises it, and neither training nor the drain thread may end by it
            warnings.warn(f"halving: {message}", stacklevel=2)

    def _after_fork(self) -> None:
        """A forked child (a DataLoader worker) logs into a lane of its own, which the parent drains."""
        self._thread = None
        self._device, self._spooled_bytes = [], self._drain.unspooled
        self._done = threading.Condition()
        self._wake = _Bell()
        self.lane = self._new_lane(f"{os.getpid()}{time.time_ns()}")  # process ids come again


class _Bell:
    """Wakes a thread. Unlike an Event it may be rung by a signal handler that interrupts the ringing."""

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
