"""What is stored of a snapshot: equal cuts, each once, and little more than what was appended."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, Store
from halving.data.shards import shards_of
from resources.backend import Backend
from resources.datasets.shard_writing import ShardWriter
from resources.datasets.snapshot_catalog import Snapshot
from resources.datasets.snapshots import take_snapshot
from resources.datasets.spool import Spool
from resources.datasets.statistics import all_columns
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.specs import open_dataset, source
from tests.resources.datasets.tables import images

MIB = 2**20


def test_equal_shards_of_one_snapshot_are_stored_and_counted_once(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    rows = images(1).take([0] * 8_192)  # 8 MiB, in which every MiB is the same
    table = pa.concat_tables([rows, images(1, first=1), images(1, first=2)])
    table = table.append_column("part", pa.array(["train"] * 8_192 + ["validation", "test"]))
    dataset = open_dataset(
        backend,
        take_snapshot(backend.store, backend.catalog, provide(table, split_column="part", shard_mib=1)),
    )
    shards = [shard for split in dataset.splits for shard in shards_of(dataset.manifest, split)]
    assert len(shards) > len(set(shards)) >= 3
    assert dataset.manifest["stored"] == sum(shard.bytes for shard in set(shards))
    assert dataset.read("train").num_rows == 8_192


def test_stored_shards_take_no_second_place_on_the_disk_while_they_are_cut_again(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "store")
    rows = images(4_096)
    spool = Spool(tmp_path / "spool", rows.schema)
    for batch in rows.to_batches(max_chunksize=512):
        spool.append(batch, np.arange(batch.num_rows, dtype=np.uint64)[:, None])
    spool.complete()
    shards, _ = ShardWriter(store, tmp_path / "cutting", "label", "rules", MIB).cut(spool)
    assert len(shards) == 4
    again = ShardWriter(store, tmp_path / "cutting", "label", "rules", MIB)
    assert (again.cut(spool, again=shards)[0], again.stored) == (shards, 0)
    assert list((tmp_path / "cutting").iterdir()) == []


def test_shards_are_equal_cuts_of_one_split_each(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, provide(images(20_000), shard_mib=2))
    dataset = open_dataset(backend, snapshot)
    for split, rows in snapshot.splits.items():
        shards = shards_of(dataset.manifest, split)
        assert len(shards) == round(rows * 1040 / (2 * MIB)) > 1
        for field in ("rows", "bytes"):
            values = [getattr(shard, field) for shard in shards]
            assert max(abs(value / np.mean(values) - 1) for value in values) < 0.05
    assert dataset.read("train")["id"].to_pylist() == sorted(dataset.read("train")["id"].to_pylist())


@pytest.mark.parametrize("named", [True, False])
def test_what_is_appended_is_all_that_is_stored(
    backend: Backend, provide: Callable[..., DatasetSource], tmp_path: Path, named: bool
) -> None:
    """Old files are known by name, size and time, and not read; a function's rows are read and recognised."""

    def take(rows: int) -> Snapshot:
        if not named:
            return take_snapshot(backend.store, backend.catalog, provide(images(rows), shard_mib=1))
        (tmp_path / "raw").mkdir(exist_ok=True)
        for first in range(0, rows, 200):
            if not (path := tmp_path / "raw" / f"{first:06}.parquet").exists():
                pq.write_table(images(200, first), path)
        fields = {
            "name": "points",
            "target": "label",
            "shard_mib": 1,
            "source": {"files": str(tmp_path / "raw")},
        }
        return take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(fields))

    first = take(40_000)
    before = {name: open_dataset(backend, first).read(name)["id"].to_pylist() for name in first.splits}
    read: list[str] = []
    original = pq.ParquetFile.iter_batches

    def note(self: pq.ParquetFile, *args: Any, **kwargs: Any) -> Any:
        read.append("a file")
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", note)
        second = take(40_200)
    assert len(read) == int(named), "no old file is read"
    manifest = open_dataset(backend, second).manifest
    assert manifest["stored"] <= 1.5 * 0.005 * second.bytes
    assert manifest["lineage"]["before"] == first.digest
    for split, ids in before.items():
        now = open_dataset(backend, second).read(split)["id"].to_pylist()
        assert now[: len(ids)] == ids
        assert now[len(ids) :] == [number for number in now if number >= 40_000]
    statistics = manifest["statistics"]
    assert sum(statistics[split]["label"]["classes"]["3"] for split in statistics) == 4_020
    assert max(statistics[split]["id"]["max"] for split in statistics) == 40_199
    third = open_dataset(backend, take(41_200)).manifest
    assert {split: len(shards) for split, shards in third["shards"].items()} == {
        split: len(shards) for split, shards in manifest["shards"].items()
    }, "what is small beside what comes is merged with it"
    assert sum(third["statistics"][split]["label"]["classes"]["3"] for split in statistics) == 4_120
    assert take(41_200).new is False


@pytest.mark.parametrize("named", [True, False])
def test_each_of_twenty_appends_of_a_hundredth_stores_little_more_than_it_adds(
    backend: Backend, provide: Callable[..., DatasetSource], tmp_path: Path, named: bool
) -> None:
    def take(rows: int) -> Dataset:
        if not named:
            return open_dataset(
                backend, take_snapshot(backend.store, backend.catalog, provide(images(rows), shard_mib=1))
            )
        (tmp_path / "raw").mkdir(exist_ok=True)
        stored = sum(pq.read_metadata(file).num_rows for file in (tmp_path / "raw").iterdir())
        pq.write_table(images(rows - stored, stored), tmp_path / "raw" / f"{rows:06}.parquet")
        source = {
            "name": "points",
            "target": "label",
            "shard_mib": 1,
            "source": {"files": str(tmp_path / "raw")},
        }
        return open_dataset(
            backend, take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(source))
        )

    rows = 5_000
    dataset = take(rows)
    for _ in range(20):
        before = dataset.manifest["bytes"]
        rows += rows // 100
        dataset = take(rows)
        assert dataset.manifest["stored"] <= 0.015 * before
    assert dataset.read().sort_by("id").equals(images(rows))
    classes = [of_split["label"]["classes"] for of_split in dataset.manifest["statistics"].values()]
    assert sum(sum(counts.values()) for counts in classes) == rows


@pytest.mark.parametrize("grown", [False, True])
def test_a_snapshot_counted_by_other_rules_is_read_again_once_and_no_row_moves(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grown: bool
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    source = DatasetSource.model_validate(
        {"name": "points", "target": "label", "source": {"files": str(folder)}}
    )

    def take() -> Snapshot:
        return take_snapshot(backend.store, backend.catalog, source)

    def write(name: str, first: int) -> None:
        numbers = np.arange(first, first + 200)
        values = np.where(numbers % 10 == 0, np.nan, numbers)
        pairs = pa.array([[number, None if number % 50 == 0 else 1] for number in numbers.tolist()])
        pq.write_table(
            pa.table({"id": numbers, "x": values, "pair": pairs, "label": numbers % 3}), folder / name
        )

    write("a.parquet", 0)
    with monkeypatch.context() as patch:
        patch.setattr("resources.datasets.manifest._RULES", 1)
        former = take()
    before = {name: open_dataset(backend, former).read(name)["id"].to_pylist() for name in former.splits}
    if grown:
        write("b.parquet", 200)
    now = take()
    manifest = open_dataset(backend, now).manifest
    assert now.digest != former.digest
    assert take().digest == now.digest
    assert not take().new
    assert {
        name: open_dataset(backend, now).read(name)["id"].to_pylist()[: len(ids)]
        for name, ids in before.items()
    } == before
    assert grown or manifest["stored"] == 0, "its shards are those that are there"
    write("c.parquet", 400)
    added = all_columns(open_dataset(backend, take()).manifest)
    files = 2 + int(grown)
    assert added["x"]["nulls"] == 20 * files, "what is appended is added to what was counted"
    assert added["pair"] == {"nulls": 0, "null_items": 4 * files, "min": 0, "max": 599}


def test_a_source_that_went_back_is_the_snapshot_that_it_was(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    first, _, again = (
        take_snapshot(backend.store, backend.catalog, provide(images(rows), shard_mib=1))
        for rows in (3_000, 3_500, 3_000)
    )
    assert again.digest == first.digest


def test_rows_in_another_order_are_in_the_same_splits(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    table = images(3_000)
    first = take_snapshot(backend.store, backend.catalog, provide(table, shard_mib=1))
    turned = take_snapshot(
        backend.store, backend.catalog, provide(table.take(np.arange(3_000)[::-1]), shard_mib=1)
    )
    assert first.digest != turned.digest
    for split in first.splits:
        ascending, reordered = (
            set(open_dataset(backend, snapshot).read(split)["id"].to_pylist()) for snapshot in (first, turned)
        )
        assert ascending == reordered


@pytest.mark.parametrize("lost", ["datasets/points", "shards/sha256"])
def test_what_is_lost_of_a_snapshot_is_written_again_when_its_source_still_gives_it(
    backend: Backend, lost: str
) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    shutil.rmtree(backend.store.path(lost))
    assert take_snapshot(backend.store, backend.catalog, source()).digest == snapshot.digest
    assert open_dataset(backend, snapshot).read("test").num_rows == snapshot.splits["test"]
