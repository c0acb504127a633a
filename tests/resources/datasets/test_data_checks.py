"""Planted leaks and faults are found, with example rows; sound data passes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset, Store
from halving.data.shards import Shard
from resources.backend import Backend
from resources.datasets import example_rows, lone_predictor, repeated_hashes, shard_writing
from resources.datasets.data_checks import CHECKS, DataCheck, check_data
from resources.datasets.manifest import manifest_before
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource

_DAYS = [datetime(2026, 1, 1) + timedelta(days=number) for number in range(300)]
ChecksOf = Callable[..., dict[str, DataCheck]]


def visits(**changes: Any) -> pa.Table:
    """300 sound rows: three splits by time, no duplicates, and no feature that is made of the target."""
    numbers = np.arange(300)
    columns: dict[str, Any] = {
        "id": numbers,
        "user": [f"u{number // 10}" for number in numbers],
        "day": _DAYS,
        "age": (numbers * 7919) % 80,
        "part": ["train"] * 180 + ["validation"] * 60 + ["test"] * 60,
        "label": [["low", "high"][number % 2] for number in (numbers * 2654435761) % 4294967296 // 65536],
    }
    return pa.table(columns | changes)


@pytest.fixture
def checks_of(backend: Backend, provide: Callable[..., DatasetSource]) -> ChecksOf:
    """The outcomes of a table's checks, by name."""

    def check(table: pa.Table, **changes: Any) -> dict[str, DataCheck]:
        source = provide(table, **({"split_column": "part"} | changes))
        snapshot = take_snapshot(backend.store, backend.catalog, source)
        dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
        return {
            outcome.name: outcome
            for outcome in check_data(dataset, source, manifest_before(backend.store, dataset.manifest))
        }

    return check


def test_data_in_order_passes_every_check(checks_of: ChecksOf) -> None:
    changes = {
        "group": "user",
        "checks": {"time_column": "day", "ranges": {"age": {"min": 0, "max": 100}}, "nulls": {"age": 0.1}},
    }
    outcomes = checks_of(visits(), **changes)
    assert set(outcomes) == set(CHECKS)
    assert {name: outcome.reason for name, outcome in outcomes.items() if not outcome.passed} == {}
    by_hash = checks_of(visits(), split_column=None, group="user")
    assert {name: outcome.reason for name, outcome in by_hash.items() if not outcome.passed} == {}


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
    days = list(_DAYS)
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
    assert all(row["split"].startswith("fold-" if folds else "train") for row in rows)


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


def test_classes_with_few_rows_are_found_by_split(checks_of: ChecksOf) -> None:
    labels = [*visits()["label"].to_pylist()]
    labels[10:13] = ["rare"] * 3
    outcome = checks_of(visits(label=labels))["small_classes"]
    assert not outcome.passed
    assert (
        outcome.reason
        == "fewer than 5 rows of a class: rare in test: 0, rare in train: 3, rare in validation: 0"
    )
    assert [(row["split"], row["id"], row["label"]) for row in outcome.rows] == [
        ("train", str(number), "rare") for number in (10, 11, 12)
    ]
    assert checks_of(visits(label=labels), checks={"small_classes": "off"}).get("small_classes") is None


@pytest.mark.parametrize(
    "values", [("high", "low"), (7, 3), (True, False)], ids=["texts", "numbers", "yes or no"]
)
def test_rows_of_small_classes_are_those_of_the_splits_where_they_are_few(
    checks_of: ChecksOf, values: tuple[Any, Any]
) -> None:
    usual, rare = values
    labels = [rare if number < 60 or number in (200, 230, 280) else usual for number in range(300)]
    labels[299] = None
    rows = checks_of(visits(label=labels))["small_classes"].rows
    places = [("test", "280"), ("validation", "200"), ("validation", "230")]
    assert [(row["split"], row["id"], row["label"]) for row in rows] == [
        (split, number, str(rare)) for split, number in places
    ]


def test_of_many_small_classes_the_first_rows_are_shown(checks_of: ChecksOf) -> None:
    labels = [f"class {number % 50}" for number in range(180)] + ["class 0"] * 120
    outcome = checks_of(visits(label=labels))["small_classes"]
    assert "class 1 in test: 0" in outcome.reason
    assert [row["id"] for row in outcome.rows] == ["0", "1", "2", "3", "4"]


def test_of_small_classes_only_shards_that_have_them_are_read(
    checks_of: ChecksOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [*visits()["label"].to_pylist()]
    labels[170] = "rare"
    table = visits(label=labels).append_column(
        "text", pa.array([f"{number:06d}" * 5_000 for number in range(300)])
    )
    shards: list[Shard] = []

    def rows_of(store: Store, shard: Shard) -> list[pa.RecordBatch]:
        shards.append(shard)
        return shard_writing.rows_of(store, shard)

    monkeypatch.setattr(example_rows, "rows_of", rows_of)
    others = dict.fromkeys(("lone_predictor", "leaked_rows", "duplicates"), "off")
    outcome = checks_of(table, shard_mib=1, checks=others)["small_classes"]
    assert [row["id"] for row in outcome.rows] == ["170"]
    (shard,) = shards
    assert shard.rows < 60, "a part of the 180 rows of train"


def test_nulls_and_values_out_of_range_are_found_with_their_rows(checks_of: ChecksOf) -> None:
    ages: list[int | None] = [*visits()["age"].to_pylist()]
    ages[4] = -3
    ages[5] = 130
    ages[6] = None
    labels: list[str | None] = [*visits()["label"].to_pylist()]
    labels[8] = None
    outcomes = checks_of(
        visits(age=ages, label=labels),
        checks={"ranges": {"age": {"min": 0, "max": 100}}, "nulls": {"age": 0.001}},
    )
    assert outcomes["ranges"].reason == "age goes from -3 to 130, and may from 0 to 100"
    assert [row["id"] for row in outcomes["ranges"].rows] == ["4", "5"]
    assert (
        outcomes["nulls"].reason
        == "age has 0.33% null or NaN, and may have 0.10%, label has 0.33% null or NaN, and may have 0.00%"
    )
    assert [row["id"] for row in outcomes["nulls"].rows] == ["6", "8"]
    assert outcomes["ranges"].blocking
    assert outcomes["nulls"].blocking


NAN = float("nan")
TRIED_ALONE = dict.fromkeys(("lone_predictor", "leaked_rows", "duplicates", "small_classes"), "off")


@pytest.mark.parametrize(
    ("missing", "kind", "allowed", "share"),
    [
        ({4: NAN}, pa.float64(), 0.0, "0.33%"),
        ({4: NAN}, pa.float32(), 0.0, "0.33%"),
        ({4: NAN}, pa.float16(), 0.0, "0.33%"),
        ({4: NAN, 6: None}, pa.float64(), 0.0, "0.67%"),
        ({4: NAN, 6: None}, pa.float16(), 0.0, "0.67%"),
        ({200: NAN}, pa.float64(), 0.0, "0.33%"),
        ({299: NAN}, pa.float32(), 0.0, "0.33%"),
        ({4: NAN, 200: NAN, 299: NAN}, pa.float64(), 0.005, "1.00%"),
        (dict.fromkeys(range(30), NAN), pa.float64(), 0.1, None),
        (dict.fromkeys(range(31), NAN), pa.float64(), 0.1, "10.33%"),
        (dict.fromkeys(range(300), NAN), pa.float64(), 0.5, "100.00%"),
        ({}, pa.float64(), 0.0, None),
        ({4: float("inf"), 6: -float("inf")}, pa.float32(), 0.0, None),
        ({6: None}, pa.int64(), 0.0, "0.33%"),
        ({4: "nan"}, pa.string(), 0.0, None),
    ],
)
@pytest.mark.parametrize("place", ["target", "column"])
def test_nan_counts_as_missing_beside_null(
    checks_of: ChecksOf,
    missing: dict[int, Any],
    kind: pa.DataType,
    allowed: float,
    share: str | None,
    place: str,
) -> None:
    usual = {pa.int64(): 7, pa.string(): "7"}.get(kind, 7.5)
    numbers = [missing.get(number, usual) for number in range(300)]
    values = pa.array(
        [np.float16(value) if kind == pa.float16() and value is not None else value for value in numbers],
        kind,
    )
    if place == "target":
        outcome = checks_of(visits(label=values), checks={"nulls": {"label": allowed}, **TRIED_ALONE})[
            "nulls"
        ]
    else:
        outcome = checks_of(visits(x=values), checks={"nulls": {"x": allowed}, **TRIED_ALONE})["nulls"]
    name = "label" if place == "target" else "x"
    assert (outcome.passed, outcome.blocking) == (share is None, True)
    if share is None:
        return
    assert outcome.reason == f"{name} has {share} null or NaN, and may have {allowed:.2%}"
    where = [str(number) for number, value in missing.items() if value is None or value != value]
    assert {row["id"] for row in outcome.rows} <= set(where)
    assert len(outcome.rows) == min(5, len(where))


def test_a_nan_within_a_list_is_no_missing_value(checks_of: ChecksOf) -> None:
    pair = pa.array([[NAN, 1.0]] * 300, pa.list_(pa.float64(), 2))
    assert checks_of(visits(pair=pair), checks={"nulls": {"pair": 0}})["nulls"].passed


@pytest.mark.parametrize(
    ("values", "kind", "bounds", "reason", "rows"),
    [
        (
            {4: NAN},
            pa.float64(),
            {"min": 0, "max": 10},
            "x stay in their ranges; null and NaN are left to checks.nulls: x (1 rows)",
            [],
        ),
        (
            {4: NAN, 5: None},
            pa.float32(),
            {"max": 10},
            "x stay in their ranges; null and NaN are left to checks.nulls: x (2 rows)",
            [],
        ),
        (
            {5: None},
            pa.int64(),
            {"max": 10},
            "x stay in their ranges; null and NaN are left to checks.nulls: x (1 rows)",
            [],
        ),
        ({}, pa.float16(), {"max": 10}, "x stay in their ranges", []),
        (
            dict.fromkeys(range(300), NAN),
            pa.float64(),
            {"max": 10},
            "x stay in their ranges; null and NaN are left to checks.nulls: x (300 rows)",
            [],
        ),
        (
            {4: NAN, 8: 11.0},
            pa.float64(),
            {"max": 10},
            "x goes from 7 to 11, and may from anything to 10",
            ["8"],
        ),
        (
            {4: NAN, 8: -1.0},
            pa.float32(),
            {"min": 0, "max": 10},
            "x goes from -1 to 7, and may from 0 to 10",
            ["8"],
        ),
        (
            {4: float("inf")},
            pa.float64(),
            {"max": 10},
            "x goes from 7 to inf, and may from anything to 10",
            ["4"],
        ),
        ({4: 8}, pa.int64(), {"max": 7.5}, "x goes from 7 to 8, and may from anything to 7.5", ["4"]),
        (
            {4: 200},
            pa.uint8(),
            {"min": -3, "max": 100},
            "x goes from 7 to 200, and may from -3 to 100",
            ["4"],
        ),
        ({4: 200}, pa.uint8(), {"min": -3, "max": 10**30}, "x stay in their ranges", []),
        (
            {4: None, 5: 2**53 + 1},
            pa.int64(),
            {"max": 2**53},
            f"x goes from 7 to {2**53 + 1}, and may from anything to {2**53}",
            ["5"],
        ),
        ({5: 2**53 + 1}, pa.int64(), {"max": 2**53 + 1}, "x stay in their ranges", []),
        (
            {5: 2**64 - 1},
            pa.uint64(),
            {"max": 2**64 - 2},
            f"x goes from 7 to {2**64 - 1}, and may from anything to {2**64 - 2}",
            ["5"],
        ),
        (
            {5: 2**53 + 1},
            pa.int64(),
            {"max": 2.0**53},
            f"x goes from 7 to {2**53 + 1}, and may from anything to 9.0072e+15",
            ["5"],
        ),
    ],
)
def test_a_range_leaves_out_what_is_missing_and_is_exact(
    checks_of: ChecksOf,
    values: dict[int, Any],
    kind: pa.DataType,
    bounds: dict[str, Any],
    reason: str,
    rows: list[str],
) -> None:
    numbers = [values.get(number, 7 if pa.types.is_integer(kind) else 7.0) for number in range(300)]
    column = pa.array([np.float16(value) for value in numbers] if kind == pa.float16() else numbers, kind)
    outcome = checks_of(visits(x=column), checks={"ranges": {"x": bounds}, **TRIED_ALONE})["ranges"]
    assert outcome.reason == reason
    assert [row["id"] for row in outcome.rows] == rows
    assert outcome.passed is not rows


def test_of_a_target_with_nan_the_other_rows_still_tell_what_predicts_it(checks_of: ChecksOf) -> None:
    heights = 160.0 + np.arange(300) * 7919 % 20
    heights[[17, 40]] = np.nan, np.inf
    outcome = checks_of(visits(height=heights, inches=heights / 2.54), target="height")["lone_predictor"]
    assert "inches (" in outcome.reason


def test_examples_of_nulls_ranges_and_late_rows_are_read_from_shards_that_have_them(
    checks_of: ChecksOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages: list[int | None] = [*visits()["age"].to_pylist()]
    days = [*visits()["day"].to_pylist()]
    ages[170] = None
    ages[171] = 130
    days[172] = datetime(2027, 1, 1)
    table = visits(age=ages, day=days).append_column(
        "text", pa.array([f"{number:06d}" * 5_000 for number in range(300)])
    )
    shards: list[Shard] = []

    def rows_of(store: Store, shard: Shard) -> list[pa.RecordBatch]:
        shards.append(shard)
        return shard_writing.rows_of(store, shard)

    monkeypatch.setattr(example_rows, "rows_of", rows_of)
    others = dict.fromkeys(("lone_predictor", "leaked_rows", "duplicates", "small_classes"), "off")
    checks = {"ranges": {"age": {"max": 100}}, "nulls": {"age": 0}, "time_column": "day", **others}
    outcomes = checks_of(table, shard_mib=1, checks=checks)
    assert [[row["id"] for row in outcomes[name].rows] for name in ("nulls", "ranges", "time_order")] == [
        ["170"],
        ["171"],
        ["172"],
    ]
    (shard,) = set(shards)
    assert shard.rows < 60, "a part of the 180 rows of train"


def test_a_column_that_is_called_split_is_shown_beside_the_split(checks_of: ChecksOf) -> None:
    table = visits(split=[f"half {number % 2}" for number in range(300)], age=[-3] * 300)
    (row, *_) = checks_of(table, checks={"ranges": {"age": {"min": 0}}})["ranges"].rows
    assert (row["split"], row["column split"]) == ("test", "half 0")


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_blocks_or_warns_or_is_not_made_as_the_spec_says(checks_of: ChecksOf, name: str) -> None:
    field = f"{name}_severity" if name in ("nulls", "ranges") else name
    for severity, blocking in (("block", True), ("warn", False), ("off", None)):
        outcome = checks_of(visits(), checks={field: severity}).get(name)
        assert (None if outcome is None else outcome.blocking) is blocking


def test_nulls_and_ranges_that_warn_are_still_found(checks_of: ChecksOf) -> None:
    ages: list[int | None] = [*visits()["age"].to_pylist()]
    ages[4] = -3
    ages[6] = None
    bounds = {"ranges": {"age": {"min": 0}}, "nulls": {"age": 0}}
    outcomes = checks_of(
        visits(age=ages), checks={**bounds, "nulls_severity": "warn", "ranges_severity": "warn"}
    )
    for name, row in (("nulls", "6"), ("ranges", "4")):
        assert (outcomes[name].passed, outcomes[name].blocking) == (False, False)
        assert [example["id"] for example in outcomes[name].rows] == [row]


def test_a_check_of_a_column_that_is_not_there_fails_and_says_so(checks_of: ChecksOf) -> None:
    outcomes = checks_of(
        visits(),
        checks={"ranges": {"user": {"max": 1}, "ag": {"max": 1}}, "nulls": {"ag": 0}, "time_column": "when"},
    )
    assert outcomes["ranges"].reason == "checks.ranges names columns that are not numbers: ag, user"
    assert outcomes["nulls"].reason.startswith(
        "checks.nulls names columns that are not there: ag; there are "
    )
    assert outcomes["time_order"].reason.startswith(
        "checks.time_column = 'when' is not there; the columns are"
    )


def test_a_schema_that_changed_is_said(checks_of: ChecksOf) -> None:
    assert checks_of(visits())["schema_as_before"].reason == "it is the dataset's first snapshot"
    outcome = checks_of(visits().append_column("new", visits()["age"]))["schema_as_before"]
    assert not outcome.passed
    assert outcome.reason.endswith("columns were added: new")


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


def test_a_range_of_a_duration_is_of_its_seconds(checks_of: ChecksOf) -> None:
    lasts = pa.array([number * 1_000 for number in range(300)], pa.duration("ms"))
    outcome = checks_of(visits(lasts=lasts), checks={"ranges": {"lasts": {"max": 297}}})["ranges"]
    assert outcome.reason == "lasts goes from 0 to 299, and may from anything to 297"
    assert [row["id"] for row in outcome.rows] == ["298", "299"]


def test_a_range_of_lists_is_refused(checks_of: ChecksOf) -> None:
    outcomes = checks_of(
        visits(pair=pa.array([[1, 2]] * 300, pa.list_(pa.int64(), 2))),
        checks={"ranges": {"pair": {"max": 1}}},
    )
    assert outcomes["ranges"].reason == "checks.ranges names columns that are not numbers: pair"
