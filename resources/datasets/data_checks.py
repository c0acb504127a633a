"""Checks of a snapshot before anything is trained on it: of its columns, and of leaks between splits.

A check gives its reason and some example rows. It reads the manifest's statistics and the rows' hashes; rows
themselves are read only for examples and for trials.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halving import Dataset
from resources.datasets import column_checks, leak_checks
from resources.datasets.check_subject import Outcome, Subject
from resources.datasets.example_rows import Row
from resources.sweep_spec.dataset import DatasetSource


@dataclass(frozen=True)
class Check:
    """One check of a snapshot.

    Attributes:
        description: what holds if it passes.
        judge: makes the check.
        reason_to_pass: says why the check passes without being made; None if it has to be made.
    """

    description: str
    judge: Callable[[Subject], Outcome]
    reason_to_pass: Callable[[Subject], str | None] = field(default=lambda subject: None)


CHECKS = {
    "schema_as_before": Check(
        "Columns and types are those of the dataset's snapshot before.",
        column_checks.check_schema,
        column_checks.reason_without_snapshot_before,
    ),
    "nulls": Check(
        "The target has neither null nor NaN, and no column more than the spec allows it.",
        column_checks.check_nulls,
    ),
    "ranges": Check(
        "Columns stay within the ranges of the spec.",
        column_checks.check_ranges,
        column_checks.reason_without_ranges,
    ),
    "duplicates": Check("No row is there twice in a split.", leak_checks.check_duplicates),
    "leaked_rows": Check(
        "No row is in two splits.", leak_checks.check_leaked_rows, leak_checks.reason_if_rows_stay_together
    ),
    "leaked_groups": Check(
        "No group is in two splits.",
        leak_checks.check_leaked_groups,
        leak_checks.reason_if_groups_stay_together,
    ),
    "time_order": Check(
        "No row of train is later than the first of test.",
        leak_checks.check_time_order,
        leak_checks.reason_without_time_column,
    ),
    "lone_predictor": Check(
        "No feature predicts the target by itself.",
        leak_checks.check_lone_predictor,
        leak_checks.reason_without_scalar_target,
    ),
    "small_classes": Check(
        "Each class has enough rows in each split.",
        column_checks.check_classes,
        column_checks.reason_without_classes,
    ),
}
"""All checks by name, in the order in which they are made."""


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
    subject = Subject(dataset, source, before)
    severities = {name: source.checks.severity(name) for name in CHECKS}
    return [
        _check(name, subject, blocking=severity == "block")
        for name, severity in severities.items()
        if severity != "off"
    ]


def check_one(name: str, dataset: Dataset, source: DatasetSource, *, blocking: bool) -> DataCheck:
    """Make one of :data:`CHECKS`, whatever severity the spec gives it."""
    return _check(name, Subject(dataset, source, None), blocking=blocking)


def _check(name: str, subject: Subject, *, blocking: bool) -> DataCheck:
    check = CHECKS[name]
    reason = check.reason_to_pass(subject)
    if reason is not None:
        return DataCheck(name, True, reason, blocking)
    outcome = check.judge(subject)
    return DataCheck(name, outcome.passed, outcome.reason, blocking, outcome.rows)
