"""Snapshots of shards, written as they are published."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from halving import Dataset, NotFound, Store
from halving.data.shards import Shard

ROWS = (61, 5, 100, 34)
"""The rows of the shards of the fixture ``dataset`` and of its like in one folder."""


def arrow_file(table: pa.Table, rows: int = 97) -> bytes:
    """An uncompressed Arrow file in record batches of so many rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return bytes(sink.getvalue())


def put_shard(store: Store, content: bytes, rows: int) -> Shard:
    shard = Shard(hashlib.sha256(content).hexdigest(), rows, len(content))
    store.create(shard.name, content)
    return shard


def snapshot(store: Store, splits: Mapping[str, Sequence[Shard]], name: str = "points") -> Dataset:
    """A dataset whose splits have these shards."""
    entries = {
        split: [[shard.sha256, shard.rows, shard.bytes] for shard in shards]
        for split, shards in splits.items()
    }
    digest = "sha256:" + hashlib.sha256(json.dumps(entries).encode()).hexdigest()
    dataset = Dataset(store, name, digest)
    rows = {split: sum(shard.rows for shard in shards) for split, shards in splits.items()}
    manifest = {
        "digest": digest,
        "target": "label",
        "rows": sum(rows.values()),
        "splits": rows,
        "shards": entries,
    }
    manifest["statistics"] = {split: nulls_of(store, shards) for split, shards in splits.items()}
    store.create(f"{dataset.folder}/manifest.json", json.dumps(manifest).encode())
    return dataset


def nulls_of(store: Store, shards: Sequence[Shard]) -> dict[str, dict[str, int]]:
    """Count the nulls of each column, and those within its lists, as statistics have them.

    A shard that is gone or damaged is left out.
    """
    counts: dict[str, dict[str, int]] = {}
    for shard in shards:
        with contextlib.suppress(pa.ArrowInvalid, NotFound):
            table = pa.ipc.open_file(store.read(shard.name)).read_all()
            for name in table.column_names:
                count = counts.setdefault(name, {"nulls": 0, "null_items": 0})
                count["nulls"] += table[name].null_count
                items = table[name].combine_chunks()
                while hasattr(items.type, "value_type") and not pa.types.is_map(items.type):
                    items = items.flatten()
                    count["null_items"] += items.null_count
    return counts


def sharded_dataset(store: Store, *tables: pa.Table, rows: int = 97, name: str = "points") -> Dataset:
    """A dataset whose split ``train`` has a shard for each table; ``none`` has no rows."""
    shards = [put_shard(store, arrow_file(table, rows), table.num_rows) for table in tables]
    return snapshot(store, {"train": shards, "none": []}, name)


def counting_tables(*rows: int) -> list[pa.Table]:
    """Tables with so many rows, whose column ``n`` counts through all of them."""
    ends = [sum(rows[: place + 1]) for place in range(len(rows))]
    return [
        pa.table({"n": pa.array(range(end - count, end), pa.int64())})
        for count, end in zip(rows, ends, strict=True)
    ]


def numbers(batches: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """Column ``n`` of each batch."""
    return [batch["n"].tolist() for batch in batches]


def flat(batches: Iterable[Sequence[int]]) -> list[int]:
    """All of them as one list."""
    return list(chain.from_iterable(batches))
