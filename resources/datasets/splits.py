"""Which split a row belongs to: a pure function of the row and the spec, so it never changes.

By shares, a row's group is hashed with the seed to a fraction of [0, 1), and the splits divide that interval
among them: test first, then the others by name. So a row that is added, removed or moved has no effect on
another, and a share that grows takes rows from its neighbours only. Without a group, all columns of the
dataset's first snapshot but the target are hashed, so a column that is added later moves no row. How many
rows a split gets is binomial: about 1,000 +- 28 of 5,000 at a share of 0.2.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halving.errors import InvalidInput
from halving.identifiers import NAME_RULE, check_name
from halving.text import comma_list
from resources.datasets.previous_snapshot import PreviousKey
from resources.datasets.row_hashes import Words, column_words, hash_family, hash_rows, mix
from resources.sweep_spec.dataset import DatasetSource

_MAX_SPLITS = 100
_HELD_OUT = "test"
_MAX_NAMED = 5  # splits named in a message

RowsBySplit = Mapping[str, NDArray[np.int64]]
"""The row numbers of a batch by split, ascending; each row is in exactly one."""


@dataclass(frozen=True)
class Dealer:
    """Deals batches of rows into splits.

    Attributes:
        key: columns that decide by their hash; empty if a column or the time decides.
    """

    key: tuple[str, ...]
    deal: Callable[[pa.RecordBatch, Mapping[str, Words]], RowsBySplit]


def make_dealer(
    source: DatasetSource,
    schema: pa.Schema,
    default_group: Sequence[str] = (),
    previous_key: PreviousKey | None = None,
) -> Dealer:
    """Make the dealer of a spec for rows of a schema.

    Args:
        default_group: columns that decide if neither the spec has a ``group`` nor the dataset a previous
            snapshot; by default all but the target.
        previous_key: columns that decided before, when the spec had no ``group``. They decide again, so that
            a column that is added moves no row.

    Raises:
        InvalidInput: the spec names a column that is not there, or a column that decided before is gone.
    """
    columns = schema.names
    needed = [("target", source.target)]
    needed += [("group", column) for column in source.group or []]
    if source.split_column:
        needed.append(("split_column", source.split_column))
    if source.split_times:
        needed.append(("split_times.column", source.split_times.column))
    needed += [("checks.identity", column) for column in source.checks.identity or []]
    for field, column in needed:
        if column not in columns:
            raise InvalidInput(
                f"dataset.{field} = {column!r} is not accepted: the columns are {list(columns)}"
            )
    if source.split_column:
        return Dealer((), _by_column(source.split_column))
    if source.split_times:
        times = source.split_times
        return Dealer(
            (), _by_time(times.column, [times.validation, times.test], ["train", "validation", "test"])
        )
    key = _key_of(source, schema, default_group, previous_key)
    shares: Mapping[str, float] = source.splits
    if source.folds:
        shares = _shares_of_folds(source.splits, source.folds)
    names, bounds = divide_interval(shares)
    salt = mix(np.array([source.seed], np.uint64))[0]

    def deal(rows: pa.RecordBatch, words: Mapping[str, Words]) -> RowsBySplit:
        place = np.searchsorted(bounds, mix(hash_rows(words, key) ^ salt), side="right")
        return {name: np.flatnonzero(place == number) for number, name in enumerate(names)}

    return Dealer(key, deal)


def deal_table(source: DatasetSource, table: pa.Table) -> RowsBySplit:
    """The row numbers of a whole table by split."""
    (rows,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return make_dealer(source, table.schema).deal(rows, column_words(rows))


def _key_of(
    source: DatasetSource, schema: pa.Schema, default_group: Sequence[str], previous_key: PreviousKey | None
) -> tuple[str, ...]:
    """The columns by whose hash rows are dealt."""
    if source.group:
        return tuple(source.group)
    if previous_key is not None and not source.redeal:
        _check_key(previous_key, schema)
        return tuple(previous_key.types)
    if default_group and set(default_group) <= set(schema.names):  # A transform may drop them.
        return tuple(default_group)
    return tuple([name for name in schema.names if name != source.target] or schema.names)


def _check_key(previous_key: PreviousKey, schema: pa.Schema) -> None:
    """Refuse rows that the previous key would deal differently than before."""
    changes = []
    for column, previous_kind in previous_key.types.items():
        if column not in schema.names:
            changes.append(f"{column} is gone")
            continue
        kind = str(schema.field(column).type)
        if hash_family(kind) != hash_family(previous_kind):
            changes.append(f"{column} is {kind} and was {previous_kind}")
    if changes:
        raise InvalidInput(
            f"dataset.group is needed: the rows of {previous_key.snapshot} were dealt by the hash of "
            f"{comma_list(list(previous_key.types))}, of which now {comma_list(changes)}. "
            "So all rows would be dealt anew, and rows of the test split be trained on. "
            "Give group, columns that tell rows from each other and stay as they are; "
            "or redeal: true, which deals all rows anew all the same"
        )


def divide_interval(shares: Mapping[str, float]) -> tuple[list[str], Words]:
    """Divide the 2**64 hashes among splits: their names in order, and where each but the first begins.

    The bounds are exact: 0.1 is a tenth. Test comes first, so that what is held out depends on its own share
    alone, and not on the other splits or folds.
    """
    names = sorted(shares, key=lambda name: (name != _HELD_OUT, name))
    total = Fraction(0)
    bounds = []
    for name in names[:-1]:
        total += Fraction(repr(float(shares[name])))
        bounds.append(min(2**64 - 1, int(total * 2**64)))
    return names, np.array(bounds, np.uint64)


def fold_names(folds: int) -> list[str]:
    """``fold-0``, ``fold-1``, …"""
    return [f"fold-{number}" for number in range(folds)]


def _shares_of_folds(shares: Mapping[str, float], folds: int) -> dict[str, float]:
    rest = 1 - Fraction(repr(float(shares[_HELD_OUT])))
    return {**{name: float(rest / folds) for name in fold_names(folds)}, _HELD_OUT: shares[_HELD_OUT]}


def _by_column(column: str) -> Callable[[pa.RecordBatch, Mapping[str, Words]], RowsBySplit]:
    splits: set[str] = set()

    def deal(rows: pa.RecordBatch, words: Mapping[str, Words]) -> RowsBySplit:
        values = rows.column(column)
        if values.null_count or not (
            pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        ):
            values_in_words = f"values of the type {values.type}"
            if values.null_count:
                values_in_words = f"{values.null_count} nulls among {len(values)} rows"
            raise InvalidInput(
                f"dataset.split_column = {column!r} is not accepted: it has {values_in_words}; "
                "give a column with a split's name in each"
            )
        coded = values.dictionary_encode()
        names = coded.dictionary.to_pylist()
        for name in names:
            try:
                check_name("split", name)
            except InvalidInput:
                raise InvalidInput(
                    f"dataset.split_column = {column!r} is not accepted: it holds {name!r:.80}; {NAME_RULE}"
                ) from None
        splits.update(names)
        if len(splits) > _MAX_SPLITS:
            examples = comma_list(sorted(splits)[:_MAX_NAMED])
            raise InvalidInput(
                f"dataset.split_column = {column!r} is not accepted: more than {_MAX_SPLITS} splits "
                f"({examples}, …)"
            )
        codes = coded.indices.to_numpy()
        return {name: np.flatnonzero(codes == number) for number, name in enumerate(names)}

    return deal


def _by_time(
    column: str, starts: list[datetime], names: list[str]
) -> Callable[[pa.RecordBatch, Mapping[str, Words]], RowsBySplit]:
    def deal(rows: pa.RecordBatch, words: Mapping[str, Words]) -> RowsBySplit:
        values = rows.column(column)
        kind = values.type
        if values.null_count or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            values_in_words = f"values of the type {kind}"
            if values.null_count:
                values_in_words = f"{values.null_count} nulls among {len(values)} rows"
            raise InvalidInput(
                f"dataset.split_times.column = {column!r} is not accepted: it has {values_in_words}; "
                "give dates or timestamps"
            )
        if pa.types.is_date32(kind):
            values = values.cast(pa.timestamp("s"))
        elif pa.types.is_date64(kind):
            values = values.cast(pa.timestamp("ms"))
        unit = values.type.unit
        ticks = values.cast(pa.int64()).to_numpy()
        bounds = pc.cast(
            pa.array([start.replace(tzinfo=None) for start in starts], pa.timestamp("us")), pa.int64()
        ).to_numpy()
        # A bound between two ticks of a coarser unit is rounded up to the later one.
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        edges = np.array([-(-int(bound) * per_second // 10**6) for bound in bounds], np.int64)
        place = np.searchsorted(edges, ticks, side="right")
        return {name: np.flatnonzero(place == number) for number, name in enumerate(names)}

    return deal
