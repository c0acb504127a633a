"""What changed from one snapshot to another: schema, rows of each split, columns, and moved rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halving import Dataset, Store
from halving.data.shards import shards_of
from resources.datasets.row_hashes import Words
from resources.datasets.shard_writing import ROW, read_hashes_of_kind
from resources.datasets.statistics import all_columns

MAX_ROWS = 200_000_000
"""Rows in unshared shards above which rows are not compared; each takes 8 bytes of memory."""

_NONE: Words = np.zeros(0, np.uint64)


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two manifests, without reading a row.

    Returns:
        ``schema`` (``added``, ``removed`` and ``changed`` columns), ``splits`` (rows before and after),
        ``columns`` (those whose nulls, bounds or classes differ, before and after) and ``bytes`` (``shared``:
        of shards that both have; ``new``: of the others).
    """
    before = old["schema"]
    after = new["schema"]
    old_columns = all_columns(old)
    new_columns = all_columns(new)
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
            name: [old_columns[name], column]
            for name, column in new_columns.items()
            if name in old_columns and old_columns[name] != column
        },
        "bytes": {
            "shared": sum(size for is_shared, size in sizes if is_shared),
            "new": sum(size for is_shared, size in sizes if not is_shared),
        },
    }


def compare_rows(store: Store, old: Dataset, new: Dataset) -> dict[str, Any] | None:
    """Compare the rows of two snapshots by their hashes; None if there are too many.

    Returns:
        ``added`` and ``removed``: rows by split. ``moved``: a list of ``[from, to, rows]``; a moved row also
        counts as removed from one split and added to the other.
    """
    own = {
        name: _unshared_hashes(store, dataset.manifest, other.manifest)
        for name, dataset, other in (("old", old, new), ("new", new, old))
    }
    if own["old"] is None or own["new"] is None:
        return None
    arrivals = {}
    departures = {}
    for split in sorted({*own["old"], *own["new"]}):
        values, delta = _delta(own["old"].get(split, _NONE), own["new"].get(split, _NONE))
        arrivals[split] = (values[delta > 0], delta[delta > 0])
        departures[split] = (values[delta < 0], -delta[delta < 0])
    moved = []
    for source, (departed, departed_counts) in departures.items():
        for target, (arrived, arrived_counts) in arrivals.items():
            _, left_places, arrived_places = np.intersect1d(
                departed, arrived, assume_unique=True, return_indices=True
            )
            if len(left_places):
                moved.append(
                    [
                        source,
                        target,
                        int(np.minimum(departed_counts[left_places], arrived_counts[arrived_places]).sum()),
                    ]
                )
    return {
        "added": {split: int(counts.sum()) for split, (_, counts) in arrivals.items()},
        "removed": {split: int(counts.sum()) for split, (_, counts) in departures.items()},
        "moved": moved,
    }


def _unshared_hashes(
    store: Store, manifest: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Words] | None:
    """Read the row hashes, by split, of the shards that the other does not have in the same split."""
    hashes: dict[str, Words] = {}
    rows = 0
    for split in manifest["shards"]:
        shared = set(shards_of(other, split))
        shards = [shard for shard in shards_of(manifest, split) if shard not in shared]
        rows += sum(shard.rows for shard in shards)
        if rows > MAX_ROWS:
            return None
        hashes[split] = np.concatenate(
            [_NONE, *(read_hashes_of_kind(store, shard, manifest["hash_rules"], ROW) for shard in shards)]
        )
    return hashes


def _delta(old: Words, new: Words) -> tuple[Words, NDArray[np.int64]]:
    """The hashes that occur more often on one side, and how much more often on the new one."""
    values, places = np.unique(np.concatenate([old, new]), return_inverse=True)
    delta = np.bincount(places[len(old) :], minlength=len(values)) - np.bincount(
        places[: len(old)], minlength=len(values)
    )
    differs = delta != 0
    return values[differs], delta[differs]
