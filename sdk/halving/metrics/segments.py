"""Metric points as Parquet: the columns, their encodings, and what the names of segments say.

A segment holds what a run logged in a few seconds, and is never changed. Its points are sorted by key, and
within a key they are in the order of logging, so that "logged last" never depends on a clock.
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from halving.metrics.numpy_arrow import column_of, dictionary_of, moments

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("run", "attempt", "key", "step", "wall_time", "value")
DRAINED = b"halving.drained"
BATCH = b"halving.batch"
WRITE_OPTIONS: dict[str, Any] = {  # The options of pyarrow.parquet for every file of points.
    "compression": "zstd",
    "use_dictionary": ["run", "key"],
    "column_encoding": {
        **dict.fromkeys(("attempt", "step", "wall_time"), "DELTA_BINARY_PACKED"),
        "value": "BYTE_STREAM_SPLIT",
    },
}
_NAME = re.compile(r"(\d{4,})-(\d{6,})\.parquet")


def schema() -> "pa.Schema":
    """The columns of every file of metric points: int64 step, ms wall time, float64 value."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    types = (text, pa.int32(), text, pa.int64(), moments(), pa.float64())
    return pa.schema(list(zip(COLUMNS, types, strict=True)))


def live_folder(project: str, run: str) -> str:
    """Where a run's segments are, in the store."""
    return f"metrics/project={project}/run={run}/live"


def segment_name(attempt: int, sequence: int) -> str:
    """``ATTEMPT-SEQ.parquet``; sequences of an attempt count from 0 without gaps."""
    return f"{attempt:04d}-{sequence:06d}.parquet"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """``(attempt, sequence)`` of a segment's name, or None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1]), int(match[2])


def points_table(
    run: str, attempt: Any, keys: list[str], codes: Any, steps: Any, times: Any, values: Any
) -> "pa.Table":
    """A table of a run's points.

    Args:
        attempt: that of all points, or int32 of shape (n,).
        keys: the distinct keys.
        codes: int32 array of shape (n,): each point's place in ``keys``.
        steps: int64, (n,).  times: ms since 1970, int64, (n,).  values: float64, (n,).
    """
    import numpy as np
    import pyarrow as pa

    count = len(codes)
    columns = [
        dictionary_of(np.zeros(count, np.int32), [run]),
        column_of(np.full(count, attempt, np.int32), pa.int32()),
        dictionary_of(codes, keys),
        column_of(steps, pa.int64()),
        column_of(times, moments()),
        column_of(values, pa.float64()),
    ]
    return pa.Table.from_arrays(columns, schema=schema())


def encode(table: "pa.Table", metadata: Mapping[bytes, bytes] | None = None) -> bytes:
    """A Parquet file of these points in their order, with their buckets in its metadata.

    A curve over many segments is drawn from these buckets. Run and key have dictionary pages, step and time
    DELTA_BINARY_PACKED, values BYTE_STREAM_SPLIT and zstd.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from halving.metrics.downsampling import BUCKETS, summary

    sink = pa.BufferOutputStream()
    added = dict(metadata or {})
    if buckets := summary(table):
        added[BUCKETS] = buckets
    with pq.ParquetWriter(sink, table.schema, **WRITE_OPTIONS) as writer:
        writer.write_table(table)
        # Not in the schema's metadata, of which Arrow writes two copies.
        writer.add_key_value_metadata(added)
    return bytes(sink.getvalue())


def drained_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[int]]:
    """How far the journal was drained with a segment.

    It maps the name of an appender to ``[number of its log segment, offset in it]``.
    """
    drained: dict[str, list[int]] = json.loads((metadata or {}).get(DRAINED, b"{}"))
    return drained


def batch_of(metadata: Mapping[bytes, bytes] | None) -> str:
    """The digest of the batch that a server made a segment of, by which it recognizes the batch.

    It is empty where no server made the segment.
    """
    return (metadata or {}).get(BATCH, b"").decode()
