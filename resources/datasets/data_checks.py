"""What is looked at in a snapshot before anything is trained on it: its columns, and whether a split says
something about another.

A check gives its reason and some rows to look at. It reads the manifest's statistics and the rows' hashes,
and of the rows only what it has to show or to try.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halving import Dataset
from resources.datasets.diff import compare
from resources.datasets.lone_predictor import lone_predictors, places_by_target, reason_without_any
from resources.datasets.repeated_hashes import find_repeats
from resources.datasets.shard_writing import GROUP, IDENTITY, ROW
from resources.datasets.shown_rows import (
    SHOWN,
    Row,
    any_of,
    look_up,
    rows_of_classes,
    rows_with_hashes,
    sampled_rows,
    shown_row,
)
from resources.datasets.statistics import Statistics, all_columns, comparable, missing
from resources.sweep_spec.base import listed
from resources.sweep_spec.dataset import REQUIRED_SPLITS, Bounds, DatasetSource

CHECKS = {
    "schema_as_before": "Columns and types are those of the dataset's snapshot before.",
    "nulls": "The target has neither null nor NaN, and no column more than the spec allows it.",
    "ranges": "Columns stay within the ranges of the spec.",
    "duplicates": "No row is there twice in a split.",
    "leaked_rows": "No row is in two splits.",
    "leaked_groups": "No group is in two splits.",
    "time_order": "No row of train is later than the first of test.",
    "lone_predictor": "No feature predicts the target by itself.",
    "small_classes": "Each class has enough rows in each split.",
}
# As Arrow's names of types begin.
_NOT_SCALAR = (
    "list",
    "large_list",
    "fixed_size_list",
    "struct",
    "binary",
    "large_binary",
    "fixed_size_binary",
)


@dataclass(frozen=True)
class DataCheck:
    """The outcome of one check; ``name`` is also the name of the asset check.

    Attributes:
        blocking: whether nothing may be trained on the snapshot if it failed.
        rows: some that it is about: their ``split`` and values.
    """

    name: str
    passed: bool
    reason: str
    blocking: bool
    rows: list[Row] = field(default_factory=list)


def check_data(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> list[DataCheck]:
    """All checks of a spec that are not off.

    Args:
        before: the manifest of the dataset's snapshot before this one.
    """
    severities = {name: source.checks.severity(name) for name in CHECKS}
    return [
        check_one(name, dataset, source, before, blocking=severity == "block")
        for name, severity in severities.items()
        if severity != "off"
    ]


def check_one(
    name: str,
    dataset: Dataset,
    source: DatasetSource,
    before: Mapping[str, Any] | None = None,
    *,
    blocking: bool,
) -> DataCheck:
    """One of :data:`CHECKS`, whatever the spec says of it."""
    passed, reason, rows = _MAKE[name](dataset, source, before)
    return DataCheck(name, passed, reason, blocking, rows)


_Outcome = tuple[bool, str, list[Row]]


def _schema_as_before(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    if before is None:
        return True, "it is the dataset's first snapshot", []
    schema = compare(before, dataset.manifest)["schema"]
    changes = [f"{what}: {listed(columns)}" for what, columns in schema.items() if columns]
    return (
        not changes,
        f"since {before['digest']} columns were {'; '.join(changes)}" if changes else "as before",
        [],
    )


def _nulls(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    allowed = {source.target: 0.0, **source.checks.nulls}
    whole = all_columns(dataset.manifest)
    total = dataset.manifest["rows"]
    if unknown := sorted(set(allowed) - set(whole)):
        return (
            False,
            f"checks.nulls names columns that are not there: {listed(unknown)}; there are {listed(whole)}",
            [],
        )
    wrong = {
        name: whole[name]["nulls"] / total
        for name, share in allowed.items()
        if whole[name]["nulls"] > share * total
    }
    if not wrong:
        return True, f"{listed(sorted(allowed))} have no more null or NaN than they may", []
    reason = listed(
        f"{name} has {share:.2%} null or NaN, and may have {allowed[name]:.2%}"
        for name, share in sorted(wrong.items())
    )
    shown = look_up(
        dataset,
        lambda rows: any_of(missing(rows.column(name)) for name in wrong),
        lambda statistics: any(statistics[name]["nulls"] for name in wrong),
    )
    return False, reason, shown


def _ranges(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    ranges = source.checks.ranges
    whole = all_columns(dataset.manifest)
    plain = {name for name, kind in dataset.manifest["schema"].items() if "list" not in kind}
    if unknown := sorted(
        name for name in ranges if name not in plain or not isinstance(whole[name].get("min", 0), int | float)
    ):
        return False, f"checks.ranges names columns that are not numbers: {listed(unknown)}", []
    wrong = {
        name: f"{name} goes from {_end(whole[name]['min'])} to {_end(whole[name]['max'])}, "
        f"and may from {_end(bounds.min)} to {_end(bounds.max)}"
        for name, bounds in ranges.items()
        if _leaves(bounds, whole[name])
    }
    if not wrong:
        return True, _within(ranges, whole), []
    shown = look_up(
        dataset,
        lambda rows: any_of(_outside(rows.column(name), ranges[name]) for name in wrong),
        lambda statistics: any(_leaves(ranges[name], statistics[name]) for name in wrong),
    )
    return False, listed(wrong.values()), shown


def _within(ranges: Mapping[str, Bounds], whole: Statistics) -> str:
    """Why the check of ranges passes; what is missing has no value that could leave one, and is said."""
    if not ranges:
        return "the spec has no ranges"
    within = f"{listed(sorted(ranges))} stay in their ranges"
    left_out = [f"{name} ({whole[name]['nulls']:,} rows)" for name in sorted(ranges) if whole[name]["nulls"]]
    return f"{within}; null and NaN are left to checks.nulls: {listed(left_out)}" if left_out else within


def _outside(values: pa.Array, bounds: Bounds) -> pa.Array:
    """Where a value is outside of its range."""
    plain = comparable(values)
    least: float | None
    most: float | None
    if pa.types.is_integer(plain.type):
        # NumPy compares whole numbers with Python's exactly, whatever their size. Above the greatest is above
        # the greatest whole one.
        numbers = pc.fill_null(plain, 0).to_numpy()
        least = None if bounds.min is None else math.ceil(bounds.min)
        most = None if bounds.max is None else math.floor(bounds.max)
    else:
        numbers = plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        least = bounds.min
        most = bounds.max
    outside = np.zeros(len(numbers), np.bool_)
    if least is not None:
        outside |= numbers < least
    if most is not None:
        outside |= numbers > most
    return pc.and_(pc.is_valid(values), pa.array(outside))


def _leaves(bounds: Bounds, column: Mapping[str, Any]) -> bool:
    """Whether a column with these statistics has a value outside of its range."""
    if "min" not in column:  # it has nulls alone
        return False
    return (bounds.min is not None and column["min"] < bounds.min) or (
        bounds.max is not None and column["max"] > bounds.max
    )


def _duplicates(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    kind = _kind_of_rows(source)
    repeats = find_repeats(dataset, kind)
    rows = f"{dataset.manifest['rows']:,}"
    if not repeats.copies:
        return True, f"all {rows} rows differ within their split{_by_identity(source)}", []
    reason = f"{repeats.copies:,} rows are copies of others in their split{_by_identity(source)}"
    return False, reason, rows_with_hashes(dataset, kind, repeats.some_copied)


def _leaked_rows(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    by_hash = not (source.split_column or source.split_times)
    identity = source.checks.identity
    if by_hash and (identity is None or set(dataset.manifest["key"]) <= set(identity)):
        return True, "equal rows are in one split, because their hash deals them", []
    kind = _kind_of_rows(source)
    repeats = find_repeats(dataset, kind)
    if not repeats.across:
        return True, f"no row is in two splits{_by_identity(source)}", []
    remedy = "; give group columns of these alone, and their hash deals such rows together" if by_hash else ""
    reason = f"{repeats.across:,} rows are in two splits or more{_by_identity(source)}{remedy}"
    return False, reason, rows_with_hashes(dataset, kind, repeats.some_across)


def _kind_of_rows(source: DatasetSource) -> str:
    """The kind of hashes that equal rows have in common."""
    return IDENTITY if source.checks.identity else ROW


def _by_identity(source: DatasetSource) -> str:
    """For a reason: by which columns rows are told apart, where these are not all."""
    return f", by {listed(source.checks.identity)}" if source.checks.identity else ""


def _leaked_groups(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    if not source.group:
        return True, "the spec has no group", []
    if not (source.split_column or source.split_times):
        return True, "a group is in one split, because its hash deals it", []
    repeats = find_repeats(dataset, GROUP)
    if not repeats.across:
        return True, f"no {' and '.join(source.group)} is in two splits", []
    reason = f"{repeats.across:,} values of {' and '.join(source.group)} are in two splits or more"
    return False, reason, rows_with_hashes(dataset, GROUP, repeats.some_across)


def _time_order(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    column = source.checks.time_column
    if column is None:
        return True, "the spec has no checks.time_column", []
    statistics: dict[str, Statistics] = dataset.manifest["statistics"]
    if column not in dataset.manifest["schema"]:
        return (
            False,
            (
                f"checks.time_column = {column!r} is not there; the columns are "
                f"{listed(dataset.manifest['schema'])}"
            ),
            [],
        )
    try:
        first = _moment(statistics["test"][column]["min"])
        latest = max(
            _moment(of[column]["max"])
            for split, of in statistics.items()
            if split != "test" and "max" in of[column]
        )
    except (KeyError, TypeError, ValueError):
        return False, f"checks.time_column = {column!r} has no dates or timestamps in the test split", []
    if latest < first:
        return True, f"the test split begins at {first.isoformat()}, after all others have ended", []

    def later(rows: pa.RecordBatch) -> NDArray[np.bool_]:
        values = rows.column(column)
        zone = getattr(values.type, "tz", None)
        bound = pa.scalar(
            first if zone else first.replace(tzinfo=None), pa.timestamp("us", tz="UTC" if zone else None)
        )
        return any_of([pc.greater_equal(values, bound.cast(values.type))])

    def may_have(statistics: Statistics) -> bool:
        return "max" in statistics[column] and _moment(statistics[column]["max"]) >= first

    rows = look_up(dataset, later, may_have, [name for name in dataset.splits if name != "test"])
    return (
        False,
        f"rows of {latest.isoformat()} are trained on, and the test split begins at {first.isoformat()}",
        rows,
    )


def _lone_predictor(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    outcome = lone_predictors_of(dataset, source)
    if outcome is None:
        return True, "the target is neither a class nor a number", []
    scores, rows = outcome
    if not scores:
        return True, reason_without_predictors(dataset, source), []
    return (
        False,
        (
            f"predict the target by themselves, on rows that they were not fitted to: {listed(scores)}; were "
            "they made of it?"
        ),
        rows,
    )


def lone_predictors_of(
    dataset: Dataset, source: DatasetSource, accepted: Sequence[str] = ()
) -> tuple[list[str], list[Row]] | None:
    """The columns that predict the target by themselves and how well, in words, and rows with their values
    beside the target's.

    Args:
        accepted: columns that may do so, and are not among them.

    Returns:
        None where the target is nothing that can be predicted so.
    """
    has_classes = all_columns(dataset.manifest)[source.target].get("classes") is not None
    if dataset.manifest["schema"][source.target].startswith(_NOT_SCALAR):
        return None
    features = scalar_features(dataset, source)
    sample = sampled_rows(dataset, [*features, source.target])
    rows = pa.Table.from_batches([part for _, part in sample])
    scores = lone_predictors(rows, source.target, has_classes, features)
    scores = {name: score for name, score in scores.items() if name not in accepted}
    if not scores:
        return [], []
    how = "balanced accuracy" if has_classes else "R²"
    splits = [split for split, part in sample for _ in range(part.num_rows)]
    places = places_by_target(rows, source.target, SHOWN)
    values = rows.select([source.target, *scores]).take(pa.array(places)).to_pylist()
    shown = [shown_row(splits[place], row) for place, row in zip(places, values, strict=True)]
    return [f"{name} ({how} {score:.3f})" for name, score in scores.items()], shown


def reason_without_predictors(dataset: Dataset, source: DatasetSource) -> str:
    """Why a check passes that has found no column that predicts the target by itself."""
    rows = sum(
        count for split, count in dataset.splits.items() if split == "train" or split.startswith("fold-")
    )
    return reason_without_any(len(scalar_features(dataset, source)), rows)


def scalar_features(dataset: Dataset, source: DatasetSource) -> list[str]:
    """The columns that may predict the target by themselves."""
    columns = dataset.manifest["schema"].items()
    return [
        name
        for name, kind in columns
        if not kind.startswith(_NOT_SCALAR) and name not in (source.target, source.split_column)
    ]


def _small_classes(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    statistics: dict[str, Statistics] = dataset.manifest["statistics"]
    counts = {split: of[source.target].get("classes") for split, of in statistics.items()}
    classes = all_columns(dataset.manifest)[source.target].get("classes")
    if not classes:
        return True, "the target has no classes", []
    least = source.checks.min_class_rows
    splits = [split for split in counts if split in REQUIRED_SPLITS or split.startswith("fold-")]
    few = {(name, split): (counts[split] or {}).get(name, 0) for split in sorted(splits) for name in classes}
    wrong = {place: count for place, count in few.items() if count < least}
    if not wrong:
        return True, f"each of {len(classes)} classes has {least} rows or more in each split", []
    small: dict[str, set[str]] = {}
    for (name, split), count in wrong.items():
        if count:
            small.setdefault(split, set()).add(name)
    said = [f"{name} in {split}: {count}" for (name, split), count in wrong.items()]
    reason = f"fewer than {least} rows of a class: {listed(said[:10])}{' and more' if len(said) > 10 else ''}"
    return False, reason, rows_of_classes(dataset, source.target, small)


_MAKE: dict[str, Callable[[Dataset, DatasetSource, Mapping[str, Any] | None], _Outcome]] = {
    "schema_as_before": _schema_as_before,
    "nulls": _nulls,
    "ranges": _ranges,
    "duplicates": _duplicates,
    "leaked_rows": _leaked_rows,
    "leaked_groups": _leaked_groups,
    "time_order": _time_order,
    "lone_predictor": _lone_predictor,
    "small_classes": _small_classes,
}


def _moment(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _end(value: float | None) -> str:
    if value is None:
        return "anything"
    return str(value) if isinstance(value, int) else f"{value:g}"
