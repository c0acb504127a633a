"""Example rows of a snapshot for people to look at, and samples to try something on.

Shards are read one at a time, and only until there are enough examples.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halving import Dataset
from halving.data.shards import shards_of
from resources.datasets.row_hashes import Words
from resources.datasets.shard_writing import read_hashes_of_kind, read_shard, read_statistics
from resources.datasets.statistics import Statistics

MAX_EXAMPLES = 5
"""Example rows of a check."""
_MAX_CHARACTERS = 80  # characters of a value that is shown
Row = dict[str, str]


def find_examples(
    dataset: Dataset,
    is_wrong: Callable[[pa.RecordBatch], NDArray[np.bool_]],
    may_have: Callable[[Statistics], bool] | None = None,
    splits: list[str] | None = None,
) -> list[Row]:
    """Find the first rows for which something is true, as a check shows them.

    Args:
        is_wrong: tells for each row of a batch whether it is looked for.
        may_have: tells by a shard's statistics whether it may have such a row; other shards are not read
            (default: all may).
        splits: splits to search (default: all).
    """
    examples: list[Row] = []
    for split in splits or sorted(dataset.splits):
        for shard in shards_of(dataset.manifest, split):
            if may_have is not None and not may_have(
                read_statistics(dataset.store, shard, dataset.manifest["hash_rules"])
            ):
                continue
            for rows in read_shard(dataset.store, shard):
                places = np.flatnonzero(is_wrong(rows))[: MAX_EXAMPLES - len(examples)]
                examples += [example_row(split, row) for row in rows.take(pa.array(places)).to_pylist()]
                if len(examples) == MAX_EXAMPLES:
                    return examples
    return examples


def find_rows_with_hashes(dataset: Dataset, kind: str, wanted: Words) -> list[Row]:
    """Find some rows that have one of these hashes of a kind, with equal hashes side by side."""
    rows_of_hashes: list[tuple[int, Row]] = []
    for split in sorted(dataset.splits):
        missing = MAX_EXAMPLES
        for shard in shards_of(dataset.manifest, split):
            hashes = read_hashes_of_kind(dataset.store, shard, dataset.manifest["hash_rules"], kind)
            places = np.flatnonzero(np.isin(hashes, wanted))[:missing]
            if len(places):
                rows = (
                    pa.Table.from_batches(read_shard(dataset.store, shard)).take(pa.array(places)).to_pylist()
                )
                rows_of_hashes += [
                    (value, example_row(split, row))
                    for value, row in zip(hashes[places].tolist(), rows, strict=True)
                ]
                missing -= len(places)
            if not missing:
                break
    return [row for _, row in sorted(rows_of_hashes, key=lambda pair: pair[0])][: 2 * MAX_EXAMPLES]


def find_rows_of_classes(dataset: Dataset, target: str, wanted: Mapping[str, set[str]]) -> list[Row]:
    """Find the first rows of some classes, which are given by split.

    Only shards that have one of them by their statistics are read.
    """
    examples: list[Row] = []
    for split, classes in wanted.items():
        for shard in shards_of(dataset.manifest, split):
            if classes.isdisjoint(
                read_statistics(dataset.store, shard, dataset.manifest["hash_rules"])[target]["classes"]
            ):
                continue
            for rows in read_shard(dataset.store, shard):
                values = rows.column(target)
                # A class is named as Python writes its value; Arrow writes true and false in another way.
                small = [value for value in values.drop_null().unique().to_pylist() if str(value) in classes]
                places = np.flatnonzero(pc.is_in(values, pa.array(small, values.type)))[
                    : MAX_EXAMPLES - len(examples)
                ]
                examples += [example_row(split, row) for row in rows.take(pa.array(places)).to_pylist()]
                if len(examples) == MAX_EXAMPLES:
                    return examples
    return examples


def sample_rows(
    dataset: Dataset, columns: list[str], limit: int = 20_000
) -> list[tuple[str, pa.RecordBatch]]:
    """Sample the rows that are trained on evenly; each part comes with its split."""
    names = [name for name in sorted(dataset.splits) if name == "train" or name.startswith("fold-")]
    shards = [(name, shard) for name in names for shard in shards_of(dataset.manifest, name)]
    chosen = shards[:: max(1, len(shards) // 20)]
    parts = []
    for name, shard in chosen:
        batches = read_shard(dataset.store, shard)
        rows_of_batch = max(1, limit // len(chosen) // len(batches))
        for rows in batches:
            places = np.unique(np.linspace(0, rows.num_rows - 1, rows_of_batch).astype(np.int64))
            parts.append((name, rows.select(columns).take(pa.array(places))))
    return parts


def example_row(split: str, row: Mapping[str, Any]) -> Row:
    """A row as people see it, with its split first.

    A column that is named ``split``, too, is shown as ``column split``.
    """
    names = {"split": "column split"}
    values = {names.get(name, name): str(value)[:_MAX_CHARACTERS] for name, value in row.items()}
    return {"split": split, **values}


def any_of(masks: Iterable[pa.Array]) -> NDArray[np.bool_]:
    """Where any of the masks is true; null counts as false. There is at least one mask."""
    arrays = [pc.fill_null(mask, False).to_numpy(zero_copy_only=False) for mask in masks]
    together: NDArray[np.bool_] = np.logical_or.reduce(arrays)
    return together
