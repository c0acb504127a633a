"""The rows through LitData: an optimized folder, read by its streaming loader in this process."""

from pathlib import Path
from typing import Any

import torch
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming import Cache

from benchmarks.peers.loading_harness import Reading, blobs, floats, main


def write(folder: Path, kind: str, rows: int) -> None:
    cache = Cache(str(folder), chunk_bytes="64MB")
    items = (torch.from_numpy(row.copy()) for part in floats(rows) for row in part)
    if kind == "blobs":
        items = blobs(rows)
    for number, item in enumerate(items):
        cache[number] = item
    cache.done()
    cache.merge()


def read(folder: Path, kind: str, batch: int, state: Any) -> Reading:
    options = {"collate_fn": _blobs} if kind == "blobs" else {}
    loader = StreamingDataLoader(
        StreamingDataset(str(folder), shuffle=True), batch_size=batch, num_workers=0, **options
    )
    if state is not None:
        loader.load_state_dict(state)
    return Reading(lambda: iter(loader), loader.state_dict)


def _blobs(rows: list[memoryview]) -> list[bytes]:
    return [bytes(row) for row in rows]


if __name__ == "__main__":
    main("litdata", write, read)
