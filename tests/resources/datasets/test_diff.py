"""A diff counts the rows that came, went and moved, and what it says without reading them is true."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from halving import Dataset
from resources.backend import Backend
from resources.datasets import diff
from resources.datasets.diff import compare, compare_rows
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.tables import images

Take = Callable[..., Dataset]


@pytest.fixture
def take(backend: Backend, provide: Callable[..., DatasetSource]) -> Take:
    def take_table(table: pa.Table, **changes: Any) -> Dataset:
        snapshot = take_snapshot(backend.store, backend.catalog, provide(table, **changes))
        return Dataset(backend.store, snapshot.name, snapshot.digest)

    return take_table


def test_rows_that_came_and_went_are_counted_by_split_and_none_has_moved(
    take: Take, backend: Backend
) -> None:
    table = images(6_000)
    old = take(table, shard_mib=1)
    new = take(pa.concat_tables([table.slice(100), images(50, first=6_000)]), shard_mib=1)
    changes = compare_rows(backend.store, old, new)
    assert changes is not None
    assert sum(changes["added"].values()) == 50
    assert sum(changes["removed"].values()) == 100
    assert changes["moved"] == []
    for split in old.splits:
        assert new.splits[split] - old.splits[split] == changes["added"][split] - changes["removed"][split]


def test_rows_that_moved_are_counted_and_copies_of_a_row_too(take: Take, backend: Backend) -> None:
    table = pa.table(
        {
            "x": [*range(90), 5, 5],
            "part": ["train"] * 30 + ["validation"] * 30 + ["test"] * 30 + ["train"] * 2,
            "label": [0] * 92,
        }
    )
    moved = table.set_column(1, "part", pa.array(["train"] * 35 + ["validation"] * 25 + ["test"] * 32))
    assert compare_rows(backend.store, take(table), take(table, seed=1)) is not None
    # The column that names the split is part of a row, but rows are compared without it.
    old, new = (
        take(rows.drop_columns(["part"]).append_column("part", rows["part"]), split_column="part")
        for rows in (table, moved)
    )
    changes = compare_rows(backend.store, old, new)
    assert changes is not None
    assert changes["added"] == {"test": 2, "train": 5, "validation": 0}
    assert changes["removed"] == {"test": 0, "train": 2, "validation": 5}
    by_seed = compare_rows(
        backend.store, take(images(500), name="images"), take(images(500), name="images", seed=1)
    )
    assert by_seed is not None
    assert (
        sum(count for _, _, count in by_seed["moved"])
        == sum(by_seed["added"].values())
        == sum(by_seed["removed"].values())
        > 100
    )


def test_manifests_alone_say_how_schema_columns_and_bytes_changed(take: Take) -> None:
    table = images(6_000)
    old = take(table, shard_mib=1)
    grown = take(pa.concat_tables([table, images(60, first=6_000)]), shard_mib=1)
    changes = compare(old.manifest, grown.manifest)
    assert changes["schema"] == {"added": {}, "removed": {}, "changed": {}}
    assert changes["splits"] == {split: [rows, grown.splits[split]] for split, rows in old.splits.items()}
    assert [bounds["max"] for bounds in changes["columns"]["id"]] == [5_999, 6_059]
    assert changes["bytes"]["shared"] == sum(
        entry[2] for split in old.splits for entry in old.manifest["shards"][split]
    )
    assert 0 < changes["bytes"]["new"] < 0.02 * changes["bytes"]["shared"]
    other = take(
        table.append_column("y", table["id"])
        .drop_columns(["pixels"])
        .set_column(0, "id", table["id"].cast(pa.int32())),
        redeal=True,
    )
    schema = compare(old.manifest, other.manifest)["schema"]
    assert schema == {
        "added": {"y": "int64"},
        "removed": {"pixels": "fixed_size_list<item: int32>[256]"},
        "changed": {"id": ["int64", "int32"]},
    }


def test_more_rows_than_memory_holds_are_not_compared(
    take: Take, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = take(images(500))
    new = take(images(600))
    monkeypatch.setattr(diff, "MAX_ROWS", 99)
    assert compare_rows(backend.store, old, new) is None
