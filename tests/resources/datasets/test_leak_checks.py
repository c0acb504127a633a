"""Rows that repeat and planted leaks between splits are found, with example rows."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from resources.datasets import lone_predictor, repeated_hashes
from resources.datasets.data_checks import DataCheck
from tests.resources.datasets.tables import DAYS, visits

ChecksOf = Callable[..., dict[str, DataCheck]]


def test_a_row_that_is_in_two_splits_is_found_though_the_split_is_one_of_its_columns(
    checks_of: ChecksOf,
) -> None:
    table = pa.concat_tables([visits(), visits().slice(5, 1).set_column(4, "part", pa.array(["test"]))])
    outcome = checks_of(table)["leaked_rows"]
    assert (outcome.passed, outcome.blocking, outcome.reason) == (
        False,
        True,
        "1 rows are in two splits or more",
    )
    assert [(row["split"], row["id"]) for row in outcome.rows] == [("test", "5"), ("train", "5")]


def test_a_row_that_is_twice_in_a_split_is_found(checks_of: ChecksOf) -> None:
    table = pa.concat_tables([visits(), visits().slice(7, 1), visits().slice(7, 1)])
    outcomes = checks_of(table)
    assert (outcomes["duplicates"].passed, outcomes["duplicates"].blocking) == (False, False)
    assert outcomes["duplicates"].reason == "2 rows are copies of others in their split"
    assert [row["id"] for row in outcomes["duplicates"].rows] == ["7"] * 3
    assert outcomes["leaked_rows"].passed


@pytest.mark.parametrize("former_group", ["id", None])
@pytest.mark.parametrize(
    "way",
    [
        {},
        {
            "split_column": None,
            "split_times": {"column": "day", "validation": "2026-06-30", "test": "2026-08-29"},
        },
    ],
)
def test_a_group_is_checked_though_the_same_rows_had_another_group_before(
    checks_of: ChecksOf, former_group: str | None, way: dict[str, Any]
) -> None:
    user = [f"u{number % 50}" for number in range(300)]
    assert checks_of(visits(user=user), group=former_group, **way)["leaked_groups"].passed
    leaks = checks_of(visits(user=user), group="user", **way)["leaked_groups"]
    assert (leaks.passed, leaks.reason) == (False, "50 values of user are in two splits or more")


def test_a_group_that_is_in_two_splits_is_found(checks_of: ChecksOf) -> None:
    user = [f"u{number // 10}" for number in range(300)]
    user[250] = "u3"
    outcome = checks_of(visits(user=user), group="user")["leaked_groups"]
    assert (outcome.passed, outcome.blocking, outcome.reason) == (
        False,
        True,
        "1 values of user are in two splits or more",
    )
    assert {(row["split"], row["user"]) for row in outcome.rows} == {("test", "u3"), ("train", "u3")}


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("s", tz="UTC"), pa.date32()])
def test_a_row_of_train_that_is_later_than_the_test_split_begins_is_found(
    checks_of: ChecksOf, kind: pa.DataType
) -> None:
    days = list(DAYS)
    days[3] = datetime(2026, 12, 1)
    outcome = checks_of(visits(day=pa.array(days).cast(kind)), checks={"time_column": "day"})["time_order"]
    assert not outcome.passed
    assert "rows of 2026-12-01" in outcome.reason
    assert "the test split begins at 2026-08-29" in outcome.reason
    assert [row["id"] for row in outcome.rows] == ["3"]


@pytest.mark.parametrize(
    ("made", "target"),
    [
        (lambda table: [f"code-{value}" for value in table["label"].to_pylist()], "label"),
        (lambda table: [1.0 if value == "high" else 0.0 for value in table["label"].to_pylist()], "label"),
        (lambda table: [None if value == "high" else 3 for value in table["label"].to_pylist()], "label"),
        (lambda table: [value * 2.54 for value in table["height"].to_pylist()], "height"),
    ],
)
def test_a_feature_that_was_made_of_the_target_is_found(
    checks_of: ChecksOf, made: Callable[[pa.Table], list[Any]], target: str
) -> None:
    table = visits().append_column("height", pa.array(np.random.RandomState(0).normal(170, 10, 300)))
    outcome = checks_of(table.append_column("made", pa.array(made(table))), target=target)["lone_predictor"]
    assert (outcome.passed, outcome.blocking) == (False, False)
    assert "made (" in outcome.reason
    assert "age" not in outcome.reason


def test_a_feature_that_was_made_of_classes_with_few_rows_is_found(checks_of: ChecksOf) -> None:
    labels = [f"class {number % 50}" for number in range(300)]  # Some are only in one half of the sample.
    outcome = checks_of(
        visits(label=labels, made=[number % 50 for number in range(300)]), checks={"small_classes": "off"}
    )["lone_predictor"]
    assert outcome.reason.startswith(
        "predict the target by themselves, on rows that they were not fitted to: made (balanced accuracy 1.0"
    )


def test_columns_that_were_not_tried_as_predictors_are_named(
    checks_of: ChecksOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_predictor, "MAX_COLUMNS", 2)
    assert (
        checks_of(visits())["lone_predictor"].reason
        == "no single column of the first 2 (the others were not tried) predicts the target"
    )


@pytest.mark.parametrize("folds", [None, 3])
def test_a_column_that_predicts_the_target_is_reported_with_rows_of_all_classes(
    checks_of: ChecksOf, folds: int | None
) -> None:
    table = visits(label=["rare" if number % 30 == 0 else "usual" for number in range(300)])
    table = table.append_column("made", pa.array([f"code-{value}" for value in table["label"].to_pylist()]))
    rows = checks_of(table, split_column=None, folds=folds)["lone_predictor"].rows
    assert [list(row) for row in rows] == [["split", "label", "made"]] * 5
    assert all(row["made"] == f"code-{row['label']}" for row in rows)
    assert {row["label"] for row in rows} == {"rare", "usual"}
    split = "train"
    if folds:
        split = "fold-"
    assert all(row["split"].startswith(split) for row in rows)


def test_a_column_that_predicts_a_number_is_reported_with_rows_from_low_to_high(
    checks_of: ChecksOf,
) -> None:
    heights = np.random.RandomState(0).normal(170, 10, 300)
    heights[17] = np.nan  # NaN counts as null, and missing values are no examples.
    columns = {
        "height": pa.array(heights, from_pandas=True),
        "inches": pa.array(heights / 2.54, from_pandas=True),
    }
    rows = checks_of(visits(**columns), target="height")["lone_predictor"].rows
    examples = [float(row["height"]) for row in rows]
    trained_on = np.delete(heights[:180], 17)
    assert (len(examples), examples) == (5, sorted(examples))
    assert (examples[0], examples[-1]) == (trained_on.min(), trained_on.max())
    assert [float(row["inches"]) for row in rows] == [value / 2.54 for value in examples]
    assert {row["split"] for row in rows} == {"train"}


def test_of_a_target_with_nan_the_other_rows_still_tell_what_predicts_it(checks_of: ChecksOf) -> None:
    heights = 160.0 + np.arange(300) * 7919 % 20
    heights[[17, 40]] = np.nan, np.inf
    outcome = checks_of(visits(height=heights, inches=heights / 2.54), target="height")["lone_predictor"]
    assert "inches (" in outcome.reason


def test_hashes_are_compared_in_parts_that_memory_holds(
    checks_of: ChecksOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.concat_tables(
        [visits(), visits().slice(0, 20), visits().slice(0, 9).set_column(4, "part", pa.array(["test"] * 9))]
    )
    whole = checks_of(table)
    monkeypatch.setattr(repeated_hashes, "_AT_ONCE", 50)
    again = checks_of(table)
    for name in ("duplicates", "leaked_rows"):
        assert again[name].reason == whole[name].reason
    assert whole["duplicates"].reason.startswith("20 rows")
    assert whole["leaked_rows"].reason.startswith("9 rows")


def test_the_hashes_of_groups_are_those_of_the_spec_though_snapshots_share_shards(
    checks_of: ChecksOf,
) -> None:
    day = [str(number // 60) for number in range(300)]
    assert checks_of(visits(site=day), group="user")["leaked_groups"].passed
    assert checks_of(visits(site=day), group="site")["leaked_groups"].passed
    assert checks_of(visits(site=day))["leaked_groups"].reason == "the spec has no group"
    assert not checks_of(visits(site=["one"] * 300), group="site")["leaked_groups"].passed
    assert checks_of(visits(site=day), group="user")["leaked_groups"].passed
