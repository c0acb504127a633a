"""Planted leaks and faults are found, with example rows; sound data passes."""

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pytest

from halving import Store
from halving.data.shards import Shard
from resources.datasets import example_rows, shard_writing
from resources.datasets.data_checks import CHECKS, DataCheck
from tests.resources.datasets.tables import visits

ChecksOf = Callable[..., dict[str, DataCheck]]


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

    def read_shard(store: Store, shard: Shard) -> list[pa.RecordBatch]:
        shards.append(shard)
        return shard_writing.read_shard(store, shard)

    monkeypatch.setattr(example_rows, "read_shard", read_shard)
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
    field = name
    if name in ("nulls", "ranges"):
        field = f"{name}_severity"
    for severity, blocking in (("block", [True]), ("warn", [False]), ("off", [])):
        outcomes = checks_of(visits(), checks={field: severity}).values()
        assert [outcome.blocking for outcome in outcomes if outcome.name == name] == blocking


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
