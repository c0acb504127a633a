"""Forwarding the points of a gang's other ranks to rank 0's run, in the background.

They go through the gang's store, as JSON; nothing is unpickled. A rank's metric has the rank's number behind
its name: ``loss/rank.3``.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from halving.errors import InvalidInput
from halving.ingest.device_tensors import capture
from halving.store.retry import warn

_QUEUE = "points"
_EVERY_SECONDS = 1.0
_MAX_WAITING = 10_000  # calls of log() that wait for the store; more are dropped
_CLOSE_SECONDS = 2.0


class Queues(Protocol):
    """The methods that are used of a ``torch.distributed.Store``.

    The connection must be this object's alone.
    """

    def queue_push(self, key: str, value: bytes, /) -> None: ...

    def queue_len(self, key: str, /) -> int: ...

    def queue_pop(self, key: str, block: bool, /) -> bytes: ...


def of_rank(values: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The same values under the names that they have as those of one rank."""
    renamed: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            renamed[name] = of_rank(value, rank)
        else:
            renamed[f"{name}/rank.{rank}"] = value
    return renamed


class ForwardingWriter:
    """The metric writer of a rank other than rank 0.

    Its :meth:`fast` keeps nothing: a plain ``log()`` logs rank 0's values only. What is appended, because
    ``log()`` was called for all ranks, goes to rank 0 a second later. Where the store takes nothing for long,
    more points are dropped, counted and warned about at the end.
    """

    def __init__(self, store: Queues) -> None:
        self._store = store
        self._points: deque[tuple[int, Callable[[], dict[str, float]]]] = deque()
        self.dropped = 0
        self._sending = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="halving-forwarding", daemon=True).start()

    @property
    def appender(self) -> "ForwardingWriter":
        return self

    def now(self) -> int:
        return time.time_ns()

    def fast(self, values: Mapping[str, Any], step: int) -> bool:
        return True

    def append(self, numbers: Mapping[str, float], step: int, at: int) -> None:
        kept = dict(numbers)
        self._put(step, lambda: kept)

    def append_device(self, tensors: Mapping[str, Any], step: int, at: int) -> None:
        for keys, fetch in capture(tensors):
            self._put(step, partial(_fetch_numbers, keys, fetch))

    def append_artifact(self, key: str, *_: Any) -> None:
        raise InvalidInput(
            f"{key} is not accepted of a rank that is not the first: images, tables and texts are logged "
            "by rank 0; log numbers"
        )

    def flush(self, deadline: float = 5.0, *, insist: bool = True) -> bool:
        """Send what waits; return whether all of it was sent.

        ``deadline`` is that of a metric writer: a store that is gone raises at once.
        """
        with self._sending:
            try:
                while self._points:
                    step, values = self._points[0]
                    self._store.queue_push(_QUEUE, json.dumps([step, values()]).encode())
                    self._points.popleft()
            except Exception:  # noqa: BLE001  # whatever the store raises: it is tried again
                return False
        return True

    def close(self, deadline: float) -> None:
        """Send what waits, and stop. ``deadline`` as for :meth:`flush`."""
        self._ended.set()
        if not self.flush():
            self.dropped += len(self._points)
        if self.dropped:
            warn(
                f"{self.dropped} calls of log(…, all_ranks=True) of this rank did not reach rank 0 and "
                "were dropped"
            )

    def _put(self, step: int, values: Callable[[], dict[str, float]]) -> None:
        if len(self._points) >= _MAX_WAITING:
            self.dropped += 1
            return
        self._points.append((step, values))

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.flush()


def _fetch_numbers(keys: tuple[str, ...], fetch: Callable[[], list[float]]) -> dict[str, float]:
    return dict(zip(keys, fetch(), strict=True))


class Forwarded:
    """Logs on rank 0 what the other ranks have forwarded, until :meth:`close`.

    Args:
        log: takes values and ``step=``.
    """

    def __init__(self, store: Queues, log: Callable[..., object]) -> None:
        self._store = store
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="halving-forwarded", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Log what has arrived, and stop; this waits at most 2 s for a store that hangs."""
        self._ended.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._take()
        self._take()

    def _take(self) -> None:
        with suppress(Exception):  # the store is gone, and with it the gang
            for _ in range(self._store.queue_len(_QUEUE)):
                step, values = json.loads(self._store.queue_pop(_QUEUE, False))
                self._log(values, step=step)
