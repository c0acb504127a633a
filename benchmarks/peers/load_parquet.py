"""The rows from Parquet by pyarrow, as users write it themselves.

Row groups of 1 MiB come in random order, eight at a time, with their rows mixed. It can resume only at the
beginning.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.loading_harness import BLOB_BYTES, FLOATS, Reading, blobs, floats, main

_GROUP_BYTES = 2**20
_GROUPS = 8


def write(folder: Path, kind: str, rows: int) -> None:
    if kind == "blobs":
        column = pa.chunked_array([pa.array(blobs(rows), pa.binary())])
        row = BLOB_BYTES
    else:
        column = pa.chunked_array(
            [pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), FLOATS) for part in floats(rows)]
        )
        row = 4 * FLOATS
    table = pa.table({"x": column})
    pq.write_table(
        table,
        folder / "rows.parquet",
        row_group_size=_GROUP_BYTES // row,
        compression="none",
        use_dictionary=False,
    )


def read(folder: Path, kind: str, batch: int, state: Any) -> Reading:
    return Reading(lambda: _batches(folder / "rows.parquet", kind, batch))


def _batches(path: Path, kind: str, batch: int) -> Iterator[Any]:
    pa.set_cpu_count(1)
    random = np.random.default_rng()
    with pq.ParquetFile(path, memory_map=True) as file:
        groups = random.permutation(file.num_row_groups)
        for begin in range(0, len(groups), _GROUPS):
            column = file.read_row_groups(groups[begin : begin + _GROUPS].tolist(), use_threads=False)[
                "x"
            ].combine_chunks()
            order = random.permutation(len(column))
            for at in range(0, len(order), batch):
                rows = column.take(pa.array(order[at : at + batch]))
                yield rows.to_pylist() if kind == "blobs" else rows.flatten().to_numpy().reshape(-1, FLOATS)


if __name__ == "__main__":
    main("pyarrow", write, read, resumes=False)
