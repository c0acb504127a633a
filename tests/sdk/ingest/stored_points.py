"""What the store holds of a run whose points a metric writer has sent."""

import json
from collections import Counter
from typing import Any

import pyarrow.parquet as pq

from halving import Store


def points(store: Store, run: str = "r") -> list[dict[str, Any]]:
    """All points of a run in the order of its segments."""
    folder = f"metrics/project=p/run={run}/live"
    return [
        row
        for name in store.names(folder)
        for row in pq.read_table(store.path(f"{folder}/{name}"), filesystem=store.filesystem).to_pylist()
    ]


def count_points(store: Store) -> Counter[tuple[str, int]]:
    return Counter((point["key"], point["step"]) for point in points(store))


def end_record(store: Store, attempt: int = 1) -> dict[str, Any]:
    ended: dict[str, Any] = json.loads(store.read(f"runs/project=p/r/end-{attempt:04d}.json"))
    return ended
