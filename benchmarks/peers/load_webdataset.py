"""The rows through WebDataset: tars, their order shuffled, and their samples by a buffer of a thousand.

It has no state to resume from.
"""

from pathlib import Path
from typing import Any

import numpy as np
import webdataset

from benchmarks.peers.loading_harness import Reading, blobs, floats, main


def write(folder: Path, kind: str, rows: int) -> None:
    items = blobs(rows) if kind == "blobs" else (row.tobytes() for part in floats(rows) for row in part)
    with webdataset.ShardWriter(
        f"{folder}/%06d.tar", maxsize=128 * 2**20, maxcount=10**9, verbose=0
    ) as writer:
        for number, item in enumerate(items):
            writer.write({"__key__": f"{number:09d}", "bin": item})


def read(folder: Path, kind: str, batch: int, state: Any) -> Reading:
    tars = sorted(str(path) for path in folder.glob("*.tar"))
    samples = (
        webdataset.WebDataset(tars, shardshuffle=len(tars))
        .shuffle(1000)
        .to_tuple("bin")
        .batched(batch, collation_fn=_collate)
    )
    if kind == "blobs":
        return Reading(lambda: iter(samples))
    return Reading(
        lambda: (np.frombuffer(b"".join(rows), np.float32).reshape(len(rows), -1) for rows in samples)
    )


def _collate(rows: list[tuple[bytes]]) -> list[bytes]:
    return [blob for (blob,) in rows]


if __name__ == "__main__":
    main("webdataset", write, read, resumes=False)
