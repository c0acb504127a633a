"""The rows through MosaicML Streaming: MDS shards in a folder, read by PyTorch's loader."""

from pathlib import Path
from typing import Any

import torch
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from benchmarks.peers.loading_harness import FLOATS, Reading, blobs, floats, main


def write(folder: Path, kind: str, rows: int) -> None:
    items = blobs(rows)
    column = "bytes"
    if kind != "blobs":
        items = (row for part in floats(rows) for row in part)
        column = f"ndarray:float32:{FLOATS}"
    with MDSWriter(out=str(folder), columns={"x": column}) as writer:
        for item in items:
            writer.write({"x": item})


def read(folder: Path, kind: str, batch: int, state: Any) -> Reading:
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=batch)
    collate = _floats
    if kind == "blobs":
        collate = _blobs
    loader = StreamingDataLoader(dataset, batch_size=batch, num_workers=0, collate_fn=collate)
    if state is not None:
        loader.load_state_dict(state)
    return Reading(lambda: (rows["x"] for rows in loader), loader.state_dict)


def _blobs(rows: list[dict[str, Any]]) -> dict[str, list[bytes]]:
    # of a list it would count the bytes of the first as rows
    return {"x": [row["x"] for row in rows]}


def _floats(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack([torch.from_numpy(row["x"]) for row in rows])}


if __name__ == "__main__":
    main("mosaicml-streaming", write, read)
