"""A row never changes its split, whatever other rows come, go or move."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from halving import Dataset, InvalidInput
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.datasets.splits import deal_table, divide_interval
from resources.sweep_spec.dataset import DatasetSource
from tests.properties import examples


def source(**changes: Any) -> DatasetSource:
    return DatasetSource.model_validate({"name": "points", "source": "m:load", "target": "label", **changes})


def people(rows: int, offset: int = 0) -> pa.Table:
    ids = np.arange(offset, offset + rows)
    return pa.table({"id": ids, "user": [f"user-{number % 97}" for number in ids], "label": ids % 3})


def split_of(spec: DatasetSource, table: pa.Table) -> dict[int, str]:
    """The split of each row, by its id."""
    ids = table["id"].to_pylist()
    return {ids[row]: split for split, rows in deal_table(spec, table).items() for row in rows.tolist()}


@pytest.mark.parametrize("changes", [{}, {"group": "user"}, {"folds": 5}, {"seed": 7}])
def test_a_dataset_that_grows_ten_times_keeps_every_row_in_its_split(changes: dict[str, Any]) -> None:
    spec = source(**changes)
    before = dict[int, str]()
    rows = 500
    for _ in range(10):
        table = people(rows)
        # The order differs each time.
        now = split_of(spec, table.take(np.random.RandomState(rows).permutation(rows)))
        assert len(now) == rows, "each row is in one split"
        assert before.items() <= now.items()
        before = now
        rows = rows * 3 // 2
    assert split_of(spec, people(rows // 2, offset=100)).items() <= split_of(spec, people(rows)).items(), (
        "some are removed"
    )


@settings(max_examples=examples(30))
@given(shares=st.lists(st.integers(1, 20), min_size=3, max_size=6), seed=st.integers(0, 2**63 - 1))
def test_every_row_is_in_one_split_and_shares_are_met(shares: list[int], seed: int) -> None:
    names = ["train", "validation", "test", "extra", "more", "other"][: len(shares)]
    given_shares = {name: share / sum(shares) for name, share in zip(names, shares, strict=True)}
    dealt = deal_table(source(splits=given_shares, seed=seed), people(4_000))
    assert sorted(row for rows in dealt.values() for row in rows.tolist()) == list(range(4_000))
    for name, share in given_shares.items():
        deviation = (share * (1 - share) / 4_000) ** 0.5
        assert abs(len(dealt[name]) / 4_000 - share) < 6 * deviation


def test_the_dealing_is_frozen_for_ever() -> None:
    assert [int(bound) for bound in divide_interval({"train": 0.6, "validation": 0.2, "test": 0.2})[1]] == [
        2**64 // 5,
        2**64 * 4 // 5,
    ]
    dealt = deal_table(source(), people(20))
    assert {name: rows.tolist() for name, rows in dealt.items()} == FROZEN


FROZEN: dict[str, list[int]] = {
    "test": [0, 12],
    "train": [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 16, 17, 19],
    "validation": [9, 10, 15, 18],
}


def test_a_share_that_grows_takes_rows_from_its_neighbour_alone() -> None:
    small, large = (
        split_of(source(splits={"train": 1 - 0.2 - v, "validation": v, "test": 0.2}), people(5_000))
        for v in (0.1, 0.3)
    )
    changed = {(was, large[row]) for row, was in small.items() if was != large[row]}
    assert changed == {("train", "validation")}


def test_rows_of_a_group_are_together_and_their_target_does_not_decide() -> None:
    of_user: dict[str, set[str]] = {}
    table = people(2_000)
    for row, split in split_of(source(group="user"), table).items():
        of_user.setdefault(f"user-{row % 97}", set()).add(split)
    assert all(len(splits) == 1 for splits in of_user.values())
    relabelled = table.set_column(2, "label", pa.array([9] * 2_000))
    assert split_of(source(), relabelled) == split_of(source(), table)


def test_two_columns_may_be_a_group() -> None:
    table = pa.table(
        {
            "id": range(400),
            "site": ["a", "b"] * 200,
            "day": [number // 8 for number in range(400)],
            "label": [0] * 400,
        }
    )
    of_group: dict[tuple[str, int], set[str]] = {}
    for row, split in split_of(source(group=["site", "day"]), table).items():
        of_group.setdefault((["a", "b"][row % 2], row // 8), set()).add(split)
    assert all(len(splits) == 1 for splits in of_group.values())
    assert any(of_group["a", day] != of_group["b", day] for day in range(50))


def test_folds_deal_all_but_the_test_split_which_stays_for_any_number_of_them() -> None:
    dealt = {folds: split_of(source(folds=folds), people(3_000)) for folds in (2, 5, 10)}
    assert set(dealt[5].values()) == {"test", *(f"fold-{number}" for number in range(5))}
    test_rows = [{row for row, split in splits.items() if split == "test"} for splits in dealt.values()]
    assert test_rows[0] == test_rows[1] == test_rows[2]


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms", tz="UTC"), pa.date32()],
)
def test_by_time_the_bounds_belong_to_the_later_split(kind: pa.DataType) -> None:
    days = [date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 28), date(2026, 3, 1), date(1960, 1, 1)]
    moments = pa.array(days)
    if kind != pa.date32():
        moments = pa.array([datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days], kind)
    spec = source(split_times={"column": "ts", "validation": "2026-02-01", "test": date(2026, 3, 1)})
    dealt = deal_table(spec, pa.table({"ts": moments, "label": range(5)}))
    assert {name: rows.tolist() for name, rows in dealt.items()} == {
        "train": [0, 4],
        "validation": [1, 2],
        "test": [3],
    }


def test_a_bound_within_a_tick_of_a_coarser_column_is_that_of_the_next_tick() -> None:
    spec = source(
        split_times={"column": "ts", "validation": "2026-02-01T00:00:00.5Z", "test": "2026-02-01T00:00:01.5"}
    )
    ticks = [datetime(2026, 2, 1, 0, 0, second) for second in range(4)]
    dealt = deal_table(spec, pa.table({"ts": pa.array(ticks, pa.timestamp("s")), "label": range(4)}))
    assert {name: rows.tolist() for name, rows in dealt.items()} == {
        "train": [0],
        "validation": [1],
        "test": [2, 3],
    }


def test_a_column_may_name_the_split() -> None:
    table = pa.table({"part": ["train", "test", "validation", "train", "holdout"], "label": range(5)})
    dealt = deal_table(source(split_column="part"), table)
    assert {name: rows.tolist() for name, rows in dealt.items()} == {
        "train": [0, 3],
        "test": [1],
        "validation": [2],
        "holdout": [4],
    }


@pytest.mark.parametrize(
    ("changes", "table", "says"),
    [
        (
            {"target": "y"},
            people(3),
            r"dataset.target = 'y' is not accepted: the columns are \['id', 'user', 'label'\]",
        ),
        ({"group": "usr"}, people(3), "dataset.group = 'usr' is not accepted: the columns are"),
        (
            {"split_column": "part"},
            people(3),
            "dataset.split_column = 'part' is not accepted: the columns are",
        ),
        (
            {"split_column": "id"},
            people(3),
            "'id' is not accepted: it has values of the type int64; give a column with a split's name",
        ),
        ({"split_column": "p"}, pa.table({"p": ["a", None], "label": [0, 1]}), "it has 1 nulls among 2 rows"),
        ({"split_column": "p"}, pa.table({"p": ["a/b"], "label": [0]}), "it holds 'a/b'; give 1-128 letters"),
        (
            {"split_column": "p"},
            pa.table({"p": [f"s{n}" for n in range(101)], "label": range(101)}),
            "more than 100 splits",
        ),
        (
            {"split_times": {"column": "id", "validation": "2026-01-01", "test": "2026-02-01"}},
            people(3),
            "values of the type int64; give dates",
        ),
    ],
)
def test_a_column_that_cannot_decide_is_refused_by_name(
    changes: dict[str, Any], table: pa.Table, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        deal_table(source(**changes), table)


def numbered_rows(rows: int = 2_000, **columns: Any) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {"id": numbers, "x": numbers % 17, "name": [f"n{number}" for number in numbers], "label": numbers % 2}
        | columns
    )


@pytest.fixture
def splits_of(backend: Backend, provide: Callable[..., DatasetSource]) -> Callable[..., dict[int, str]]:
    """Takes a snapshot of a table, and gives the split of each id."""

    def take(table: pa.Table, **changes: Any) -> dict[int, str]:
        snapshot = take_snapshot(backend.store, backend.catalog, provide(table, **changes))
        dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
        return {number: split for split in dataset.splits for number in dataset.read(split)["id"].to_pylist()}

    return take


@pytest.mark.parametrize(
    "table",
    [
        numbered_rows(later=np.arange(2_000) % 3),
        numbered_rows(later=["a"] * 2_000).select(["later", "label", "name", "x", "id"]),
        numbered_rows(x=np.arange(2_000) % 17 * 1.0),
        numbered_rows(name=pa.array([f"n{number}" for number in range(2_000)], pa.large_string())),
        numbered_rows(name=pa.array([f"n{number}" for number in range(2_000)]).dictionary_encode()),
        numbered_rows(label=["yes", "no"] * 1_000),
        numbered_rows(bits=pa.array([[number, 1] for number in range(2_000)], pa.list_(pa.int64()))),
        numbered_rows(2_500),
    ],
)
def test_columns_that_are_added_and_other_types_of_equal_values_move_no_row(
    splits_of: Callable[..., dict[int, str]], table: pa.Table
) -> None:
    before = splits_of(numbered_rows())
    after = splits_of(table)
    assert {number: after[number] for number in before} == before
    assert splits_of(numbered_rows()) == before


def test_the_first_columns_decide_though_the_columns_change_again_and_again(
    splits_of: Callable[..., dict[int, str]],
) -> None:
    before = splits_of(numbered_rows())
    for changes in (
        {"later": np.arange(2_000)},
        {"other": np.arange(2_000)},
        {"later": np.arange(2_000) % 5, "third": ["t"] * 2_000},
    ):
        assert splits_of(numbered_rows(**changes)) == before
    assert splits_of(numbered_rows(), split_column=None, seed=0) == before


@pytest.mark.parametrize(
    "between",
    [{"group": "x"}, {"split_times": {"column": "day", "validation": "2026-01-01", "test": "2026-01-02"}}],
)
def test_snapshots_that_were_dealt_in_another_way_meanwhile_move_no_row(
    splits_of: Callable[..., dict[int, str]], between: dict[str, Any]
) -> None:
    day = pa.array(
        [
            date(2025, 12, 31 - number % 3) if number % 3 else date(2026, 1, 1 + number % 2)
            for number in range(2_000)
        ]
    )
    before = splits_of(numbered_rows(day=day))
    assert splits_of(numbered_rows(day=day), **between) != before
    assert splits_of(numbered_rows(day=day, later=np.arange(2_000))) == before


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (numbered_rows().drop_columns(["name"]), "name is gone"),
        (numbered_rows().rename_columns(["id", "x", "title", "label"]), "name is gone"),
        (numbered_rows(x=[str(number % 17) for number in range(2_000)]), "x is string and was int64"),
        (numbered_rows(x=pa.array(range(2_000), pa.timestamp("s"))), r"x is timestamp\[s\] and was int64"),
    ],
)
def test_rows_that_would_all_be_dealt_anew_are_refused_with_the_ways_on(
    splits_of: Callable[..., dict[int, str]], table: pa.Table, says: str
) -> None:
    before = splits_of(numbered_rows())
    with pytest.raises(
        InvalidInput,
        match=(
            rf"dataset.group is needed: .* dealt by the hash of id, x, name, .*{says}.*Give group, "
            r".*redeal: true"
        ),
    ):
        splits_of(table)
    assert splits_of(table, group="id").keys() == before.keys()


def test_rows_are_dealt_anew_where_the_spec_says_so(splits_of: Callable[..., dict[int, str]]) -> None:
    before = splits_of(numbered_rows())
    anew = splits_of(numbered_rows().drop_columns(["name"]), redeal=True)
    assert sum(anew[number] != split for number, split in before.items()) > 500
    assert splits_of(numbered_rows(later=["a"] * 2_000).drop_columns(["name"])) == anew, (
        "what decided last decides from then on"
    )
    with pytest.raises(ValidationError, match="group says each row's split, so redeal would have no effect"):
        splits_of(numbered_rows(), redeal=True, group="id")


def test_files_that_are_appended_are_dealt_by_the_first_columns_too(backend: Backend, tmp_path: Path) -> None:
    """The table has a column more than in its first snapshot, and only the new file is read."""
    folder = tmp_path / "rows"
    folder.mkdir()

    def take() -> dict[int, str]:
        source = {"name": "points", "source": {"files": str(folder)}, "target": "label"}
        snapshot = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(source))
        dataset = Dataset(backend.store, snapshot.name, snapshot.digest)
        return {number: split for split in dataset.splits for number in dataset.read(split)["id"].to_pylist()}

    pq.write_table(numbered_rows(), folder / "0.parquet")
    before = take()
    pq.write_table(numbered_rows(later=np.arange(2_000)), folder / "0.parquet")
    assert take() == before
    pq.write_table(numbered_rows(3_000, later=np.arange(3_000)).slice(2_000), folder / "1.parquet")
    assert {number: split for number, split in take().items() if number < 2_000} == before
