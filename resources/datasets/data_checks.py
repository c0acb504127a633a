"""Checks of a snapshot before anything is trained on it: of its columns, and of leaks between splits.

A check gives its reason and some example rows. It reads the manifest's statistics and the rows' hashes; rows
themselves are read only for examples and for trials.
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
from halving.text import comma_list
from resources.datasets.diff import compare
from resources.datasets.example_rows import (
    MAX_EXAMPLES,
    Row,
    any_of,
    example_row,
    look_up,
    rows_of_classes,
    rows_with_hashes,
    sampled_rows,
)
from resources.datasets.lone_predictor import lone_predictors, places_by_target, reason_without_any
from resources.datasets.repeated_hashes import find_repeats
from resources.datasets.shard_writing import GROUP, IDENTITY, ROW
from resources.datasets.statistics import Statistics, all_columns, comparable, missing
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
# The beginnings of Arrow's names of these types.
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
        blocking: whether a failure keeps everything from training on the snapshot.
        rows: examples of the rows that it is about: their ``split`` and values.
    """

    name: str
    passed: bool
    reason: str
    blocking: bool
    rows: list[Row] = field(default_factory=list)


def check_data(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> list[DataCheck]:
    """Make all checks of a spec that are not off.

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
    """Make one of :data:`CHECKS`, whatever severity the spec gives it."""
    passed, reason, rows = _CHECK_FUNCTIONS[name](dataset, source, before)
    return DataCheck(name, passed, reason, blocking, rows)


_Outcome = tuple[bool, str, list[Row]]


def _schema_as_before(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    if before is None:
        return True, "it is the dataset's first snapshot", []
    schema = compare(before, dataset.manifest)["schema"]
    changes = [f"{change}: {comma_list(columns)}" for change, columns in schema.items() if columns]
    if not changes:
        return True, "as before", []
    return False, f"since {before['digest']} columns were {'; '.join(changes)}", []


def _nulls(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    allowed = {source.target: 0.0, **source.checks.nulls}
    columns = all_columns(dataset.manifest)
    total = dataset.manifest["rows"]
    if unknown := sorted(set(allowed) - set(columns)):
        return (
            False,
            (
                f"checks.nulls names columns that are not there: {comma_list(unknown)}; "
                f"there are {comma_list(columns)}"
            ),
            [],
        )
    wrong = {
        name: columns[name]["nulls"] / total
        for name, share in allowed.items()
        if columns[name]["nulls"] > share * total
    }
    if not wrong:
        return True, f"{comma_list(sorted(allowed))} have no more null or NaN than they may", []
    reason = comma_list(
        f"{name} has {share:.2%} null or NaN, and may have {allowed[name]:.2%}"
        for name, share in sorted(wrong.items())
    )
    examples = look_up(
        dataset,
        lambda rows: any_of(missing(rows.column(name)) for name in wrong),
        lambda statistics: any(statistics[name]["nulls"] for name in wrong),
    )
    return False, reason, examples


def _ranges(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    ranges = source.checks.ranges
    columns = all_columns(dataset.manifest)
    scalar_columns = {name for name, kind in dataset.manifest["schema"].items() if "list" not in kind}
    if unknown := sorted(
        name
        for name in ranges
        if name not in scalar_columns or not isinstance(columns[name].get("min", 0), int | float)
    ):
        return False, f"checks.ranges names columns that are not numbers: {comma_list(unknown)}", []
    wrong = {
        name: f"{name} goes from {_end(columns[name]['min'])} to {_end(columns[name]['max'])}, "
        f"and may from {_end(bounds.min)} to {_end(bounds.max)}"
        for name, bounds in ranges.items()
        if _leaves(bounds, columns[name])
    }
    if not wrong:
        return True, _within(ranges, columns), []
    examples = look_up(
        dataset,
        lambda rows: any_of(_outside(rows.column(name), ranges[name]) for name in wrong),
        lambda statistics: any(_leaves(ranges[name], statistics[name]) for name in wrong),
    )
    return False, comma_list(wrong.values()), examples


def _within(ranges: Mapping[str, Bounds], columns: Statistics) -> str:
    """Why the check of ranges passes; missing values, which cannot leave a range, are mentioned."""
    if not ranges:
        return "the spec has no ranges"
    within = f"{comma_list(sorted(ranges))} stay in their ranges"
    left_out = [
        f"{name} ({columns[name]['nulls']:,} rows)" for name in sorted(ranges) if columns[name]["nulls"]
    ]
    if not left_out:
        return within
    return f"{within}; null and NaN are left to checks.nulls: {comma_list(left_out)}"


def _outside(values: pa.Array, bounds: Bounds) -> pa.Array:
    """Where a value is outside of its range."""
    ordered = comparable(values)
    low: float | None
    high: float | None
    if pa.types.is_integer(ordered.type):
        # NumPy compares whole numbers exactly, whatever their size. So the bounds become whole numbers, too:
        # the nearest ones within.
        numbers = pc.fill_null(ordered, 0).to_numpy()
        low = None if bounds.min is None else math.ceil(bounds.min)
        high = None if bounds.max is None else math.floor(bounds.max)
    else:
        numbers = ordered.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        low = bounds.min
        high = bounds.max
    outside = np.zeros(len(numbers), np.bool_)
    if low is not None:
        outside |= numbers < low
    if high is not None:
        outside |= numbers > high
    return pc.and_(pc.is_valid(values), pa.array(outside))


def _leaves(bounds: Bounds, column: Mapping[str, Any]) -> bool:
    """Whether a column with these statistics has a value outside of its range."""
    if "min" not in column:  # All of it is null.
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
    remedy = ""
    if by_hash:
        remedy = "; give group columns of these alone, and their hash deals such rows together"
    reason = f"{repeats.across:,} rows are in two splits or more{_by_identity(source)}{remedy}"
    return False, reason, rows_with_hashes(dataset, kind, repeats.some_across)


def _kind_of_rows(source: DatasetSource) -> str:
    """The kind of hashes in which equal rows agree."""
    return IDENTITY if source.checks.identity else ROW


def _by_identity(source: DatasetSource) -> str:
    """For a reason: the columns by which rows are compared, unless these are all."""
    identity = source.checks.identity
    return f", by {comma_list(identity)}" if identity else ""


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
        columns = comma_list(dataset.manifest["schema"])
        return False, f"checks.time_column = {column!r} is not there; the columns are {columns}", []
    try:
        first = _parse_time(statistics["test"][column]["min"])
        latest = max(
            _parse_time(columns[column]["max"])
            for split, columns in statistics.items()
            if split != "test" and "max" in columns[column]
        )
    except (KeyError, TypeError, ValueError):
        return False, f"checks.time_column = {column!r} has no dates or timestamps in the test split", []
    if latest < first:
        return True, f"the test split begins at {first.isoformat()}, after all others have ended", []

    def later(rows: pa.RecordBatch) -> NDArray[np.bool_]:
        values = rows.column(column)
        zone = getattr(values.type, "tz", None)
        if zone:
            bound = pa.scalar(first, pa.timestamp("us", tz="UTC"))
        else:
            bound = pa.scalar(first.replace(tzinfo=None), pa.timestamp("us"))
        return any_of([pc.greater_equal(values, bound.cast(values.type))])

    def may_have(statistics: Statistics) -> bool:
        return "max" in statistics[column] and _parse_time(statistics[column]["max"]) >= first

    rows = look_up(dataset, later, may_have, [name for name in dataset.splits if name != "test"])
    reason = f"rows of {latest.isoformat()} are trained on, and the test split begins at {first.isoformat()}"
    return False, reason, rows


def _lone_predictor(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    outcome = lone_predictors_of(dataset, source)
    if outcome is None:
        return True, "the target is neither a class nor a number", []
    scores, rows = outcome
    if not scores:
        return True, reason_without_predictors(dataset, source), []
    reason = "predict the target by themselves, on rows that they were not fitted to"
    return False, f"{reason}: {comma_list(scores)}; were they made of it?", rows


def lone_predictors_of(
    dataset: Dataset, source: DatasetSource, accepted: Sequence[str] = ()
) -> tuple[list[str], list[Row]] | None:
    """Find the columns that predict the target by themselves.

    Args:
        accepted: columns that may predict the target, and are left out.

    Returns:
        Each column with its score, in words, and some rows with its values beside the target's; None where
        the target is neither a class nor a number.
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
    places = places_by_target(rows, source.target, MAX_EXAMPLES)
    values = rows.select([source.target, *scores]).take(pa.array(places)).to_pylist()
    examples = [example_row(splits[place], row) for place, row in zip(places, values, strict=True)]
    return [f"{name} ({how} {score:.3f})" for name, score in scores.items()], examples


def reason_without_predictors(dataset: Dataset, source: DatasetSource) -> str:
    """Why a check passes that found no column that predicts the target by itself."""
    rows = sum(
        count for split, count in dataset.splits.items() if split == "train" or split.startswith("fold-")
    )
    return reason_without_any(len(scalar_features(dataset, source)), rows)


def scalar_features(dataset: Dataset, source: DatasetSource) -> list[str]:
    """The columns that are tried as predictors of the target."""
    columns = dataset.manifest["schema"].items()
    return [
        name
        for name, kind in columns
        if not kind.startswith(_NOT_SCALAR) and name not in (source.target, source.split_column)
    ]


def _small_classes(dataset: Dataset, source: DatasetSource, before: Mapping[str, Any] | None) -> _Outcome:
    statistics: dict[str, Statistics] = dataset.manifest["statistics"]
    counts = {split: columns[source.target].get("classes") for split, columns in statistics.items()}
    classes = all_columns(dataset.manifest)[source.target].get("classes")
    if not classes:
        return True, "the target has no classes", []
    min_rows = source.checks.min_class_rows
    splits = [split for split in counts if split in REQUIRED_SPLITS or split.startswith("fold-")]
    counts_of_places = {
        (name, split): (counts[split] or {}).get(name, 0) for split in sorted(splits) for name in classes
    }
    wrong = {place: count for place, count in counts_of_places.items() if count < min_rows}
    if not wrong:
        return True, f"each of {len(classes)} classes has {min_rows} rows or more in each split", []
    small: dict[str, set[str]] = {}
    for (name, split), count in wrong.items():
        if count:
            small.setdefault(split, set()).add(name)
    lines = [f"{name} in {split}: {count}" for (name, split), count in wrong.items()]
    more = " and more" if len(lines) > 10 else ""
    reason = f"fewer than {min_rows} rows of a class: {comma_list(lines[:10])}{more}"
    return False, reason, rows_of_classes(dataset, source.target, small)


_CHECK_FUNCTIONS: dict[str, Callable[[Dataset, DatasetSource, Mapping[str, Any] | None], _Outcome]] = {
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


def _parse_time(value: str) -> datetime:
    time = datetime.fromisoformat(value)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _end(value: float | None) -> str:
    if value is None:
        return "anything"
    return str(value) if isinstance(value, int) else f"{value:g}"
