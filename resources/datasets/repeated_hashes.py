"""Find hashes of rows that repeat, within a split and across splits, in bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halving import Dataset
from halving.data.shards import shards_of
from resources.datasets.example_rows import MAX_EXAMPLES
from resources.datasets.row_hashes import Words
from resources.datasets.scratch_folder import scratch_folder
from resources.datasets.shard_writing import read_hashes_of_kind

_AT_ONCE = 20_000_000
"""Hashes that are sorted in memory at a time, 8 bytes each; there are at most four copies of them."""
_NONE: Words = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Repeats:
    """Hashes that repeat, and how many rows have them.

    Attributes:
        copies: number of rows whose hash an earlier row of their split has.
        across: number of hashes that are in two splits or more.
        some_copied: a few hashes that repeat within a split.
        some_across: a few hashes that are in two splits or more.
    """

    copies: int
    across: int
    some_copied: Words
    some_across: Words


def find_repeats(dataset: Dataset, kind: str) -> Repeats:
    """Find the hashes of one kind that repeat."""
    splits = sorted(dataset.splits)
    parts = -(-dataset.manifest["rows"] // _AT_ONCE)
    if parts <= 1:
        return _repeats_of([np.concatenate([_NONE, *_read_hashes(dataset, split, kind)]) for split in splits])
    with scratch_folder(dataset.store) as folder:
        for split in splits:
            for hashes in _read_hashes(dataset, split, kind):
                _deal(hashes, folder, split, parts)
        return _add_up(
            _repeats_of([_read_part(folder, split, part) for split in splits]) for part in range(parts)
        )


def _read_hashes(dataset: Dataset, split: str, kind: str) -> Iterator[Words]:
    for shard in shards_of(dataset.manifest, split):
        yield read_hashes_of_kind(dataset.store, shard, dataset.manifest["hash_rules"], kind)


def _deal(hashes: Words, folder: Path, split: str, parts: int) -> None:
    """Append hashes to the files of their parts; equal hashes go to the same part."""
    numbers = (hashes % np.uint64(parts)).astype(np.int64)
    ends = np.cumsum(np.bincount(numbers, minlength=parts))
    for part, of_part in enumerate(np.split(hashes[np.argsort(numbers, kind="stable")], ends[:-1])):
        with (folder / f"{part}-{split}").open("ab") as file:
            file.write(of_part.tobytes())


def _read_part(folder: Path, split: str, part: int) -> Words:
    path = folder / f"{part}-{split}"
    if not path.exists():
        return _NONE
    return np.fromfile(path, np.uint64)


def _repeats_of(splits: list[Words]) -> Repeats:
    """Count the repeats among the hashes of each split; the arrays are sorted in place."""
    copies = 0
    some_copied = _NONE
    distinct: list[Words] = []
    for hashes in splits:
        of_split, repeated = _split_off_copies(hashes)
        copies += len(repeated)
        some_copied = np.concatenate([some_copied, np.unique(repeated)[:MAX_EXAMPLES]])[:MAX_EXAMPLES]
        distinct.append(of_split)
    together = np.concatenate([_NONE, *distinct])
    distinct.clear()
    across = np.unique(_split_off_copies(together)[1])
    return Repeats(copies, len(across), some_copied, across[:MAX_EXAMPLES])


def _split_off_copies(hashes: Words) -> tuple[Words, Words]:
    """Each hash once, and the hashes that follow an equal one; the array is sorted in place."""
    hashes.sort()
    is_copy = np.zeros(len(hashes), np.bool_)
    is_copy[1:] = hashes[1:] == hashes[:-1]
    return hashes[~is_copy], hashes[is_copy]


def _add_up(repeats: Iterator[Repeats]) -> Repeats:
    total = Repeats(0, 0, _NONE, _NONE)
    for part in repeats:
        total = Repeats(
            total.copies + part.copies,
            total.across + part.across,
            np.concatenate([total.some_copied, part.some_copied])[:MAX_EXAMPLES],
            np.concatenate([total.some_across, part.some_across])[:MAX_EXAMPLES],
        )
    return total
