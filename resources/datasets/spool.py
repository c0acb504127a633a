"""A split's rows on this machine's disk, in order, until it is known how many there are."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from resources.datasets.canonical import BATCH_BYTES, row_bytes
from resources.datasets.row_hashes import Words

_MIN_WRITE = BATCH_BYTES // 2  # bytes of the smallest write; often most rows of a batch are of one split


class Spool:
    """A file of rows: append them, then read from any row on; it holds one batch in memory.

    Args:
        folder: folder for its two files, which the caller deletes.

    Attributes:
        rows: number of rows; known once it is complete.
        bytes: bytes of all rows; known once it is complete.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        folder.mkdir(parents=True)
        self.schema = schema
        self._rows_path = folder / "rows.arrow"
        self._hashes_path = folder / "hashes"
        self._sink = pa.OSFile(str(self._rows_path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._hashes = self._hashes_path.open("wb")
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        # Rows and bytes of each batch.
        self._counts = array("q")
        self._sizes = array("q")

    def append(self, rows: pa.RecordBatch, hashes: Words) -> None:
        """Append rows and their hashes, shape (rows, kinds)."""
        self._kinds = hashes.shape[1]
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        self._hashes.write(hashes.tobytes())
        if self._pending_bytes >= _MIN_WRITE:
            self._write()

    def complete(self) -> None:
        """Finish writing; reading is possible from here on."""
        self._write()
        self.close()
        self._starts = list(accumulate(self._counts, initial=0))
        self._offsets = list(accumulate(self._sizes, initial=0))
        self.rows = self._starts[-1]
        self.bytes = self._offsets[-1]
        self._reader = self._open_rows()

    def close(self) -> None:
        """Close the files; without :meth:`complete` the rows cannot be read."""
        self._writer.close()
        self._sink.close()
        self._hashes.close()

    def bytes_before(self, row: int) -> int:
        """Bytes of all rows before this one."""
        batch = min(bisect_right(self._starts, row) - 1, len(self._counts) - 1)
        if batch < 0:
            return 0
        within = row - self._starts[batch]
        return self._offsets[batch] + int(row_bytes(self._reader.get_batch(batch).slice(0, within)).sum())

    def row_at(self, offset: int) -> int:
        """The first row that begins at this many bytes or later."""
        batch = bisect_right(self._offsets, offset) - 1
        if batch >= len(self._counts):
            return self.rows
        ends = np.cumsum(row_bytes(self._reader.get_batch(batch)))
        begins = self._offsets[batch] + np.concatenate([[0], ends[:-1]])
        return self._starts[batch] + int(np.searchsorted(begins, offset))

    def read(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the rows from ``begin`` up to ``end``; safe in several threads."""
        batch = bisect_right(self._starts, begin) - 1
        with self._open_rows() as reader:
            while begin < end:
                rows = reader.get_batch(batch)
                first = begin - self._starts[batch]
                part = rows.slice(first, min(end - begin, rows.num_rows - first))
                yield part
                begin += part.num_rows
                batch += 1

    def hashes(self, begin: int, end: int) -> Words:
        """The hashes of these rows, shape (rows, kinds)."""
        kinds = self._kinds
        return np.fromfile(
            self._hashes_path, np.uint64, (end - begin) * kinds, offset=begin * kinds * 8
        ).reshape(-1, kinds)

    def _open_rows(self) -> pa.RecordBatchFileReader:
        # The file is not mapped, because pages that were read would count as memory of the process.
        return pa.ipc.open_file(pa.OSFile(str(self._rows_path), "rb"))

    def _write(self) -> None:
        if not self._pending:
            return
        rows = self._pending[0]
        if len(self._pending) > 1:  # concat_batches would copy a single batch, too.
            rows = pa.concat_batches(self._pending)
        self._pending = []
        self._pending_bytes = 0
        self._writer.write_batch(rows)
        self._counts.append(rows.num_rows)
        self._sizes.append(int(row_bytes(rows).sum()))


class JoinedSpools:
    """Complete spools, read one behind the other as one."""

    def __init__(self, spools: Sequence[Spool]) -> None:
        self._spools = spools
        self.schema = spools[0].schema
        self._starts = list(accumulate((spool.rows for spool in spools), initial=0))
        self._offsets = list(accumulate((spool.bytes for spool in spools), initial=0))
        self.rows = self._starts[-1]
        self.bytes = self._offsets[-1]

    def bytes_before(self, row: int) -> int:
        """Bytes of all rows before this one."""
        number = self._place(self._starts, row)
        return self._offsets[number] + self._spools[number].bytes_before(row - self._starts[number])

    def row_at(self, offset: int) -> int:
        """The first row that begins at this many bytes or later."""
        number = self._place(self._offsets, offset)
        return self._starts[number] + self._spools[number].row_at(offset - self._offsets[number])

    def read(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read the rows from ``begin`` up to ``end``; safe in several threads."""
        for spool, first, last in self._parts(begin, end):
            yield from spool.read(first, last)

    def hashes(self, begin: int, end: int) -> Words:
        """The hashes of these rows, shape (rows, kinds)."""
        return np.concatenate([spool.hashes(first, last) for spool, first, last in self._parts(begin, end)])

    def _place(self, bounds: list[int], value: int) -> int:
        """The number of the spool that has a row or a byte; the end is in the last one."""
        return min(bisect_right(bounds, value), len(self._spools)) - 1

    def _parts(self, begin: int, end: int) -> Iterator[tuple[Spool, int, int]]:
        """The spools that have some of these rows, with the begin and end of the rows in each."""
        for spool, start in zip(self._spools, self._starts, strict=False):
            first = max(begin - start, 0)
            last = min(end - start, spool.rows)
            if first < last:
                yield spool, first, last
