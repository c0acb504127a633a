"""Planted leaks between the test split and the others are found; a sound split has none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset
from resources.backend import Backend
from resources.datasets import held_out_leaks, lone_predictor
from resources.datasets.data_checks import DataCheck
from resources.datasets.held_out_leaks import check_leaks
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.tables import visits

Leaks = Callable[..., dict[str, DataCheck]]


@pytest.fixture
def leaks(backend: Backend, provide: Callable[..., DatasetSource]) -> Leaks:
    def find_leaks(
        table: pa.Table, accepted: tuple[str, ...] = (), ignored: tuple[str, ...] = (), **changes: Any
    ) -> dict[str, DataCheck]:
        source = provide(table, **({"split_column": "part"} | changes))
        snapshot = take_snapshot(backend.store, backend.catalog, source)
        dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
        return {check.name: check for check in check_leaks(dataset, source, accepted, ignored)}

    return find_leaks


def with_copy(label: str, part: str = "test") -> pa.Table:
    """The visits, and a copy of a row of the train split in another split with a label of its own."""
    copy = (
        visits().slice(5, 1).set_column(4, "part", pa.array([part])).set_column(5, "label", pa.array([label]))
    )
    return pa.concat_tables([visits(), copy])


def test_a_split_in_order_leaks_nothing(leaks: Leaks) -> None:
    for changes in (
        {"group": "user", "checks": {"time_column": "day"}},
        {"split_column": None, "group": "user"},
    ):
        outcomes = leaks(visits(), **changes)
        assert {name: outcome.reason for name, outcome in outcomes.items() if not outcome.passed} == {}
        assert list(outcomes) == ["leaked_features", "leaked_groups", "time_order", "lone_predictor"]


@pytest.mark.parametrize("label", ["low", "high"])
@pytest.mark.parametrize("at_once", [1_000, 7])
def test_features_that_were_trained_on_are_found_whatever_the_target_says(
    leaks: Leaks, monkeypatch: pytest.MonkeyPatch, label: str, at_once: int
) -> None:
    monkeypatch.setattr(held_out_leaks, "_AT_ONCE", at_once)
    outcome = leaks(with_copy(label))["leaked_features"]
    assert (outcome.passed, outcome.reason) == (
        False,
        "1 of the 61 rows of the test split have the features of a row of another split",
    )
    assert [(row["split"], row["id"]) for row in outcome.rows] == [("test", "5"), ("train", "5")]


def test_copies_under_other_ids_are_found_where_the_id_is_ignored(leaks: Leaks) -> None:
    copy = with_copy("low").slice(300, 1)
    renamed = copy.set_column(
        copy.schema.get_field_index("id"), "id", pa.array([999_999], copy.schema.field("id").type)
    )
    table = pa.concat_tables([visits(), renamed])
    assert leaks(table)["leaked_features"].passed
    check = leaks(table, ignored=("id",))["leaked_features"]
    assert check.reason == "1 of the 61 rows of the test split have the features of a row of another split"


@pytest.mark.parametrize("at_once", [1_000, 7])
def test_rows_that_the_identity_says_are_one_are_found_whatever_else_differs(
    leaks: Leaks, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(held_out_leaks, "_AT_ONCE", at_once)
    rows = range(300)
    table = pa.table(
        {
            "id": [*rows, 300, 301],
            "text": [f"text {row}" for row in (*rows, 1, 2)],
            "part": [*(["train", "validation", "test"][row * 7 % 3] for row in rows), "test", "test"],
            "label": [["low", "high"][row % 2] for row in (*rows, 0, 2)],
        }
    )
    assert table["part"].to_pylist()[1:3] == ["validation", "test"]
    assert "leaked_rows" not in leaks(table)
    outcomes = leaks(table, checks={"identity": ["text"]})
    assert outcomes["leaked_features"].passed
    assert (
        outcomes["leaked_rows"].reason
        == "1 of the 102 rows of the test split have the text of a row of another split"
    )
    assert [(row["split"], row["id"]) for row in outcomes["leaked_rows"].rows] == [
        ("test", "300"),
        ("validation", "1"),
    ]
    apart = leaks(table, checks={"identity": ["text", "label"]})["leaked_rows"]
    assert (apart.passed, apart.reason) == (
        True,
        "none of the 102 rows of the test split has the text, label of a row of another",
    )
    by_hash = leaks(table.drop(["part"]), split_column=None, group="text", checks={"identity": ["text"]})[
        "leaked_rows"
    ]
    assert (by_hash.passed, by_hash.reason) == (
        True,
        "rows of equal text are in one split, because a hash of them deals them",
    )


def test_copies_of_files_are_found_under_whatever_path(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaks: Leaks
) -> None:
    for split, names in {"train": "abcd", "validation": "ef", "test": "ax"}.items():
        for name in names:
            file = tmp_path / "files" / split / f"{split}-{name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
    source = DatasetSource(
        name="files", source={"folder": str(tmp_path / "files")}, target="bytes", split_column="label"
    )
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    check = check_leaks(Dataset(backend.store, snapshot.name, snapshot.digest), source)[0]
    assert check.reason == "1 of the 2 rows of the test split have the features of a row of another split"
    assert {(row["split"], row["path"]) for row in check.rows} == {
        ("test", "test/test-a.txt"),
        ("train", "train/train-a.txt"),
    }


def test_several_rows_of_one_file_are_no_copies_of_each_other(leaks: Leaks) -> None:
    frames = pa.table(
        {
            "path": [f"video-{row % 3}.mp4" for row in range(300)],
            "sha256": [f"{row % 3:064}" for row in range(300)],
            "frame": list(range(300)),
            "part": ["train"] * 200 + ["validation"] * 50 + ["test"] * 50,
            "label": ["low", "high"] * 150,
        }
    )
    assert leaks(frames)["leaked_features"].passed
    copies = pa.concat_tables(
        [
            frames,
            frames.slice(0, 1)
            .set_column(3, "part", pa.array(["test"]))
            .set_column(0, "path", pa.array(["copy.mp4"])),
        ]
    )
    assert (
        leaks(copies)["leaked_features"].reason
        == "1 of the 51 rows of the test split have the features of a row of another split"
    )


def test_rows_that_an_earlier_target_had_dealt_are_compared(leaks: Leaks) -> None:
    rows = range(300)
    table = pa.table(
        {"x": [row // 3 for row in rows], "a": [row // 3 % 2 for row in rows], "b": [row % 3 for row in rows]}
    )
    assert leaks(table, split_column=None, target="a")["leaked_features"].passed
    # The rows are still dealt by x and b, but b is no feature any more.
    later = leaks(table, split_column=None, target="b")["leaked_features"]
    assert not later.passed
    assert "rows of the test split have the features of a row of another split" in later.reason


def test_each_of_two_equal_rows_of_the_test_split_counts(leaks: Leaks) -> None:
    outcome = leaks(pa.concat_tables([with_copy("low"), with_copy("low").slice(len(visits()))]))[
        "leaked_features"
    ]
    assert outcome.reason == "2 of the 62 rows of the test split have the features of a row of another split"


def test_batches_are_looked_up_in_hashes_that_were_sorted_once() -> None:
    source = np.random.default_rng(0)
    for size in (0, 1, 500):
        ours = np.unique(source.integers(0, 1_000, size).astype(np.uint64))
        wanted = source.integers(0, 1_100, 300).astype(np.uint64)
        places = held_out_leaks._places_of(wanted, ours)
        assert set(ours[places]) == set(ours) & set(wanted)


def test_columns_that_were_not_tried_as_predictors_are_named(
    leaks: Leaks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_predictor, "MAX_COLUMNS", 2)
    assert "of the first 2 (the others were not tried) predicts" in leaks(visits())["lone_predictor"].reason


def test_with_few_rows_it_says_that_no_column_was_tried(leaks: Leaks) -> None:
    few = visits(part=["train"] * 39 + ["validation"] * 61 + ["test"] * 200)
    assert (
        "39 rows that are trained on are too few for that, 40 are needed"
        in leaks(few)["lone_predictor"].reason
    )


def test_a_row_that_is_twice_in_what_is_trained_on_is_no_leak_of_the_test_split(leaks: Leaks) -> None:
    assert leaks(with_copy("low", "validation"))["leaked_features"].passed


def test_a_group_in_the_test_split_that_was_trained_on_is_found(leaks: Leaks) -> None:
    users = [f"u{number // 10}" for number in range(299)] + ["u3"]
    assert "1 values of user" in leaks(visits(user=users), group="user")["leaked_groups"].reason


def test_rows_that_are_trained_on_and_later_than_the_test_split_are_found(leaks: Leaks) -> None:
    parts = ["test"] * 60 + ["train"] * 180 + ["validation"] * 60
    outcome = leaks(visits(part=parts), checks={"time_column": "day", "time_order": "off"})["time_order"]
    assert not outcome.passed
    assert "the test split begins at 2026-01-01" in outcome.reason


def test_a_column_made_of_the_target_is_found_unless_it_is_accepted(leaks: Leaks) -> None:
    leaky = visits().append_column(
        "paid", pa.array([3 if label == "high" else 1 for label in visits()["label"].to_pylist()])
    )
    outcome = leaks(leaky)["lone_predictor"]
    assert "paid (balanced accuracy 1.000)" in outcome.reason
    assert {(row["split"], row["label"], row["paid"]) for row in outcome.rows} == {
        ("train", "high", "3"),
        ("train", "low", "1"),
    }
    assert leaks(leaky, accepted=("paid",))["lone_predictor"].passed
