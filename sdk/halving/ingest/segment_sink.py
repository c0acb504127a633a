"""Where drained points go: into the store as Parquet segments, or to a server as batches.

A batch is Arrow IPC, and the server makes a segment of it.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from halving.metrics.segments import DRAINED, encode, live_folder, segment_name
from halving.store.server_store import ServerStore
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

_IN_FILE = 1_000_000
_IN_BATCH = 250_000
BATCH_COLUMNS = ("key", "step", "wall_time", "value")
BATCH_HEADERS = {"Content-Type": "application/vnd.apache.arrow.stream", "Content-Encoding": "zstd"}


class SegmentSink(Protocol):
    """Takes one attempt's segments.

    Attributes:
        max_points: in a segment, about.
    """

    max_points: int

    def encode(self, table: "pa.Table", drained: Mapping[str, list[int]]) -> bytes:
        """Encode points for publishing, with how far the journal is drained with them."""
        ...

    def publish(self, sequence: int, segment: bytes) -> None:
        """Publish what :meth:`encode` returned; publishing the same again does no harm.

        Raises:
            AlreadyExists: there is another segment of this number.
            BatchMissing: a server lacks segments before it.
            StoreError: the store refuses.
        """
        ...


def sink_of(store: Store, project: str, run: str, attempt: int) -> SegmentSink:
    """The sink for a store."""
    if isinstance(store, ServerStore):
        return _Batches(store, project, run, attempt)
    return _Files(store, project, run, attempt)


class _Files:
    max_points = _IN_FILE

    def __init__(self, store: Store, project: str, run: str, attempt: int) -> None:
        self._store = store
        self._folder = live_folder(project, run)
        self._attempt = attempt

    def encode(self, table: "pa.Table", drained: Mapping[str, list[int]]) -> bytes:
        return encode(table, {DRAINED: json.dumps(drained).encode()})

    def publish(self, sequence: int, segment: bytes) -> None:
        # The journal's lock is this attempt's alone.
        self._store.create(f"{self._folder}/{segment_name(self._attempt, sequence)}", segment, sole=True)


class _Batches:
    max_points = _IN_BATCH

    def __init__(self, store: ServerStore, project: str, run: str, attempt: int) -> None:
        self._store = store
        self._whose = {"project": project, "run": run, "attempt": attempt}

    def encode(self, table: "pa.Table", drained: Mapping[str, list[int]]) -> bytes:
        import pyarrow as pa

        batch = table.select(BATCH_COLUMNS).replace_schema_metadata({DRAINED: json.dumps(drained).encode()})
        sink = pa.BufferOutputStream()
        with (
            pa.CompressedOutputStream(sink, "zstd") as compressed,
            pa.ipc.new_stream(compressed, batch.schema) as writer,
        ):
            writer.write_table(batch)
        return bytes(sink.getvalue())

    def publish(self, sequence: int, segment: bytes) -> None:
        self._store.append({**self._whose, "sequence": sequence}, segment, BATCH_HEADERS)
