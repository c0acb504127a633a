"""Rows of a snapshot that are shown to people or tried: some that something is true of, or a sample from all
over it.

A shard is read at a time, and no further than there is something to show.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halving import Dataset
from halving.data.shards import shards_of
from resources.datasets.row_hashes import Words
from resources.datasets.shard_writing import read_hashes_of_kind, read_statistics, rows_of
from resources.datasets.statistics import Statistics

SHOWN = 5
"""How many rows there are to look at."""
_LONGEST = 80  # characters of a value that is shown
Row = dict[str, str]


def look_up(
    dataset: Dataset,
    is_wrong: Callable[[pa.RecordBatch], NDArray[np.bool_]],
    may_have: Callable[[Statistics], bool] | None = None,
    splits: list[str] | None = None,
) -> list[Row]:
    """The first rows of which something is true, as a check shows them.

    Args:
        may_have: whether a shard may have such a row, by its statistics; others are not read (default: all
            may).
        splits: where they are looked for (default: all).
    """
    shown: list[Row] = []
    for split in splits or sorted(dataset.splits):
        for shard in shards_of(dataset.manifest, split):
            if may_have is not None and not may_have(
                read_statistics(dataset.store, shard, dataset.manifest["hashes"])
            ):
                continue
            for rows in rows_of(dataset.store, shard):
                places = np.flatnonzero(is_wrong(rows))[: SHOWN - len(shown)]
                shown += [shown_row(split, row) for row in rows.take(pa.array(places)).to_pylist()]
                if len(shown) == SHOWN:
                    return shown
    return shown


def rows_with_hashes(dataset: Dataset, kind: str, wanted: Words) -> list[Row]:
    """Some rows that have one of these hashes of a kind, those of the same hash together."""
    rows_of_hashes: list[tuple[int, Row]] = []
    for split in sorted(dataset.splits):
        left = SHOWN
        for shard in shards_of(dataset.manifest, split):
            hashes = read_hashes_of_kind(dataset.store, shard, dataset.manifest["hashes"], kind)
            places = np.flatnonzero(np.isin(hashes, wanted))[:left]
            if len(places):
                rows = pa.Table.from_batches(rows_of(dataset.store, shard)).take(pa.array(places)).to_pylist()
                rows_of_hashes += [
                    (value, shown_row(split, row))
                    for value, row in zip(hashes[places].tolist(), rows, strict=True)
                ]
                left -= len(places)
            if not left:
                break
    return [row for _, row in sorted(rows_of_hashes, key=lambda pair: pair[0])][: 2 * SHOWN]


def rows_of_classes(dataset: Dataset, target: str, wanted: Mapping[str, set[str]]) -> list[Row]:
    """The first rows of some classes, which are given by split.

    Only shards that have one of them, as their statistics say, are read.
    """
    shown: list[Row] = []
    for split, classes in wanted.items():
        for shard in shards_of(dataset.manifest, split):
            if classes.isdisjoint(
                read_statistics(dataset.store, shard, dataset.manifest["hashes"])[target]["classes"]
            ):
                continue
            for rows in rows_of(dataset.store, shard):
                values = rows.column(target)
                # A class is named as Python writes its value; Arrow writes true and false in another way.
                small = [value for value in values.drop_null().unique().to_pylist() if str(value) in classes]
                places = np.flatnonzero(pc.is_in(values, pa.array(small, values.type)))[: SHOWN - len(shown)]
                shown += [shown_row(split, row) for row in rows.take(pa.array(places)).to_pylist()]
                if len(shown) == SHOWN:
                    return shown
    return shown


def sampled_rows(
    dataset: Dataset, columns: list[str], most: int = 20_000
) -> list[tuple[str, pa.RecordBatch]]:
    """Rows of what is trained on, from all over it, each part with its split."""
    names = [name for name in sorted(dataset.splits) if name == "train" or name.startswith("fold-")]
    shards = [(name, shard) for name in names for shard in shards_of(dataset.manifest, name)]
    chosen = shards[:: max(1, len(shards) // 20)]
    parts = []
    for name, shard in chosen:
        batches = rows_of(dataset.store, shard)
        each = max(1, most // len(chosen) // len(batches))
        for rows in batches:
            places = np.unique(np.linspace(0, rows.num_rows - 1, each).astype(np.int64))
            parts.append((name, rows.select(columns).take(pa.array(places))))
    return parts


def shown_row(split: str, row: Mapping[str, Any]) -> Row:
    """A row as people are shown it, with its split first; a column that is called so, too, is shown as
    ``column split``.
    """
    values = {
        f"column {name}" if name == "split" else name: str(value)[:_LONGEST] for name, value in row.items()
    }
    return {"split": split, **values}


def any_of(masks: Any) -> NDArray[np.bool_]:
    """Where one of the masks is true; null is not."""
    together: NDArray[np.bool_] | None = None
    for mask in masks:
        plain = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
        together = plain if together is None else together | plain
    return together if together is not None else np.zeros(0, np.bool_)
