"""Find what a test split shares with the rows that were trained on.

A score on rows that the model has seen says nothing about others.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from halving import Dataset
from halving.data.shards import shards_of
from halving.text import comma_list
from resources.datasets.data_checks import DataCheck, check_one
from resources.datasets.example_rows import Row, find_examples
from resources.datasets.leak_checks import find_lone_predictors, reason_without_predictors
from resources.datasets.row_hashes import Words, column_words, hash_rows
from resources.datasets.shard_writing import read_shard
from resources.sweep_spec.dataset import DatasetSource

_CONTENT = ("sha256", "etag")  # columns that identify the content of a row that is a file
_PLACES = ("path", "location")
_OF_A_FILE = {*_CONTENT, *_PLACES, "label", "bytes", "content", "version"}
_AT_ONCE = 20_000_000  # hashes of test rows in memory at a time: 160 MB


def check_leaks(
    dataset: Dataset,
    source: DatasetSource,
    accepted: Sequence[str] = (),
    ignored: Sequence[str] = (),
    *,
    held_out: str = "test",
) -> list[DataCheck]:
    """Make the checks for leaks of a held-out split.

    These are ``leaked_features``, ``leaked_groups``, ``time_order`` and ``lone_predictor``; and
    ``leaked_rows`` where the spec's ``checks.identity`` says which rows are the same.

    Args:
        source: the source that the snapshot was taken of, with its group, identity and column of times.
        accepted: columns that may predict the target by themselves.
        ignored: columns that only name a row, such as an id, and in which copies of it differ.
    """
    identity = source.checks.identity
    checks = [_check_features(dataset, source, held_out, ignored)]
    if identity:
        checks.append(
            _check_overlap("leaked_rows", dataset, source, held_out, identity, comma_list(identity))
        )
    return [
        *checks,
        check_one("leaked_groups", dataset, source, blocking=True),
        check_one("time_order", dataset, source, blocking=True),
        _check_lone_predictor(dataset, source, accepted),
    ]


def _check_features(
    dataset: Dataset, source: DatasetSource, held_out: str, ignored: Sequence[str]
) -> DataCheck:
    """Check for rows whose features are those of a row that was trained on."""
    features = _features(dataset.manifest["schema"], {source.target, source.split_column, *ignored})
    if not features:
        return DataCheck("leaked_features", True, "there are no features", True)
    return _check_overlap("leaked_features", dataset, source, held_out, features, "features")


def _check_overlap(
    name: str,
    dataset: Dataset,
    source: DatasetSource,
    held_out: str,
    columns: Sequence[str],
    label: str,
) -> DataCheck:
    """Check that no held-out row shares these columns, called ``label``, with a row of another split."""
    if _keeps_together(dataset, source, columns):
        return DataCheck(
            name,
            True,
            f"rows of equal {label} are in one split, because a hash of them deals them",
            True,
        )
    total = dataset.manifest["splits"][held_out]
    leaked, examples = _count_overlap(dataset, held_out, columns)
    if not leaked:
        reason = f"none of the {total:,} rows of the {held_out} split has the {label} of a row of another"
        return DataCheck(name, True, reason, True)
    reason = (
        f"{leaked:,} of the {total:,} rows of the {held_out} split have the {label} of a row of another split"
    )
    return DataCheck(name, False, reason, True, _find_rows(dataset, examples, columns))


def _keeps_together(dataset: Dataset, source: DatasetSource, columns: Sequence[str]) -> bool:
    """Whether rows that are equal in these columns are always dealt into one split.

    They are if the columns that deal a row are among them.
    """
    return not (source.split_column or source.split_times) and {*dataset.manifest["key"]} <= {*columns}


def _count_overlap(dataset: Dataset, held_out: str, columns: Sequence[str]) -> tuple[int, Words]:
    """Count the rows of the held-out split that share these columns with a row of another split.

    Each split is read shard by shard. At most ``_AT_ONCE`` hashes of held-out rows are in memory at a time;
    the other splits are read once for each such part.
    """
    total = dataset.manifest["splits"][held_out]
    parts = max(1, -(-total // _AT_ONCE))
    leaked = 0
    examples = np.zeros(0, np.uint64)
    for part in range(parts):
        ours = np.concatenate(
            [
                np.zeros(0, np.uint64),
                *(_of_part(hashes, part, parts) for hashes in _read_hashes(dataset, held_out, columns)),
            ]
        )
        # It is sorted once, however many batches are looked up in it.
        ours, rows = np.unique(ours, return_counts=True)
        is_shared = np.zeros(len(ours), np.bool_)
        for split in _trained_on(dataset, held_out):
            for others in _read_hashes(dataset, split, columns):
                is_shared[_places_of(_of_part(others, part, parts), ours)] = True
        leaked += int(rows[is_shared].sum())
        examples = np.concatenate([examples, ours[is_shared]])[:5]
    return leaked, examples


def _check_lone_predictor(dataset: Dataset, source: DatasetSource, accepted: Sequence[str]) -> DataCheck:
    scores, rows = find_lone_predictors(dataset, source, accepted)
    if not scores:
        reason = reason_without_predictors(dataset, source)
        if accepted:
            reason += " but those that may"
        return DataCheck("lone_predictor", True, reason, True)
    reason = f"{comma_list(scores)} predict the target by themselves: as a rule they were made of it"
    return DataCheck("lone_predictor", False, reason, True, rows)


def _features(columns: Collection[str], others: Collection[str | None]) -> list[str]:
    """The columns in which two rows that are the same to a model are equal.

    A file is known by its content. Rows that a transform made of files are compared without their paths,
    because copies of a file have other ones.
    """
    content = next((name for name in _CONTENT if {"path", name} <= {*columns}), None)
    if content is not None and content not in others and {*columns} <= _OF_A_FILE:
        return [content]
    features = [name for name in columns if name not in others]
    if content is None:
        return features
    return [name for name in features if name not in _PLACES]


def _trained_on(dataset: Dataset, held_out: str) -> list[str]:
    return [name for name in sorted(dataset.splits) if name != held_out]


def _read_hashes(dataset: Dataset, split: str, features: Sequence[str]) -> Iterator[Words]:
    for shard in shards_of(dataset.manifest, split):
        for rows in read_shard(dataset.store, shard):
            yield _row_hashes(rows, features)


def _row_hashes(rows: pa.RecordBatch, columns: Sequence[str]) -> Words:
    return hash_rows(column_words(rows.select(columns)), columns)


def _places_of(wanted: Words, ascending: Words) -> NDArray[np.intp]:
    """The positions in an ascending array without duplicates of those words that are in it."""
    if not len(ascending):
        return np.zeros(0, np.intp)
    places = np.searchsorted(ascending, wanted)
    places[places == len(ascending)] = 0
    return places[ascending[places] == wanted]


def _of_part(words: Words, part: int, parts: int) -> Words:
    if parts == 1:
        return words
    return words[words % np.uint64(parts) == part]


def _find_rows(dataset: Dataset, wanted: Words, features: Sequence[str]) -> list[Row]:
    """Some rows of each split that have one of these hashes."""

    def has_wanted_hash(rows: pa.RecordBatch) -> NDArray[np.bool_]:
        return np.isin(_row_hashes(rows, features), wanted)

    return [
        row
        for split in sorted(dataset.splits)
        for row in find_examples(dataset, has_wanted_hash, splits=[split])
    ]
