"""Faults of a snapshot's columns are found, with example rows; sound columns pass."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Store
from halving.data.shards import Shard
from resources.datasets import example_rows, shard_writing
from resources.datasets.data_checks import DataCheck
from tests.resources.datasets.tables import visits

ChecksOf = Callable[..., dict[str, DataCheck]]


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

    def read_shard(store: Store, shard: Shard) -> list[pa.RecordBatch]:
        shards.append(shard)
        return shard_writing.read_shard(store, shard)

    monkeypatch.setattr(example_rows, "read_shard", read_shard)
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
    name = {"target": "label", "column": "x"}[place]
    outcomes = checks_of(visits(**{name: values}), checks={"nulls": {name: allowed}, **TRIED_ALONE})
    outcome = outcomes["nulls"]
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
    usual = 7.0
    if pa.types.is_integer(kind):
        usual = 7
    numbers = [values.get(number, usual) for number in range(300)]
    if kind == pa.float16():
        numbers = [np.float16(value) for value in numbers]
    column = pa.array(numbers, kind)
    outcome = checks_of(visits(x=column), checks={"ranges": {"x": bounds}, **TRIED_ALONE})["ranges"]
    assert outcome.reason == reason
    assert [row["id"] for row in outcome.rows] == rows
    assert outcome.passed is not rows


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
