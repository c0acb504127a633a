"""Reads rows of a split's shards, which are mapped in a folder or in the cache of an object store.

Either way a shard's bytes are hashed on this machine before any of its rows is handed out.
"""

import contextlib
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from halving.data.arrow_layout import NotReadable
from halving.data.columns import Column, Gathered, columns_of
from halving.data.prefetch import end_before_exit
from halving.data.shard_cache import NoRoom, ShardCache
from halving.data.shard_rows import MappedShard, allocate_rows
from halving.data.shards import Shard, damage_of, open_shard
from halving.data.snapshot import Snapshot
from halving.data.verified_shards import VerifiedShards
from halving.errors import HalvingError, StoreError
from halving.store.deadline import Deadline
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_Result = TypeVar("_Result")
# Shards fetched at a time. One connection is slower than the network, and one core hashes slower than a disk
# reads.
_MAX_FETCHING = 4
_MAX_AHEAD = 8  # shards that are fetched before they are needed


class ShardReader:
    """Reads the shards of a split; the last ``keep`` stay mapped, and the next ones are fetched ahead.

    At most ``keep`` are fetched ahead. Fetching a shard of a folder means to verify it and to have it in the
    page cache.

    Args:
        upcoming: numbers of the shards in the order in which they will be needed.
        afterwards: numbers of those that the split's next reader will need first. They are fetched, too, once
            all others have been requested.
        gave_up: whether the caller is no longer waiting.
    """

    def __init__(
        self,
        dataset: Snapshot,
        shards: Sequence[Shard],
        keep: int,
        upcoming: Iterable[int] = (),
        afterwards: Iterable[int] = (),
        gave_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._dataset = dataset
        self._store = dataset.store
        self._shards = shards
        self._keep = keep
        self._deadline = _ReadersDeadline(dataset, gave_up)
        self._mapped: OrderedDict[int, MappedShard] = OrderedDict()
        self._upcoming = deque(upcoming)
        self._afterwards = iter(afterwards)
        self._requested: dict[int, int] = {}  # the bytes of the shards that are fetched ahead
        self._cache: ShardCache | None = None
        self._verified: VerifiedShards | None = None
        if self._store.folder is None:
            # S3 is connected before any thread begins; see end_before_exit.
            self._retry(lambda: self._store.filesystem)
            self._cache = ShardCache(self._store, self._retry, gave_up=self._deadline.is_over)
            self._source: ShardCache | VerifiedShards = self._cache
        else:
            self._source = self._verified = VerifiedShards(self._store, self._retry_at, gave_up)
        self._fetch_threads = _FetchThreads(self._source.fetch)

    def columns(self, names: Sequence[str] | None, where: str) -> list[Column]:
        """Look up columns by name; see :func:`halving.data.columns.columns_of`."""
        import pyarrow as pa

        shard = self._shards[0]
        open_shard_here: Callable[[Shard], Array | None] = self._source.open
        if self._cache is not None:
            open_shard_here = self._cache.open_copy  # the schema alone is no reason to fetch the shard
        content = open_shard_here(shard)
        if content is not None:
            with contextlib.suppress(pa.ArrowInvalid), pa.ipc.open_file(pa.py_buffer(content)) as reader:
                return columns_of(reader.schema, names, where)

        def schema() -> "pa.Schema":
            with open_shard(self._store, shard) as reader:
                return reader.schema

        return columns_of(self._retry(schema), names, where)

    def read(self, numbers: "Array", rows: "Array", columns: Sequence[Column]) -> list[Gathered]:
        """Read rows of shards, in the given order.

        Args:
            numbers: the number of each row's shard, ``(n,)``.
            rows: the number of each row in its shard, ``(n,)``.

        Raises:
            NotFound: a shard is missing.
            StoreError: a shard is damaged, or the store refuses, or was unavailable for ten minutes.
        """
        order = np.argsort(numbers, kind="stable")
        needed, begins = np.unique(numbers[order], return_index=True)
        self._fetch_ahead(needed.tolist())
        gathered = allocate_rows(columns, len(rows))
        for number, places in zip(needed.tolist(), np.split(order, begins[1:]), strict=True):
            self._fill(number, gathered, places, rows[places])
        while len(self._mapped) > self._keep:
            self._mapped.popitem(last=False)
        return gathered

    def close(self, *, finish: bool = False) -> None:
        """Stop fetching ahead.

        With ``finish`` this happens once all that was requested is here, for the next reader.
        """
        if finish:
            self._fetch_threads.finish()
        else:
            self._fetch_threads.close()
        self._mapped.clear()

    def _fill(self, number: int, gathered: list[Gathered], places: "Array", rows: "Array") -> None:
        """Copy rows of one shard into their places.

        A shard that cannot be read is fetched, or hashed, once more before it is an error.
        """
        shard = self._shards[number]
        for may_be_old in (True, False):
            try:
                if number not in self._mapped:
                    self._mapped[number] = MappedShard(self._source.open(shard), shard.rows)
                self._mapped[number].fill(gathered, places, rows)
            except NotReadable as error:
                self._mapped.pop(number, None)
                if not may_be_old:
                    raise StoreError(f"{damage_of(self._store, shard)}: {error}") from error
                self._source.drop(shard)
            else:
                self._mapped.move_to_end(number)
                return

    def _fetch_ahead(self, needed: Sequence[int]) -> None:
        """Request the shards that are needed now and are not here, and those that are needed next."""
        missing = [number for number in needed if number not in self._mapped]
        # The reader fetches the first missing shard itself. A verified shard is mapped faster than requested.
        new = [
            number
            for number in missing[1:]
            if number not in self._requested and not self._is_verified(number)
        ]
        for number in missing:
            self._requested.pop(number, None)
        max_bytes = 0
        if self._cache is not None and missing:
            max_bytes = self._cache.limit // 4
        while self._cache is None or sum(self._requested.values()) < max_bytes:
            max_shards = self._keep
            if self._upcoming:
                max_shards = min(self._keep, _MAX_AHEAD)
            if len(self._requested) >= max_shards:
                break
            upcoming = self._next_number()
            if upcoming is None:
                break
            if upcoming not in self._mapped and upcoming not in self._requested and upcoming not in needed:
                self._requested[upcoming] = self._shards[upcoming].bytes
                new.append(upcoming)
        for number in new:
            self._fetch_threads.want(self._shards[number])

    def _next_number(self) -> int | None:
        """The number of the shard that is needed next, or None if no other one will be needed."""
        if self._upcoming:
            return self._upcoming.popleft()
        return next(self._afterwards, None)

    def _is_verified(self, number: int) -> bool:
        """Whether a shard of a folder can be mapped at once."""
        return self._verified is not None and self._verified.is_verified(self._shards[number])

    def _retry(self, action: Callable[[], _Result]) -> _Result:
        """Run an action, again while the dataset's store is unavailable."""
        return self._retry_at(self._store, action)

    def _retry_at(self, store: Store, action: Callable[[], _Result]) -> _Result:
        """Run an action, again while a store is unavailable."""
        dataset = self._dataset
        return retry_while_unavailable(
            store, f"dataset {dataset.name}", action, self._deadline, outage=dataset.outage
        )


class _ReadersDeadline(Deadline):
    """The deadline of a dataset, for a reader whose caller may stop waiting earlier."""

    def __init__(self, dataset: Snapshot, gave_up: Callable[[], bool]) -> None:
        super().__init__()
        self._dataset = dataset
        self._gave_up = gave_up

    @property
    def time(self) -> float:
        """The dataset's, which a run may set at any time; over if the caller has stopped waiting."""
        return -math.inf if self._gave_up() else self._dataset.deadline.time


class _FetchThreads:
    """Daemon threads that fetch shards before they are needed.

    Their errors are ignored: the reader meets them itself when it needs the shard.
    """

    def __init__(self, fetch: Callable[[Shard], None]) -> None:
        self._fetch = fetch
        self._wanted: deque[Shard] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._finishing = False

    def want(self, shard: Shard) -> None:
        """Request a shard, and start another thread if there are few."""
        with self._changed:
            self._wanted.append(shard)
            if len(self._threads) < min(_MAX_FETCHING, len(self._wanted)):
                self._threads.append(threading.Thread(target=self._run, name="halving-shards", daemon=True))
                end_before_exit(self)
                self._threads[-1].start()
            self._changed.notify()

    def close(self) -> None:
        """Tell the threads to end with the shards that they are fetching."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Let the threads end once all that was requested is fetched."""
        with self._changed:
            self._finishing = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the end of the threads, for at most so many seconds."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        """Fetch one requested shard after another: what a thread does."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._finishing or self._wanted)
                if self._closed or not self._wanted:
                    return
                shard = self._wanted.popleft()
            with contextlib.suppress(HalvingError, NoRoom):
                self._fetch(shard)
