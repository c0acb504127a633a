"""Tables whose rows tests take snapshots of."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

ROWS = 100
"""Rows of a table of :func:`table_of`."""
DAYS = [datetime(2026, 1, 1) + timedelta(days=number) for number in range(300)]
"""The days of the visits."""


def numbers(rows: int, first: int = 0) -> pa.Table:
    ids = np.arange(first, first + rows)
    return pa.table({"id": ids, "text": [f"number {number}" for number in ids], "label": ids % 3})


def write(form: str, path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "csv":
        csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def images(rows: int, first: int = 0) -> pa.Table:
    """Rows of 1 KiB, all different."""
    numbers = np.arange(first, first + rows)
    pixels = np.repeat(numbers[:, None], 256, axis=1) * 256 + np.arange(256)
    flat = pa.array(pixels.astype(np.int32).ravel())
    return pa.table(
        {"id": numbers, "pixels": pa.FixedSizeListArray.from_arrays(flat, 256), "label": numbers % 10}
    )


def visits(**changes: Any) -> pa.Table:
    """300 sound rows: three splits by time, no duplicates, and no feature that is made of the target."""
    numbers = np.arange(300)
    columns: dict[str, Any] = {
        "id": numbers,
        "user": [f"u{number // 10}" for number in numbers],
        "day": DAYS,
        "age": (numbers * 7919) % 80,
        "part": ["train"] * 180 + ["validation"] * 60 + ["test"] * 60,
        "label": [["low", "high"][number % 2] for number in (numbers * 2654435761) % 4294967296 // 65536],
    }
    return pa.table(columns | changes)


def table_of(first: int, x: pa.Array) -> pa.Table:
    """:data:`ROWS` rows, in which ``x`` repeats these values."""
    columns = {
        "id": range(first, first + ROWS),
        "x": pa.concat_arrays([x] * (ROWS // len(x))),
        "label": [row % 2 for row in range(ROWS)],
    }
    return pa.table(columns)
