"""Cut a split's rows into shards of equal size, named by content, and publish those that are new.

The total is known first, then there are ``n = round(total / size)`` equal cuts, so that no shard is a small
rest. Cuts of the previous snapshot are kept as long as the rows are the same. So what was appended is all
that is stored, with some small shards that are merged with it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from halving import Store
from halving.data.shards import Shard, open_shard
from resources.datasets.canonical import rebatch
from resources.datasets.row_hashes import Words
from resources.datasets.spool import JoinedSpools, Spool
from resources.datasets.statistics import Statistics, merge, statistics_of
from resources.datasets.thread_map import map_in_threads

_STATISTICS = b"halving.statistics"
ROW = "row_hash"
GROUP = "group_hash"
IDENTITY = "identity_hash"
"""The kinds of hashes that are kept of each row beside its shard.

They are of the row's content, without the column that names its split; of its group; and of its identity, the
last two where the spec has them.
"""
_HASH_BATCH = 1 << 20  # rows

Rows = Spool | JoinedSpools
"""All rows of a split."""


@dataclass(frozen=True)
class _Written:
    """A shard that was written, and whether the store did not have it yet."""

    shard: Shard
    statistics: Statistics
    is_new: bool


@dataclass
class ShardWriter:
    """Writes shards into a store by way of ``folder``, which is best on the store's own disk.

    Attributes:
        rules: fingerprint of the rules of hashes; see :meth:`halving.data.shards.Shard.row_hashes_name`.
        kinds: kinds of hashes of a row, in the order of a spool.
        stored: bytes of the shards that the store did not have yet.
    """

    store: Store
    folder: Path
    target: str
    rules: str
    shard_bytes: int
    kinds: Sequence[str] = (ROW,)
    stored: int = 0

    def cut(self, spool: Rows, again: Sequence[Shard] = ()) -> tuple[list[Shard], Statistics]:
        """Write all rows of a spool as shards, and count their statistics.

        Args:
            again: the first shards of the previous snapshot; the same cuts are made as long as the rows are
                the same.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        written: list[_Written] = []
        ends = accumulate(shard.rows for shard in again)
        previous_cuts = [
            (end - shard.rows, end, shard)
            for end, shard in zip(ends, again, strict=True)
            if end <= spool.rows
        ]
        for made in map_in_threads(lambda rows: self._write(spool, *rows), previous_cuts):
            if made is None:
                break
            written.append(made)
        row = sum(made.shard.rows for made in written)
        for made in map_in_threads(
            lambda rows: self._write(spool, *rows), _equal_cuts(spool, row, self.shard_bytes)
        ):
            assert made is not None  # Without ``only`` every shard is written.
            written.append(made)
        self.stored += sum(shard.bytes for shard in {made.shard for made in written if made.is_new})
        return [made.shard for made in written], merge(made.statistics for made in written)

    def _write(self, spool: Rows, begin: int, end: int, only: Shard | None = None) -> "_Written | None":
        """Write the shard of these rows, unless it would differ from ``only``; safe in several threads."""
        path = self.folder / f"shard-{begin}"
        digest = hashlib.sha256()
        parts: list[Statistics] = []
        with (
            path.open("wb") as file,
            pa.PythonFile(_Hashed(file, digest), "w") as sink,
            pa.ipc.new_file(sink, spool.schema) as writer,
        ):
            for rows in rebatch(spool.read(begin, end)):
                writer.write_batch(rows)
                parts.append(statistics_of(rows, self.target))
        shard = Shard(digest.hexdigest(), end - begin, path.stat().st_size)
        if only is not None and shard.sha256 != only.sha256:
            path.unlink()
            return None
        statistics = merge(parts)
        is_stored = self.store.exists(shard.name)
        # A shard that a snapshot lists is not touched again. Any other stored shard may be about to be
        # deleted, because no snapshot lists it yet, so it is written again.
        if only is None or not is_stored or not self.store.exists(shard.row_hashes_name(self.rules)):
            # The hashes come first, so that a stored shard always has them.
            self._publish_hashes(shard, path.with_suffix(".hashes"), spool.hashes(begin, end), statistics)
            self.store.take_over(shard.name, path)
        else:
            path.unlink()
        return _Written(shard, statistics, is_new=not is_stored)

    def _publish_hashes(self, shard: Shard, path: Path, hashes: Words, statistics: Statistics) -> None:
        schema = pa.schema(
            [(kind, pa.uint64()) for kind in self.kinds],
            {_STATISTICS: json.dumps(statistics, sort_keys=True)},
        )
        columns = [pa.array(np.ascontiguousarray(column)) for column in hashes.T]
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(pa.table(columns, schema=schema), max_chunksize=_HASH_BATCH)
        self.store.take_over(shard.row_hashes_name(self.rules), path)


def read_hashes(store: Store, shard: Shard, rules: str) -> tuple[Words, Statistics]:
    """Read the hashes of a shard's rows, shape (rows, kinds), and the shard's statistics."""
    with store.open_file(shard.row_hashes_name(rules)) as file, pa.ipc.open_file(file) as reader:
        hashes: Words = np.stack([column.to_numpy() for column in reader.read_all().columns], axis=1)
        return hashes, json.loads(reader.schema.metadata[_STATISTICS])


def read_hashes_of_kind(store: Store, shard: Shard, rules: str, kind: str) -> Words:
    """Read the hashes of one kind of a shard's rows, which must be stored. Shape (rows,)."""
    with store.open_file(shard.row_hashes_name(rules)) as file, pa.ipc.open_file(file) as reader:
        hashes: Words = reader.read_all().column(kind).to_numpy()
        return hashes


def read_statistics(store: Store, shard: Shard, rules: str) -> Statistics:
    """Read the statistics of a shard, without its hashes."""
    with store.open_file(shard.row_hashes_name(rules)) as file, pa.ipc.open_file(file) as reader:
        statistics: Statistics = json.loads(reader.schema.metadata[_STATISTICS])
        return statistics


def read_shard(store: Store, shard: Shard) -> "list[pa.RecordBatch]":
    """Read all rows of a shard."""
    with open_shard(store, shard) as reader:
        return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _equal_cuts(spool: Rows, first_row: int, shard_bytes: int) -> list[tuple[int, int]]:
    """Divide the rows from one on into parts of about equal bytes, each of at least one row."""
    if first_row == spool.rows:
        return []
    first = spool.bytes_before(first_row)
    total = spool.bytes - first
    count = max(1, round(total / shard_bytes))
    ends = [spool.row_at(first + total * number // count) for number in range(1, count)]
    bounds = sorted({first_row, *ends, spool.rows})
    return list(pairwise(bounds))


class _Hashed:
    """A file that is hashed as it is written."""

    closed = False

    def __init__(self, file: "IO[bytes]", digest: "hashlib._Hash") -> None:
        self._file = file
        self._digest = digest

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.flush()
