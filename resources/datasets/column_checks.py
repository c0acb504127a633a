"""Checks of a snapshot's columns: their types, missing values, ranges, and the classes of the target."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halving.text import comma_list
from resources.datasets.check_subject import Outcome, Subject
from resources.datasets.diff import compare
from resources.datasets.example_rows import any_of, find_examples, find_rows_of_classes
from resources.datasets.statistics import Statistics, comparable, missing
from resources.sweep_spec.dataset import REQUIRED_SPLITS, Bounds

_MAX_NAMED = 10  # small classes named in a reason


def reason_without_snapshot_before(subject: Subject) -> str | None:
    """Why the schema is not compared: there is no snapshot before."""
    if subject.before is None:
        return "it is the dataset's first snapshot"
    return None


def check_schema(subject: Subject) -> Outcome:
    """Check that columns and types are those of the dataset's snapshot before."""
    assert subject.before is not None
    schema = compare(subject.before, subject.dataset.manifest)["schema"]
    changes = [f"{change}: {comma_list(columns)}" for change, columns in schema.items() if columns]
    if not changes:
        return Outcome(True, "as before")
    return Outcome(False, f"since {subject.before['digest']} columns were {'; '.join(changes)}")


def check_nulls(subject: Subject) -> Outcome:
    """Check that no column has more null and NaN than it may; the target may have none."""
    allowed = {subject.source.target: 0.0, **subject.source.checks.nulls}
    columns = subject.columns
    if unknown := sorted(set(allowed) - set(columns)):
        return Outcome(
            False,
            f"checks.nulls names columns that are not there: {comma_list(unknown)}; "
            f"there are {comma_list(columns)}",
        )
    total = subject.dataset.manifest["rows"]
    wrong = {
        name: columns[name]["nulls"] / total
        for name, share in allowed.items()
        if columns[name]["nulls"] > share * total
    }
    if not wrong:
        return Outcome(True, f"{comma_list(sorted(allowed))} have no more null or NaN than they may")
    reason = comma_list(
        f"{name} has {share:.2%} null or NaN, and may have {allowed[name]:.2%}"
        for name, share in sorted(wrong.items())
    )
    examples = find_examples(
        subject.dataset,
        lambda rows: any_of(missing(rows.column(name)) for name in wrong),
        lambda statistics: any(statistics[name]["nulls"] for name in wrong),
    )
    return Outcome(False, reason, examples)


def reason_without_ranges(subject: Subject) -> str | None:
    """Why no ranges are checked: the spec has none."""
    if not subject.source.checks.ranges:
        return "the spec has no ranges"
    return None


def check_ranges(subject: Subject) -> Outcome:
    """Check that columns stay within the ranges of the spec."""
    ranges = subject.source.checks.ranges
    columns = subject.columns
    scalar_columns = {name for name, kind in subject.schema.items() if "list" not in kind}
    if unknown := sorted(
        name
        for name in ranges
        if name not in scalar_columns or not isinstance(columns[name].get("min", 0), int | float)
    ):
        return Outcome(False, f"checks.ranges names columns that are not numbers: {comma_list(unknown)}")
    wrong = {
        name: f"{name} goes from {_describe_bound(columns[name]['min'])} to "
        f"{_describe_bound(columns[name]['max'])}, "
        f"and may from {_describe_bound(bounds.min)} to {_describe_bound(bounds.max)}"
        for name, bounds in ranges.items()
        if _leaves(bounds, columns[name])
    }
    if not wrong:
        return Outcome(True, _reason_within(ranges, columns))
    examples = find_examples(
        subject.dataset,
        lambda rows: any_of(_is_outside(rows.column(name), ranges[name]) for name in wrong),
        lambda statistics: any(_leaves(ranges[name], statistics[name]) for name in wrong),
    )
    return Outcome(False, comma_list(wrong.values()), examples)


def reason_without_classes(subject: Subject) -> str | None:
    """Why no classes are counted: the target has none."""
    if not subject.columns[subject.source.target].get("classes"):
        return "the target has no classes"
    return None


def check_classes(subject: Subject) -> Outcome:
    """Check that each class has enough rows in each split that is trained on or judged on."""
    target = subject.source.target
    classes = subject.columns[target]["classes"]
    min_rows = subject.source.checks.min_class_rows
    statistics: dict[str, Statistics] = subject.dataset.manifest["statistics"]
    splits = [split for split in sorted(statistics) if split in REQUIRED_SPLITS or split.startswith("fold-")]
    few: dict[str, dict[str, int]] = {}
    for split in splits:
        counts = statistics[split][target].get("classes") or {}
        for name in classes:
            if counts.get(name, 0) < min_rows:
                few.setdefault(split, {})[name] = counts.get(name, 0)
    if not few:
        return Outcome(True, f"each of {len(classes)} classes has {min_rows} rows or more in each split")
    lines = [f"{name} in {split}: {count}" for split, counts in few.items() for name, count in counts.items()]
    reason = f"fewer than {min_rows} rows of a class: {comma_list(lines[:_MAX_NAMED])}"
    if len(lines) > _MAX_NAMED:
        reason += " and more"
    small = {
        split: names
        for split, counts in few.items()
        if (names := {name for name, count in counts.items() if count})
    }
    return Outcome(False, reason, find_rows_of_classes(subject.dataset, target, small))


def _reason_within(ranges: Mapping[str, Bounds], columns: Statistics) -> str:
    """Why the check of ranges passes; missing values, which cannot leave a range, are mentioned."""
    within = f"{comma_list(sorted(ranges))} stay in their ranges"
    left_out = [
        f"{name} ({columns[name]['nulls']:,} rows)" for name in sorted(ranges) if columns[name]["nulls"]
    ]
    if not left_out:
        return within
    return f"{within}; null and NaN are left to checks.nulls: {comma_list(left_out)}"


def _is_outside(values: pa.Array, bounds: Bounds) -> pa.Array:
    """Where a value is outside of its range."""
    ordered = comparable(values)
    low = bounds.min
    high = bounds.max
    if pa.types.is_integer(ordered.type):
        # NumPy compares whole numbers exactly, whatever their size. So the bounds become whole numbers, too:
        # the nearest ones within.
        numbers = pc.fill_null(ordered, 0).to_numpy()
        if low is not None:
            low = math.ceil(low)
        if high is not None:
            high = math.floor(high)
    else:
        numbers = ordered.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
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


def _describe_bound(value: float | None) -> str:
    if value is None:
        return "anything"
    if isinstance(value, int):
        return str(value)
    return f"{value:g}"
