"""The way of metric points from ``log()`` to Parquet: a list append on the hot path, one daemon thread behind it.

Nothing here raises into training: a store that is away is retried with backoff, and what exceeds the bound is
dropped, counted and reported when the run finishes.
"""

import contextlib
import os
import threading
import time
import warnings
import weakref
from typing import Any, NamedTuple

from halving.store import Store

COLUMNS = ("run", "attempt", "key", "step", "wall_time", "value")
_BACKOFF = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between attempts while the store is away


class Record(NamedTuple):
    """One ``log()`` call as it was made; values are converted on the drain thread."""

    step: int
    wall_time: int
    values: dict[str, Any]


class MetricWriter:
    """Streams one attempt's points to ``metrics/project=P/run=RUN/live/ATTEMPT-SEQ.parquet``.

    Args:
        store: where the segments go.
        project, run, attempt: whose points these are.
        delay: seconds that a point waits at most before it is written.
        max_pending: ``log()`` calls kept while the store is away; more are dropped and counted.
    """

    def __init__(self, store: Store, project: str, run: str, attempt: int, *, delay: float = 5.0, max_pending: int = 1_000_000):
        self._store, self._attempt, self._run = store, attempt, run
        self._folder = f"metrics/project={project}/run={run}/live"
        self._delay, self._max_pending = delay, max_pending
        self._sequence = 0
        self.dropped = 0
        self._start()
        _LIVE.add(self)

    def _start(self) -> None:
        # Imported now: a script that ends at once leaves the thread no interpreter to import it in.
        import pyarrow.parquet  # noqa: F401

        self._pending: list[Record] = []
        self._closed = False
        self._written = 0
        self._failures = 0
        self._reason = ""
        self._segment: tuple[bytes, int] | None = None
        self._wake, self._tried = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = threading.Thread(target=self._drain, name=f"halving-metrics-{self._run}", daemon=True)
        self._thread.start()

    def append(self, record: Record) -> None:
        """Queue one ``log()`` call; never blocks on the store."""
        if len(self._pending) >= self._max_pending or self._thread is None or self._closed:
            self.dropped += len(record.values)
            return
        self._pending.append(record)

    def flush(self, deadline: float = 5.0) -> bool:
        """Write everything logged so far and say whether all of it is in the store, after ``deadline`` s at most."""
        until = time.monotonic() + deadline
        target = len(self._pending) + self._written
        # The drain thread writes, so that a store that hangs holds up the caller no longer than the deadline.
        while self._pending and self._written < target and (left := until - time.monotonic()) > 0:
            self._tried.clear()
            self._wake.set()
            self._tried.wait(left)
            if self._failures:
                time.sleep(max(0.0, min(0.1, until - time.monotonic())))
        return not self._pending or self._written >= target

    def close(self, deadline: float = 10.0) -> int:
        """Flush, stop the thread and return how many points were dropped in this attempt."""
        if self._closed or self._thread is None:
            return self.dropped
        self.flush(deadline)
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=1.0)
        self.dropped += sum(len(record.values) for record in self._pending)
        self._pending.clear()
        _LIVE.discard(self)
        return self.dropped

    def _drain(self) -> None:
        while not self._closed:
            self._wake.wait(self._delay if self._failures == 0 else _BACKOFF[min(self._failures, len(_BACKOFF)) - 1])
            self._wake.clear()
            self._failures = 0 if self._write_pending() else self._failures + 1
            self._tried.set()
            if self._failures == 1:
                with contextlib.suppress(Warning):  # `python -W error` raises it, and this thread has to live on
                    warnings.warn(
                        f"halving: cannot write metrics to {self._store.root} ({self._reason}); keeping them and trying again", stacklevel=1
                    )

    def _write_pending(self) -> bool:
        """Write one segment with everything pending; False when the store refused and the points are kept."""
        count = len(self._pending)
        if not count:
            return True
        try:
            # Tried again with the very same bytes: a write whose answer was lost has made the file already.
            if self._segment is None:
                self._segment = (self._encode(self._pending[:count]), count)
            data, count = self._segment
            self._store.create(f"{self._folder}/{self._attempt:04d}-{self._sequence:06d}.parquet", data)
        except Exception as error:  # noqa: BLE001  # the drain thread outlives any fault of the store; the points stay pending
            self._reason = f"{type(error).__name__}: {error}"
            return False
        self._written += count  # before the deletion: flush() must never take pending points for written ones
        # log() only appends, so the first `count` records are still the ones that were written.
        del self._pending[:count]
        self._segment = None
        self._sequence += 1
        return True

    def _encode(self, records: list[Record]) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        keys, steps, times, values = [], [], [], []
        for record in records:
            for key, value in record.values.items():
                try:
                    key.encode()  # a lone surrogate would keep the whole segment from being written
                    values.append(float(value))
                except (TypeError, ValueError, OverflowError, RuntimeError):
                    self.dropped += 1
                    continue
                keys.append(key)
                steps.append(record.step)
                times.append(record.wall_time)
        table = pa.table(
            {
                "run": pa.array([self._run] * len(keys), pa.string()).dictionary_encode(),
                "attempt": pa.array([self._attempt] * len(keys), pa.int32()),
                "key": pa.array(keys, pa.string()).dictionary_encode(),
                "step": pa.array(steps, pa.int64()),
                "wall_time": pa.array(times, pa.timestamp("ms", tz="UTC")),
                "value": pa.array(values, pa.float64()),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression="zstd",
            use_dictionary=["run", "key"],
            column_encoding={
                "attempt": "DELTA_BINARY_PACKED",
                "step": "DELTA_BINARY_PACKED",
                "wall_time": "DELTA_BINARY_PACKED",
                "value": "BYTE_STREAM_SPLIT",
            },
        )
        return bytes(sink.getvalue())

    def _after_fork(self) -> None:
        """A forked child (a DataLoader worker) has no drain thread: what it logs is dropped."""
        self._thread = None
        self._pending = []


_LIVE: "weakref.WeakSet[MetricWriter]" = weakref.WeakSet()


def _disable_in_child() -> None:
    for writer in list(_LIVE):
        writer._after_fork()


os.register_at_fork(after_in_child=_disable_in_child)
