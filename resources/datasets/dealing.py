"""Read a source's rows, and deal them into a spool for each split."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from halving.errors import InvalidInput
from resources.datasets.canonical import canonical, canonical_schema
from resources.datasets.previous_snapshot import PreviousKey
from resources.datasets.row_hashes import Words, column_words, hash_rows
from resources.datasets.shard_writing import GROUP, IDENTITY, ROW
from resources.datasets.sources import resize_batches, transform_rows
from resources.datasets.splits import fold_names, make_dealer
from resources.datasets.spool import Spool
from resources.datasets.thread_map import map_in_threads
from resources.source_files.columns import without_index
from resources.sweep_spec.dataset import REQUIRED_SPLITS, DatasetSource


@dataclass(frozen=True)
class DealtRows:
    """The rows of a source on this machine's disk, by split.

    Attributes:
        spools: complete spools of the splits that have rows.
        schema: schema of the rows.
        key: columns by whose hash they were dealt; empty if a column or the time decided.
    """

    spools: dict[str, Spool]
    schema: pa.Schema
    key: tuple[str, ...]


def deal_rows(
    folder: Path,
    source: DatasetSource,
    rows: Iterator[pa.RecordBatch],
    schema: pa.Schema | None,
    default_group: Sequence[str],
    previous_key: PreviousKey | None,
) -> DealtRows:
    """Read rows and deal them into a spool for each split.

    Args:
        folder: scratch folder for the spools.
        rows: rows of the source, before its transform.
        schema: schema that the rows must have; None takes that of the first rows.
        default_group, previous_key: as for :func:`resources.datasets.splits.make_dealer`.

    Raises:
        InvalidInput: there are no rows, or a column or a value is not accepted.
    """
    batches = resize_batches(map(without_index, transform_rows(source, resize_batches(rows))))
    first = next(batches, None)
    if first is None:
        field, value = source.origin
        raise InvalidInput(f"dataset.{field} = {str(value)!r} is not accepted: it has no rows")
    if schema is None:
        schema = canonical_schema(first.schema)
    dealer = make_dealer(source, schema, default_group, previous_key)
    kinds = kinds_of_hashes(source)

    def deal(rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch, Words]]:
        words = column_words(rows)
        columns = {
            ROW: [name for name in words if name != source.split_column],
            GROUP: source.group or [],
            IDENTITY: source.checks.identity or [],
        }
        hashes = np.stack([hash_rows(words, columns[kind]) for kind in kinds], axis=1)
        splits = {split: numbers for split, numbers in dealer.deal(rows, words).items() if len(numbers)}
        if len(splits) == 1:
            return [(split, rows, hashes) for split in splits]
        return [(split, rows.take(pa.array(numbers)), hashes[numbers]) for split, numbers in splits.items()]

    prepared = (canonical(rows, schema) for rows in chain([first], batches))
    del first  # It may be many megabytes, which are not held until the last rows have come.
    spools: dict[str, Spool] = {}
    try:
        for parts_of_splits in map_in_threads(deal, prepared):
            for split, part, hashes in parts_of_splits:
                if split not in spools:
                    spools[split] = Spool(folder / "spools" / split, part.schema)
                spools[split].append(part, hashes)
    except BaseException:
        for spool in spools.values():
            with contextlib.suppress(OSError):  # The disk may be full.
                spool.close()
        raise
    for spool in spools.values():
        spool.complete()
    return DealtRows(spools, schema, dealer.key)


def kinds_of_hashes(source: DatasetSource) -> list[str]:
    """The kinds of hashes of each row, in the order in which they are stored."""
    kinds = [ROW]
    if source.group:
        kinds.append(GROUP)
    if source.checks.identity:
        kinds.append(IDENTITY)
    return kinds


def check_splits(source: DatasetSource, dealt: DealtRows) -> None:
    """Refuse dealt rows if a split that the spec needs is empty.

    Raises:
        InvalidInput: a required split, a split with a share, or a fold has no rows.
    """
    rows = {split: spool.rows for split, spool in dealt.spools.items()}
    total = sum(rows.values())
    if source.split_column or source.split_times:
        field = "split_times"
        if source.split_column:
            field = f"split_column = {source.split_column!r}"
        if missing := [name for name in REQUIRED_SPLITS if not rows.get(name)]:
            raise InvalidInput(
                f"dataset.{field} is not accepted: of {total} rows none is in {missing}; there are {rows}"
            )
        return
    shares = {name: f"splits.{name} = {share}" for name, share in source.splits.items()}
    if source.folds:
        shares = {"test": shares["test"]} | dict.fromkeys(fold_names(source.folds), f"folds = {source.folds}")
    for name, share in shares.items():
        if not rows.get(name):
            raise InvalidInput(
                f"dataset.{share} of {total} rows is empty; give a larger share, more rows, or a group "
                "with more values"
            )
