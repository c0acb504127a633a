"""Checks of a snapshot for rows that repeat, and for what one split tells about another."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halving import Dataset
from halving.text import comma_list, parse_time
from resources.datasets.check_subject import Outcome, Subject
from resources.datasets.example_rows import (
    MAX_EXAMPLES,
    Row,
    any_of,
    example_row,
    find_examples,
    find_rows_with_hashes,
    sample_rows,
)
from resources.datasets.lone_predictor import choose_places, reason_without_any, score_lone_predictors
from resources.datasets.repeated_hashes import find_repeats
from resources.datasets.shard_writing import GROUP
from resources.datasets.statistics import Statistics, all_columns
from resources.sweep_spec.dataset import DatasetSource

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


def check_duplicates(subject: Subject) -> Outcome:
    """Check that no row is there twice in a split."""
    repeats = find_repeats(subject.dataset, subject.kind_of_rows)
    if not repeats.copies:
        rows = f"{subject.dataset.manifest['rows']:,}"
        return Outcome(True, f"all {rows} rows differ within their split{subject.by_identity}")
    return Outcome(
        False,
        f"{repeats.copies:,} rows are copies of others in their split{subject.by_identity}",
        find_rows_with_hashes(subject.dataset, subject.kind_of_rows, repeats.some_copied),
    )


def reason_if_rows_stay_together(subject: Subject) -> str | None:
    """Why no row can be in two splits: its hash deals it."""
    identity = subject.source.checks.identity
    key = set(subject.dataset.manifest["key"])
    if subject.is_dealt_by_hash and (identity is None or key <= set(identity)):
        return "equal rows are in one split, because their hash deals them"
    return None


def check_leaked_rows(subject: Subject) -> Outcome:
    """Check that no row is in two splits."""
    repeats = find_repeats(subject.dataset, subject.kind_of_rows)
    if not repeats.across:
        return Outcome(True, f"no row is in two splits{subject.by_identity}")
    reason = f"{repeats.across:,} rows are in two splits or more{subject.by_identity}"
    if subject.is_dealt_by_hash:
        reason += "; give group columns of these alone, and their hash deals such rows together"
    rows = find_rows_with_hashes(subject.dataset, subject.kind_of_rows, repeats.some_across)
    return Outcome(False, reason, rows)


def reason_if_groups_stay_together(subject: Subject) -> str | None:
    """Why no group can be in two splits: there is none, or its hash deals it."""
    if not subject.source.group:
        return "the spec has no group"
    if subject.is_dealt_by_hash:
        return "a group is in one split, because its hash deals it"
    return None


def check_leaked_groups(subject: Subject) -> Outcome:
    """Check that no group is in two splits."""
    group = " and ".join(subject.source.group or [])
    repeats = find_repeats(subject.dataset, GROUP)
    if not repeats.across:
        return Outcome(True, f"no {group} is in two splits")
    return Outcome(
        False,
        f"{repeats.across:,} values of {group} are in two splits or more",
        find_rows_with_hashes(subject.dataset, GROUP, repeats.some_across),
    )


def reason_without_time_column(subject: Subject) -> str | None:
    """Why no times are compared: the spec names no column of times."""
    if subject.source.checks.time_column is None:
        return "the spec has no checks.time_column"
    return None


def check_time_order(subject: Subject) -> Outcome:
    """Check that no row outside of the test split is as late as the first of it."""
    column = subject.source.checks.time_column
    assert column is not None
    statistics: dict[str, Statistics] = subject.dataset.manifest["statistics"]
    if column not in subject.schema:
        columns = comma_list(subject.schema)
        return Outcome(False, f"checks.time_column = {column!r} is not there; the columns are {columns}")
    try:
        first = parse_time(statistics["test"][column]["min"])
        latest = max(
            parse_time(columns[column]["max"])
            for split, columns in statistics.items()
            if split != "test" and "max" in columns[column]
        )
    except (KeyError, TypeError, ValueError):
        return Outcome(False, f"checks.time_column = {column!r} has no dates or timestamps in the test split")
    if latest < first:
        return Outcome(True, f"the test split begins at {first.isoformat()}, after all others have ended")

    def is_late(rows: pa.RecordBatch) -> NDArray[np.bool_]:
        values = rows.column(column)
        bound = pa.scalar(first.replace(tzinfo=None), pa.timestamp("us"))
        if getattr(values.type, "tz", None):
            bound = pa.scalar(first, pa.timestamp("us", tz="UTC"))
        return any_of([pc.greater_equal(values, bound.cast(values.type))])

    def may_have_late(statistics: Statistics) -> bool:
        return "max" in statistics[column] and parse_time(statistics[column]["max"]) >= first

    others = [name for name in subject.dataset.splits if name != "test"]
    return Outcome(
        False,
        f"rows of {latest.isoformat()} are trained on, and the test split begins at {first.isoformat()}",
        find_examples(subject.dataset, is_late, may_have_late, others),
    )


def reason_without_scalar_target(subject: Subject) -> str | None:
    """Why no predictors are sought: the target is neither a class nor a number."""
    if subject.schema[subject.source.target].startswith(_NOT_SCALAR):
        return "the target is neither a class nor a number"
    return None


def check_lone_predictor(subject: Subject) -> Outcome:
    """Check that no column predicts the target by itself."""
    scores, rows = find_lone_predictors(subject.dataset, subject.source)
    if not scores:
        return Outcome(True, reason_without_predictors(subject.dataset, subject.source))
    reason = "predict the target by themselves, on rows that they were not fitted to"
    return Outcome(False, f"{reason}: {comma_list(scores)}; were they made of it?", rows)


def find_lone_predictors(
    dataset: Dataset, source: DatasetSource, accepted: Sequence[str] = ()
) -> tuple[list[str], list[Row]]:
    """Find the columns that predict the target by themselves.

    Args:
        accepted: columns that may predict the target, and are left out.

    Returns:
        Each column with its score, in words, and some rows with its values beside the target's. None is found
        where the target is neither a class nor a number.
    """
    target = source.target
    if dataset.manifest["schema"][target].startswith(_NOT_SCALAR):
        return [], []
    features = _scalar_features(dataset, source)
    sample = sample_rows(dataset, [*features, target])
    rows = pa.Table.from_batches([part for _, part in sample])
    has_classes = all_columns(dataset.manifest)[target].get("classes") is not None
    measure = "R²"
    if has_classes:
        measure = "balanced accuracy"
    scores = score_lone_predictors(rows, target, has_classes, features)
    scores = {name: score for name, score in scores.items() if name not in accepted}
    if not scores:
        return [], []
    splits = [split for split, part in sample for _ in range(part.num_rows)]
    places = choose_places(rows, target, MAX_EXAMPLES)
    values = rows.select([target, *scores]).take(pa.array(places)).to_pylist()
    examples = [example_row(splits[place], row) for place, row in zip(places, values, strict=True)]
    return [f"{name} ({measure} {score:.3f})" for name, score in scores.items()], examples


def reason_without_predictors(dataset: Dataset, source: DatasetSource) -> str:
    """Why a check passes that found no column that predicts the target by itself."""
    rows = sum(
        count for split, count in dataset.splits.items() if split == "train" or split.startswith("fold-")
    )
    return reason_without_any(len(_scalar_features(dataset, source)), rows)


def _scalar_features(dataset: Dataset, source: DatasetSource) -> list[str]:
    """The columns that are tried as predictors of the target."""
    columns = dataset.manifest["schema"].items()
    return [
        name
        for name, kind in columns
        if not kind.startswith(_NOT_SCALAR) and name not in (source.target, source.split_column)
    ]
