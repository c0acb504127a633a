"""Copies of rows that an id hides are found by ``checks.identity``, within a split and across."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets.data_checks import DataCheck, check_one
from resources.datasets.diff import compare_rows
from resources.datasets.snapshots import find_or_take_snapshot, take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from resources.sweep_spec.sweep import SweepSpec

NAN = float("nan")
TIMES = {"column": "day", "validation": "1970-06-30", "test": "1970-08-29"}


def rows(copies: int = 0, **changes: Any) -> pa.Table:
    """300 rows with different texts, then copies of the first ones with other ids."""
    numbers = [*range(300), *range(copies)]
    columns: dict[str, Any] = {
        "id": list(range(len(numbers))),
        "text": [f"text {number}" for number in numbers],
        "amount": [[1.5, None, NAN, 2.0][number % 4] for number in numbers],
        "pair": pa.array([[number, number % 7] for number in numbers], pa.list_(pa.int64())),
        "place": pa.array([{"x": number, "y": None if number % 2 else "north"} for number in numbers]),
        "none": pa.nulls(len(numbers), pa.string()),
        "day": pa.array([index % 300 for index in range(len(numbers))], pa.int32()).cast(pa.date32()),
        "part": [
            ["train", "validation", "test"][index * 2_654_435_761 % 4_294_967_296 % 3]
            for index in range(len(numbers))
        ],
        "label": [["low", "high"][number % 2] for number in numbers],
    }
    return pa.table(columns | changes)


def check(backend: Backend, source: DatasetSource) -> tuple[Dataset, dict[str, DataCheck]]:
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
    names = ("duplicates", "leaked_rows")
    return dataset, {
        name: check_one(name, dataset, source, blocking=source.checks.severity(name) == "block")
        for name in names
    }


def count_repeats(dataset: Dataset, columns: list[str]) -> tuple[int, int]:
    """Count the copies within splits, and the values in two splits, by comparing all rows in Python."""
    by_split = {
        split: Counter(map(repr, dataset.read(split).select(columns).to_pylist())) for split in dataset.splits
    }
    copies = sum(count - 1 for values in by_split.values() for count in values.values())
    splits = Counter(value for values in by_split.values() for value in values)
    return copies, sum(count > 1 for count in splits.values())


@pytest.mark.parametrize(
    ("copies", "identity", "way"),
    [
        (40, ["text"], {}),
        (40, ["text", "label"], {}),
        (0, ["text", "label"], {}),
        (40, ["label"], {}),
        (40, ["text", "amount"], {}),
        (40, ["amount"], {}),
        (40, ["pair", "label"], {}),
        (40, ["place"], {}),
        (40, ["none"], {}),
        (40, ["none", "text"], {}),
        (40, ["id"], {}),
        (40, ["text"], {"group": "id"}),
        (40, ["text", "label"], {"group": ["id", "text"]}),
        (40, ["text"], {"folds": 4}),
        (40, ["text"], {"split_column": "part"}),
        (40, ["text", "label"], {"split_column": "part", "group": "id"}),
        (40, ["text"], {"split_times": TIMES}),
        (40, ["day", "text"], {"split_times": TIMES}),
        (150, ["text"], {"seed": 7}),
    ],
)
def test_rows_that_have_the_identity_in_common_are_counted_within_splits_and_across(
    backend: Backend,
    provide: Callable[..., DatasetSource],
    copies: int,
    identity: list[str],
    way: dict[str, Any],
) -> None:
    dataset, outcomes = check(backend, provide(rows(copies), checks={"identity": identity}, **way))
    within, across = count_repeats(dataset, identity)
    names = ", ".join(identity)
    duplicates = f"all {300 + copies} rows differ within their split, by {names}"
    if within:
        duplicates = f"{within:,} rows are copies of others in their split, by {names}"
    assert outcomes["duplicates"].reason == duplicates
    leaks = f"no row is in two splits, by {names}"
    if across:
        leaks = f"{across:,} rows are in two splits or more, by {names}"
    if across and not {"split_column", "split_times"} & set(way):  # A hash deals them.
        leaks += "; give group columns of these alone, and their hash deals such rows together"
    assert outcomes["leaked_rows"].reason == leaks
    assert (outcomes["duplicates"].passed, outcomes["leaked_rows"].passed) == (not within, not across)
    for name in ("duplicates", "leaked_rows"):
        examples = Counter(tuple(row[column] for column in identity) for row in outcomes[name].rows)
        assert bool(examples) is not outcomes[name].passed


def test_copies_that_an_id_hides_pass_without_an_identity_and_are_found_with_one(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    _, without = check(backend, provide(rows(40)))
    assert (without["duplicates"].passed, without["leaked_rows"].passed) == (True, True)
    dataset, outcomes = check(backend, provide(rows(40), checks={"identity": ["text", "label"]}))
    within, across = count_repeats(dataset, ["text", "label"])
    assert within > 0
    assert across > 0
    assert (outcomes["duplicates"].blocking, outcomes["leaked_rows"].blocking) == (False, True)
    by_text: dict[str, set[str]] = {}
    for row in outcomes["leaked_rows"].rows:
        by_text.setdefault(row["text"], set()).add(row["split"])
    assert any(len(splits) > 1 for splits in by_text.values())


@pytest.mark.parametrize("group", ["text", ["text", "label"], ["label"]])
def test_a_group_of_columns_of_the_identity_keeps_copies_together(
    backend: Backend, provide: Callable[..., DatasetSource], group: Any
) -> None:
    shares = {"train": 0.4, "validation": 0.3, "test": 0.3}
    many = rows(40, label=[f"class {number % 50}" for number in [*range(300), *range(40)]])
    dataset, outcomes = check(
        backend, provide(many, group=group, splits=shares, checks={"identity": ["text", "label"]})
    )
    assert count_repeats(dataset, ["text", "label"]) == (40, 0)
    assert outcomes["duplicates"].reason == "40 rows are copies of others in their split, by text, label"
    assert outcomes["leaked_rows"].reason == "equal rows are in one split, because their hash deals them"


@pytest.mark.parametrize(
    ("identity", "way", "says"),
    [
        ("txt", {}, "dataset.checks.identity = 'txt' is not accepted: the columns are"),
        (
            ["text", "gone"],
            {"group": "text"},
            "dataset.checks.identity = 'gone' is not accepted: the columns are",
        ),
        (["gone"], {"split_column": "part"}, "dataset.checks.identity = 'gone' is not accepted"),
        (["Text"], {"split_times": TIMES}, "dataset.checks.identity = 'Text' is not accepted"),
    ],
)
def test_a_missing_column_of_the_identity_is_refused_before_anything_is_stored(
    backend: Backend, provide: Callable[..., DatasetSource], identity: Any, way: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        take_snapshot(backend.store, backend.catalog, provide(rows(), checks={"identity": identity}, **way))
    assert list(backend.store.files("datasets")) == list(backend.store.files("shards")) == []


@pytest.mark.parametrize(
    ("identity", "way", "says"),
    [
        ([], {}, "at least 1 item"),
        ("", {}, "at least 1 character"),
        (7, {}, "valid list"),
        ({"text": 1}, {}, "valid list"),
        ([["text"]], {}, "valid string"),
        (
            ["part", "text"],
            {"split_column": "part"},
            "checks.identity names part, which says each row's split",
        ),
    ],
)
def test_an_identity_that_cannot_be_one_is_refused(
    provide: Callable[..., DatasetSource], identity: Any, way: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        provide(rows(), checks={"identity": identity}, **way)


def test_the_same_rows_with_another_identity_are_another_snapshot_of_the_same_shards(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    identities = [None, ["text"], ["label"], ["text", "label"], None, ["text"]]
    taken = []
    for identity in identities:
        dataset, outcomes = check(backend, provide(rows(40), checks={"identity": identity}))
        assert outcomes["leaked_rows"].passed is (identity is None)
        assert dataset.manifest["identity"] == identity
        taken.append(dataset)
    assert len({dataset.digest for dataset in taken}) == 4
    assert [dataset.digest for dataset in taken[4:]] == [dataset.digest for dataset in taken[:2]]
    assert all(dataset.manifest["shards"] == taken[0].manifest["shards"] for dataset in taken)
    assert [dataset.manifest["stored"] > 0 for dataset in taken[:4]] == [True, False, False, False]


def test_a_diff_compares_whole_rows_whatever_the_identity(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    mended = rows(40, label=["other"] * 3 + rows(40)["label"].to_pylist()[3:])
    old, _ = check(backend, provide(rows(40), group="id"))
    for identity in (None, ["text"], ["id"]):
        new, _ = check(backend, provide(mended, group="id", checks={"identity": identity}))
        difference = compare_rows(backend.store, old, new)
        assert difference is not None
        assert (
            sum(difference["added"].values()),
            sum(difference["removed"].values()),
            difference["moved"],
        ) == (3, 3, [])


@pytest.mark.parametrize("group", [None, "id", "text"])
def test_rows_that_are_appended_are_compared_with_those_that_were_there(
    backend: Backend, tmp_path: Path, group: str | None
) -> None:
    spec = {
        "name": "points",
        "source": {"files": f"{tmp_path}/*.parquet"},
        "target": "label",
        "checks": {"identity": "text"},
    }
    if group:
        spec["group"] = group
    source = DatasetSource.model_validate(spec)
    table = rows(40)
    for number, (begin, end) in enumerate([(0, 300), (300, 320), (320, 340)]):
        pq.write_table(table.slice(begin, end - begin), tmp_path / f"{number}.parquet")
        dataset, outcomes = check(backend, source)
        assert dataset.manifest["rows"] == end
        within, across = count_repeats(dataset, ["text"])
        assert within + across >= end - 300
        assert outcomes["duplicates"].passed is (within == 0)
        assert outcomes["leaked_rows"].passed is (across == 0)
        if within:
            assert (
                outcomes["duplicates"].reason == f"{within} rows are copies of others in their split, by text"
            )


@pytest.mark.parametrize(("taken_by", "wanted"), [(None, ["x0"]), (["x0"], None), (["x0"], ["x1"])])
def test_a_snapshot_of_another_identity_is_refused_where_a_spec_names_it(
    backend: Backend,
    small_spec: Callable[..., SweepSpec],
    taken_by: list[str] | None,
    wanted: list[str] | None,
) -> None:
    dataset = small_spec().dataset.model_dump(mode="json", exclude_none=True)
    columns = {"x0": "x", "x1": "label"}

    def spec(identity: list[str] | None, **changes: Any) -> SweepSpec:
        names = [columns[name] for name in identity or []] or None
        return small_spec(dataset={**dataset, "checks": {"identity": names}}, **changes)

    taken = take_snapshot(backend.store, backend.catalog, spec(taken_by).dataset)
    assert (
        find_or_take_snapshot(backend.store, backend.catalog, spec(taken_by, snapshot=taken.digest)).digest
        == taken.digest
    )
    with pytest.raises(
        InvalidInput, match=r"it was taken with dataset.checks.identity = .*leave snapshot out"
    ):
        find_or_take_snapshot(backend.store, backend.catalog, spec(wanted, snapshot=taken.digest))
