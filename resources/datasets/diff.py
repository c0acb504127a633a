"""What changed from one snapshot to another: schema, rows by split, what columns hold, and which rows came,
went or moved.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halving import Dataset, Store
from halving.data.shards import shards_of
from resources.datasets.row_hashes import Words
from resources.datasets.shard_writing import ROW, read_hashes_of_kind
from resources.datasets.statistics import all_columns

MOST_ROWS = 200_000_000
"""Rows in shards that two snapshots do not share: of more, 8 bytes each, the rows are not compared."""

_NONE: Words = np.zeros(0, np.uint64)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What two manifests say, without reading a row.

    Returns:
        ``schema`` (``added``, ``removed`` and ``changed`` columns), ``splits`` (rows before and after),
        ``columns`` (those whose nulls, bounds or classes differ, before and after) and ``bytes`` (``shared``:
        of shards that both have; ``new``: of the others).
    """
    before = old["schema"]
    after = new["schema"]
    had = all_columns(old)
    has = all_columns(new)
    shared = {entry[0] for entries in old["shards"].values() for entry in entries}
    sizes = [(entry[0] in shared, entry[2]) for entries in new["shards"].values() for entry in entries]
    return {
        "schema": {
            "added": {name: kind for name, kind in after.items() if name not in before},
            "removed": {name: kind for name, kind in before.items() if name not in after},
            "changed": {
                name: [before[name], kind] for name, kind in after.items() if before.get(name, kind) != kind
            },
        },
        "splits": {
            name: [old["splits"].get(name, 0), new["splits"].get(name, 0)]
            for name in sorted({*old["splits"], *new["splits"]})
        },
        "columns": {
            name: [had[name], found] for name, found in has.items() if name in had and had[name] != found
        },
        "bytes": {
            "shared": sum(size for is_shared, size in sizes if is_shared),
            "new": sum(size for is_shared, size in sizes if not is_shared),
        },
    }


def compare_rows(store: Store, old: Dataset, new: Dataset) -> dict[str, Any] | None:
    """Rows by their hashes: ``added`` and ``removed`` by split, and ``moved`` from one split to another;
    None: too many to compare.

    Returns:
        ``moved`` is a list of ``[from, to, rows]``. A moved row counts as removed in one split and added in
        the other, too.
    """
    own = {
        name: _unshared(store, one.manifest, other.manifest)
        for name, one, other in (("old", old, new), ("new", new, old))
    }
    if own["old"] is None or own["new"] is None:
        return None
    came = {}
    went = {}
    for split in sorted({*own["old"], *own["new"]}):
        values, delta = _delta(own["old"].get(split, _NONE), own["new"].get(split, _NONE))
        came[split] = (values[delta > 0], delta[delta > 0])
        went[split] = (values[delta < 0], -delta[delta < 0])
    moved = []
    for source, (left, left_counts) in went.items():
        for target, (arrived, arrived_counts) in came.items():
            _, here, there = np.intersect1d(left, arrived, assume_unique=True, return_indices=True)
            if len(here):
                moved.append(
                    [source, target, int(np.minimum(left_counts[here], arrived_counts[there]).sum())]
                )
    return {
        "added": {split: int(counts.sum()) for split, (_, counts) in came.items()},
        "removed": {split: int(counts.sum()) for split, (_, counts) in went.items()},
        "moved": moved,
    }


def _unshared(store: Store, manifest: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Words] | None:
    """The row hashes by split, of shards that the other has not in the same split."""
    found: dict[str, Words] = {}
    rows = 0
    for split in manifest["shards"]:
        shared = set(shards_of(other, split))
        shards = [shard for shard in shards_of(manifest, split) if shard not in shared]
        rows += sum(shard.rows for shard in shards)
        if rows > MOST_ROWS:
            return None
        found[split] = np.concatenate(
            [_NONE, *(read_hashes_of_kind(store, shard, manifest["hashes"], ROW) for shard in shards)]
        )
    return found


def _delta(old: Words, new: Words) -> tuple[Words, NDArray[np.int64]]:
    """Each hash that occurs more often on one side, and how much more often on the new one."""
    values, places = np.unique(np.concatenate([old, new]), return_inverse=True)
    delta = np.bincount(places[len(old) :], minlength=len(values)) - np.bincount(
        places[: len(old)], minlength=len(values)
    )
    differs = delta != 0
    return values[differs], delta[differs]
