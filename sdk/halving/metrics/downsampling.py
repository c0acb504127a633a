"""Buckets of consecutive points, from which a curve is drawn that has more points than a figure can show.

A segment carries the buckets of its longer curves in its footer (``halving.buckets``), so that a curve over
thousands of segments that were not compacted yet is drawn from their footers alone. The value in the file's
metadata is base64 of: ``<I`` its length and the content with zstd. The content is ``<I`` length of a JSON
header ``{"keys": {key: rows}}``, the header, and for each of the eight bytes of a cell, least significant
first, a row for each field of :data:`BUCKET` with that byte of all buckets, key after key. Integers are
differences from the bucket before, those of a key's first bucket from zero.
"""

import json
import struct
from base64 import b64decode, b64encode
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from halving.errors import StoreError
from halving.metrics.numpy_arrow import codes_of, numbers_of

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = b"halving.buckets"
SIZE = 128  # points in a bucket of a segment
MIN_POINTS = 2 * SIZE  # a curve with fewer points in a segment is read from its points
# The fields are those of a rollup. Both steps and both times are those of the first and the last point; min,
# max and mean are over finite values.
BUCKET = [
    ("step", "<i8"),
    ("step_last", "<i8"),
    ("wall_time", "<i8"),
    ("wall_time_last", "<i8"),
    ("min", "<f8"),
    ("max", "<f8"),
    ("mean", "<f8"),
    ("last", "<f8"),
    ("count", "<i8"),
    ("nonfinite", "<i8"),
]
_NAMES = [name for name, _ in BUCKET]
_WHOLE = [index for index, (_, kind) in enumerate(BUCKET) if kind == "<i8"]
_LENGTH = struct.Struct("<I")


def empty() -> Any:
    """No buckets."""
    return np.empty(0, BUCKET)


def of_points(steps: Any, times: Any, values: Any, dtype: Any = BUCKET) -> Any:
    """Buckets of one point each; min, max and mean are over finite values, ``last`` is the value itself.

    Args:
        dtype: :data:`BUCKET`, or one with more fields, which are left to the caller.
    """
    buckets = np.empty(len(steps), dtype)
    finite = np.isfinite(values)
    buckets["step"] = buckets["step_last"] = steps
    buckets["wall_time"] = buckets["wall_time_last"] = times
    buckets["last"] = values
    buckets["min"] = buckets["max"] = buckets["mean"] = np.where(finite, values, np.nan)
    buckets["count"] = 1
    buckets["nonfinite"] = ~finite
    return buckets


def join_buckets(buckets: Any, starts: Any) -> Any:
    """Join neighbouring buckets: those from each of ``starts`` up to the next become one.

    min and max are kept, counts add up.
    """
    if not len(starts):
        return buckets[:0]
    ends = np.append(starts[1:], len(buckets)) - 1
    above = buckets[starts].copy()
    for name in ("step_last", "wall_time_last", "last"):
        above[name] = buckets[name][ends]
    for name in ("count", "nonfinite"):
        above[name] = np.add.reduceat(buckets[name], starts)
    above["min"] = np.fmin.reduceat(buckets["min"], starts)
    above["max"] = np.fmax.reduceat(buckets["max"], starts)
    # Weighted before they are added: a sum of large values could leave the range of floats.
    finite = buckets["count"] - buckets["nonfinite"]
    total = np.repeat(above["count"] - above["nonfinite"], ends - starts + 1)
    weighted = np.where(finite > 0, buckets["mean"] * (finite / np.maximum(total, 1)), 0.0)
    above["mean"] = np.minimum(np.maximum(np.add.reduceat(weighted, starts), above["min"]), above["max"])
    return above


def at_most(buckets: Any, limit: int) -> Any:
    """Join buckets so that at most ``limit`` are left; each but the last joins equally many."""
    if len(buckets) <= limit:
        return np.asarray(buckets)
    return join_buckets(buckets, np.arange(0, len(buckets), -(-len(buckets) // limit)))


def values_of(buckets: Any) -> Any:
    """The values that are drawn: that of a single point as it is, else the mean."""
    return np.where(buckets["count"] == 1, buckets["last"], buckets["mean"])


def summary(table: "pa.Table") -> bytes | None:
    """The buckets of a segment's long curves for its metadata under :data:`BUCKETS`, or None.

    Only curves whose steps increase throughout are in it. ``table`` is sorted by key and of one run and
    attempt.
    """
    if len(table) < MIN_POINTS:
        return None
    codes, names = codes_of(table["key"])
    steps, times, values = (numbers_of(table[name]) for name in ("step", "wall_time", "value"))
    changes = codes[1:] != codes[:-1]
    firsts = np.flatnonzero(np.append(True, changes))
    lasts = np.append(firsts[1:], len(codes))
    falling = np.flatnonzero((steps[1:] <= steps[:-1]) & ~changes) + 1
    orderly = np.searchsorted(falling, firsts) == np.searchsorted(falling, lasts)
    long = np.flatnonzero((lasts - firsts >= MIN_POINTS) & orderly)
    if not len(long):
        return None
    rows = {}
    parts = []
    starts = []
    before = 0
    for first, last in zip(firsts[long].tolist(), lasts[long].tolist(), strict=True):
        rows[names[codes[first]]] = last - first
        parts.append(slice(first, last))
        starts.append(np.arange(before, before + last - first, SIZE))
        before += last - first
    points = of_points(
        *(np.concatenate([column[part] for part in parts]) for column in (steps, times, values))
    )
    every = join_buckets(points, np.concatenate(starts))
    cells = np.stack([every[name].view(np.int64) for name in _NAMES])
    firsts = np.cumsum([0, *(-(-count // SIZE) for count in rows.values())])[:-1]
    whole = cells[_WHOLE]
    cells[_WHOLE] = np.diff(whole, axis=1, prepend=0)
    cells[np.array(_WHOLE)[:, None], firsts] = whole[:, firsts]
    planes = np.ascontiguousarray(cells.reshape(-1).view(np.uint8).reshape(-1, 8).T).tobytes()
    header = json.dumps({"keys": rows}).encode()
    content = _LENGTH.pack(len(header)) + header + planes
    return b64encode(_LENGTH.pack(len(content)) + _zstd().compress(content, asbytes=True))


class SegmentBuckets:
    """A segment's buckets as they were written.

    Args:
        data: what :func:`summary` made.

    Raises:
        StoreError: it is damaged.
    """

    def __init__(self, data: bytes) -> None:
        try:
            packed = b64decode(data)
            content = _zstd().decompress(
                memoryview(packed)[_LENGTH.size :], *_LENGTH.unpack_from(packed), asbytes=True
            )
            (size,) = _LENGTH.unpack_from(content)
            self.rows: dict[str, int] = json.loads(content[_LENGTH.size : _LENGTH.size + size])["keys"]
            self._planes = np.frombuffer(content, np.uint8, offset=_LENGTH.size + size).reshape(
                8, len(_NAMES), -1
            )
        except (ValueError, OSError, KeyError, struct.error) as error:
            raise StoreError(f"the buckets of a segment are damaged: {error}") from error

    def block(self, key: str) -> Any:
        """The bytes of one key of :attr:`rows`, for :func:`unpack_blocks`."""
        first = 0
        for name, rows in self.rows.items():
            count = -(-rows // SIZE)
            if name == key:
                break
            first += count
        return self._planes[:, :, first : first + count].copy()


def unpack_blocks(blocks: list[Any]) -> Any:
    """Unpack the buckets of several blocks, one block after the other."""
    if not blocks:
        return empty()
    counts = np.array([block.shape[2] for block in blocks])
    every = np.concatenate(blocks, axis=2)
    cells = np.ascontiguousarray(every.transpose(1, 2, 0)).view(np.int64)[:, :, 0]
    firsts = np.cumsum(counts) - counts
    buckets = np.empty(cells.shape[1], BUCKET)
    for index, (name, kind) in enumerate(BUCKET):
        if kind == "<i8":
            summed = cells[index].cumsum()  # wraps around, and back by the subtraction
            buckets[name] = summed - np.repeat(summed[firsts] - cells[index][firsts], counts)
        else:
            buckets[name] = cells[index].view(np.float64)
    return buckets


@cache
def _zstd() -> "pa.Codec":
    import pyarrow as pa

    return pa.Codec("zstd")
