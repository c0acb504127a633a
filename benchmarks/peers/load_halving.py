"""The rows through Halving's loader: shards in a folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

import halving
from benchmarks.peers.loading_harness import FLOATS, Reading, blobs, floats, main

SHARD_BYTES = 128 * 2**20
_BATCH_BYTES = 2**20
_DIGEST = "sha256:" + "0" * 64


def write(folder: Path, kind: str, rows: int) -> None:
    write_shards(halving.Store(folder), kind, _table(kind, rows))


def write_shards(store: halving.Store, name: str, table: pa.Table) -> halving.Dataset:
    """Write a table as the shards of a snapshot's split ``train``; return the snapshot."""
    rows = table.num_rows
    shards = []
    for number in range(count := max(1, round(table.nbytes / SHARD_BYTES))):
        part = table.slice(begin := rows * number // count, rows * (number + 1) // count - begin)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, part.schema) as writer:
            writer.write_table(
                part.combine_chunks(),
                max_chunksize=max(1, _BATCH_BYTES * part.num_rows // max(1, part.nbytes)),
            )
        content = bytes(sink.getvalue())
        sha256 = hashlib.sha256(content).hexdigest()
        store.create(f"shards/sha256/{sha256[:2]}/{sha256}", content)
        shards.append([sha256, part.num_rows, len(content)])
    manifest = {"splits": {"train": rows}, "shards": {"train": shards}}
    dataset = halving.Dataset(store, name, _DIGEST)
    store.create(f"{dataset.folder}/manifest.json", json.dumps(manifest).encode())
    return dataset


def read(folder: Path, kind: str, batch: int, state: Any) -> Reading:
    loader = halving.Dataset(halving.Store(folder), kind, _DIGEST).loader("train", batch_size=batch)
    if state is not None:
        loader.load_state_dict(state)
    return Reading(lambda: (rows["x"] for rows in loader), loader.state_dict)


def _table(kind: str, rows: int) -> pa.Table:
    if kind == "blobs":
        return pa.table({"x": pa.array(blobs(rows), pa.binary())})
    chunks = [pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), FLOATS) for part in floats(rows)]
    return pa.table({"x": pa.chunked_array(chunks)})


if __name__ == "__main__":
    main("halving", write, read)
