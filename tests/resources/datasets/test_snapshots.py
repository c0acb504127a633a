"""A snapshot is its content: equal content is the same snapshot, and stored rows are not stored again.

Each shard is of one split.
"""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, InvalidInput, NotFound, Store, StoreError
from halving.data.shards import shards_of
from halving.trial.import_string import import_function
from resources.backend import Backend
from resources.datasets import canonical, dvc_tracking
from resources.datasets.shard_writing import ShardWriter
from resources.datasets.snapshot_catalog import Snapshot, dataset_of, deprecate, find_snapshot, read_snapshot
from resources.datasets.snapshots import find_or_take_snapshot, take_snapshot
from resources.datasets.spool import Spool
from resources.datasets.statistics import all_columns
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.dataset import DatasetSource

POINTS = {"name": "points", "source": "tests.trainables:data", "target": "label"}
MIB = 2**20


def source(**changes: Any) -> DatasetSource:
    return DatasetSource.model_validate({**POINTS, **changes})


def images(rows: int, first: int = 0) -> pa.Table:
    """Rows of 1 KiB, all different."""
    numbers = np.arange(first, first + rows)
    pixels = np.repeat(numbers[:, None], 256, axis=1) * 256 + np.arange(256)
    flat = pa.array(pixels.astype(np.int32).ravel())
    return pa.table(
        {"id": numbers, "pixels": pa.FixedSizeListArray.from_arrays(flat, 256), "label": numbers % 10}
    )


def open_dataset(backend: Backend, snapshot: Snapshot) -> Dataset:
    return Dataset(backend.store, snapshot.name, snapshot.digest)


def test_the_same_content_is_the_same_snapshot_wherever_and_whenever_it_is_taken(tmp_path: Path) -> None:
    here = Backend(root=str(tmp_path / "here"))
    there = Backend(root=str(tmp_path / "there"))
    first, again, other = (
        take_snapshot(backend.store, backend.catalog, source()) for backend in (here, here, there)
    )
    assert first.digest == again.digest == other.digest
    assert (first.new, again.new, other.new) == (True, False, True)
    assert first.key == f"points@{first.digest.removeprefix('sha256:')[:16]}"


def test_names_that_differ_by_case_alone_are_two_datasets(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    taken = {}
    for name in ("points", "Points"):
        taken[name] = [
            take_snapshot(backend.store, backend.catalog, provide(images(rows), name=name))
            for rows in (40, 50)
        ]
    assert len({snapshot.digest for snapshots in taken.values() for snapshot in snapshots}) == 4
    for name, both in taken.items():
        assert [find_snapshot(backend.catalog, f"{name}@{snapshot.digest}").name for snapshot in both] == [
            name,
            name,
        ]
        with pytest.raises(NotFound):
            find_snapshot(
                backend.catalog, f"{name.capitalize() if name.islower() else name.lower()}@{both[0].digest}"
            )


def test_other_rows_another_split_seed_or_another_target_are_another_snapshot(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    table = images(90)
    digests = []
    for content, changes in (
        (table, {}),
        (table, {"seed": 1}),
        (table, {"target": "id"}),
        (table.slice(0, 89), {}),
        (table.append_column("y", table["id"]), {}),
    ):
        digests.append(take_snapshot(backend.store, backend.catalog, provide(content, **changes)).digest)
    assert len(set(digests)) == 5


@pytest.mark.parametrize("batch_bytes", [2**22, 800])
def test_how_the_table_was_built_does_not_matter(
    backend: Backend, provide: Callable[..., DatasetSource], monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(canonical.rebatch, "__defaults__", (batch_bytes,))
    bits = pa.array([None if row % 7 == 0 else row % 3 == 0 for row in range(90)])
    inner = pa.array([None if row % 5 == 0 else {"a": row} for row in range(90)])
    table = (
        import_function("source", POINTS["source"])()
        .append_column("bits", bits)
        .append_column("inner", inner)
    )
    under_nulls = pa.StructArray.from_arrays(
        [pa.array(range(90))], ["a"], mask=pa.array([row % 5 == 0 for row in range(90)])
    )
    with_bitmaps = [
        pa.concat_arrays([pa.nulls(1, column.type), *column.chunks]).slice(1) for column in table.columns
    ]
    built = [
        table,
        pa.concat_tables([table.slice(0, 10), table.slice(10)]).replace_schema_metadata({"made": "today"}),
        iter(table.to_batches(max_chunksize=7)),
        pa.RecordBatchReader.from_batches(
            table.schema, table.slice(0, 13).to_batches() + table.slice(13).to_batches()
        ),
        pa.table(with_bitmaps, table.column_names),
        table.set_column(1, "label", table["label"].dictionary_encode()),
        table.set_column(3, "inner", under_nulls),
    ]
    digests = [take_snapshot(backend.store, backend.catalog, provide(content)).digest for content in built]
    assert digests == [digests[0]] * len(built)


def test_what_the_record_says_is_what_is_there(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source(), {"dagster_run": "r"})
    dataset = open_dataset(backend, snapshot)
    assert snapshot.rows == 90 == dataset.read().num_rows == sum(snapshot.splits.values())
    assert {split: dataset.read(split).num_rows for split in snapshot.splits} == snapshot.splits
    files = [
        path
        for path in Path(backend.store.path("shards/sha256")).rglob("*")
        if path.is_file() and not path.suffix
    ]
    assert snapshot.bytes == sum(file.stat().st_size for file in files)
    assert snapshot.source == POINTS["source"]
    assert len(snapshot.schema_sha256) == len(snapshot.transform_sha256) == 64
    assert dataset.manifest["schema"] == {"x": "double", "label": "string"}
    lineage = dataset.manifest["lineage"]
    assert "def data()" in lineage["code"]["source"]
    assert lineage["source"] == {"kind": "function", "function": "tests.trainables:data"}
    assert lineage["made_by"] == {"dagster_run": "r"}
    assert lineage["packages"]["pyarrow"] == pa.__version__
    held_out = dataset.read("test").to_pydict()
    assert dataset.manifest["statistics"]["test"] == {
        "x": {"nulls": 0, "min": min(held_out["x"]), "max": max(held_out["x"])},
        "label": {
            "nulls": 0,
            "min": "high",
            "max": "low",
            "classes": {name: held_out["label"].count(name) for name in ("high", "low")},
        },
    }


def test_splits_share_no_row_and_together_are_all_rows_in_the_order_of_the_source(backend: Backend) -> None:
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, source()))
    source_rows = import_function("source", POINTS["source"])()["x"].to_pylist()
    rows_of_splits = {split: dataset.read(split)["x"].to_pylist() for split in dataset.splits}
    assert sorted(row for rows in rows_of_splits.values() for row in rows) == sorted(source_rows)
    assert all(rows == [row for row in source_rows if row in rows] for rows in rows_of_splits.values())


def test_folds_are_read_as_train_and_validation(backend: Backend) -> None:
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, source(folds=3)))
    held_out = set(dataset.read("test")["x"].to_pylist())
    for fold in range(3):
        train, validation = (
            set(dataset.read(split, fold=fold)["x"].to_pylist()) for split in ("train", "validation")
        )
        assert not train & validation
        assert len(train) + len(validation) + len(held_out) == 90
    with pytest.raises(
        InvalidInput, match="fold = None is not accepted for the split 'train' of points: give one of 0 to 2"
    ):
        dataset.read("train")
    with pytest.raises(NotFound, match="dataset points has no fold 3; it has the folds 0 to 2"):
        dataset.read("train", fold=3)


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
    assert len(read) == (1 if named else 0), "no old file is read"
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
        stored = (
            pq.ParquetDataset(tmp_path / "raw").read(["id"]).num_rows
            if any((tmp_path / "raw").iterdir())
            else 0
        )
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
    files = 3 if grown else 2
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


def test_a_folder_of_files_is_a_snapshot_with_a_row_for_each_file(
    backend: Backend, tmp_path: Path, provide: Callable[..., DatasetSource]
) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(20):
            (tmp_path / "images" / label / f"{number}.png").write_bytes(f"{label} {number}".encode())
    snapshot = take_snapshot(backend.store, backend.catalog, provide(str(tmp_path / "images")))
    rows = {row["path"]: row for row in open_dataset(backend, snapshot).read().to_pylist()}
    assert len(rows) == 40
    assert {row["label"] for row in rows.values()} == {"cat", "dog"}
    assert rows["dog/2.png"]["content"] == b"dog 2"
    assert rows["dog/2.png"]["bytes"] == 5


def test_files_of_the_same_content_are_in_the_same_split(
    backend: Backend, tmp_path: Path, provide: Callable[..., DatasetSource]
) -> None:
    for copy in ("one", "two"):
        (tmp_path / "images" / copy).mkdir(parents=True)
        for number in range(40):
            (tmp_path / "images" / copy / f"{number}.png").write_bytes(f"image {number}".encode())
    dataset = open_dataset(
        backend, take_snapshot(backend.store, backend.catalog, provide(tmp_path / "images"))
    )
    contents = [set(dataset.read(split)["content"].to_pylist()) for split in dataset.splits]
    assert sum(map(len, contents)) == 40


@pytest.mark.usefixtures("with_dvc")
def test_a_push_that_failed_is_made_up_for_by_the_next_sweep(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the remote should be")
    monkeypatch.setenv("HALVING_DVC_REMOTE", str(blocked))
    with pytest.raises(StoreError, match=f"DVC could not track .*check its remote .{blocked}"):
        take_snapshot(backend.store, backend.catalog, source())
    blocked.unlink()
    take_snapshot(backend.store, backend.catalog, source())
    assert [path for path in blocked.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_two_first_sweeps_may_track_at_once_and_dvc_keeps_no_captured_stream(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / "datasets" / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a").write_text(folder.name)
    program = (
        "import io, logging, sys; from pathlib import Path; from resources.datasets.dvc_tracking import "
        "track\n"
        "own = sys.stdout, sys.stderr; sys.stdout = sys.stderr = captured = io.StringIO()\n"
        "try: track(Path(sys.argv[1]).parent, Path(sys.argv[1])); assert sys.stdout is sys.stderr is "
        "captured\n"
        "finally: sys.stdout, sys.stderr = own\n"
        "captured.close()\n"
        "logging.getLogger('dvc').warning('said later')"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(folder)], stderr=subprocess.PIPE, text=True)
        for folder in folders
    ]
    assert [(process.communicate()[1], process.returncode) for process in both] == [("said later\n", 0)] * 2
    assert all(Path(f"{folder}.dvc").exists() for folder in folders)


@pytest.mark.slow
@pytest.mark.usefixtures("with_dvc")
@pytest.mark.parametrize("released", [True, False])
def test_a_locked_project_is_waited_for_and_one_that_stays_locked_is_an_error(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    take_snapshot(backend.store, backend.catalog, source())
    monkeypatch.setattr(dvc_tracking, "_LOCK_SECONDS", 60.0 if released else 1.0)
    project = Path(backend.store.path("datasets"))
    holder = (
        "import sys; from dvc.repo import Repo; lock = Repo(sys.argv[1]).lock; lock.lock(); print('held', "
        "flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        done: list[None] = []
        tracking = threading.Thread(
            target=lambda: done.append(dvc_tracking.track(project, next((project / "points").glob("*/"))))
        )
        if released:
            tracking.start()
            holding.communicate()
            tracking.join()
            assert done == [None]
        else:
            with pytest.raises(StoreError, match="stays locked"):
                tracking.run()
            holding.kill()


def _raising() -> Any:
    yield pa.record_batch({"label": [1, 2]})
    raise KeyError("no such page")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            42,
            (
                "dataset.source = 'provided_source:load' is not accepted: it returned int; return a "
                "pyarrow.Table"
            ),
        ),
        (["a"], "is not accepted: it gave str among its rows; give pyarrow record batches"),
        ("/nowhere/at/all", "'/nowhere/at/all', which is not a folder"),
        (_raising, r"it raised KeyError at .*test_snapshots.py:\d+: 'no such page'"),
        (pa.table({"x": [1]}), r"dataset.target = 'label' is not accepted: the columns are \['x'\]"),
        (pa.table({"label": ["a", "b"]}), "dataset.splits.* of 2 rows is empty; give a larger share"),
        (pa.table({"label": pa.array([], pa.string())}), "is not accepted: it has no rows"),
        (pa.table({"label": [1], "x": pa.nulls(1)}), "its column 'x' has the type null; give numbers, texts"),
        (
            pa.table([[1], [2]], ["label", "label"]),
            r"its columns are \['label', 'label'\]; give each a name of its own",
        ),
        (
            iter([pa.record_batch({"label": [1]}), pa.record_batch({"y": [1]})]),
            "missing are .'label'., more are .'y'.",
        ),
        (
            iter([pa.record_batch({"label": [1]}), pa.record_batch({"label": ["x"]})]),
            "in the column 'label' the first rows are int64, later ones string; give all of them one type",
        ),
    ],
)
def test_a_source_that_cannot_be_a_dataset_is_refused_by_field_and_value(
    backend: Backend, provide: Callable[..., DatasetSource], content: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        take_snapshot(backend.store, backend.catalog, provide(content))
    assert list(backend.store.files("datasets")) == list(backend.store.files("shards")) == [], (
        "nothing is left"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("with_dvc")
def test_dvc_brings_a_lost_manifest_back_from_its_remote(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    dataset = open_dataset(backend, snapshot)
    folder = Path(backend.store.path(dataset.folder))
    project = Path(backend.store.path("datasets"))
    before = dataset.read("train")
    shutil.rmtree(folder)
    shutil.rmtree(project / ".dvc" / "cache")
    with pytest.raises(NotFound, match="`dvc pull` in its datasets folder brings it back"):
        open_dataset(backend, snapshot).read("train")
    subprocess.run([sys.executable, "-m", "dvc", "pull", "-q"], cwd=project, check=True)
    assert open_dataset(backend, snapshot).read("train").equals(before)


@pytest.mark.parametrize("lost", ["datasets/points", "shards/sha256"])
def test_what_is_lost_of_a_snapshot_is_written_again_when_its_source_still_gives_it(
    backend: Backend, lost: str
) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    shutil.rmtree(backend.store.path(lost))
    assert take_snapshot(backend.store, backend.catalog, source()).digest == snapshot.digest
    assert open_dataset(backend, snapshot).read("test").num_rows == snapshot.splits["test"]


def test_a_store_that_cannot_be_written_ends_in_one_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the store should be")
    with pytest.raises(OSError, match=str(blocked)):
        take_snapshot(Store(blocked), Backend(root=str(tmp_path / "other")).catalog, source())


def test_a_spec_that_names_a_snapshot_runs_on_it_and_its_source_is_not_asked(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    spec = small_spec()
    taken = take_snapshot(backend.store, backend.catalog, spec.dataset)
    dataset = {"name": "points", "source": "tests.trainables:data_raising", "target": "label"}
    pinned = small_spec(dataset=dataset, snapshot=taken.digest)
    assert find_or_take_snapshot(backend.store, backend.catalog, pinned).digest == taken.digest
    for wrong, says in (
        ({"snapshot": "sha256:" + "0" * 64}, "no dataset snapshot"),
        (
            {"snapshot": taken.digest, "dataset": {**dataset, "target": "x"}},
            "with the target 'label', not of 'points' with 'x'",
        ),
    ):
        with pytest.raises(InvalidInput, match=says):
            find_or_take_snapshot(backend.store, backend.catalog, small_spec(**wrong))


_DAYS = {"split_times": {"column": "day", "validation": "2026-01-01", "test": "2026-02-01"}}


@pytest.mark.parametrize("changes", [{"group": "label"}, {"split_column": "part"}, _DAYS])
def test_a_snapshot_with_other_rules_of_leaks_than_the_spec_is_refused(
    backend: Backend, small_spec: Callable[..., SweepSpec], changes: dict[str, Any]
) -> None:
    spec = small_spec()
    taken = take_snapshot(backend.store, backend.catalog, spec.dataset)
    dataset = {**spec.dataset.model_dump(mode="json", exclude_none=True), **changes}
    with pytest.raises(
        InvalidInput, match=f"it was taken with dataset.{next(iter(changes))} = .*leave snapshot out"
    ):
        find_or_take_snapshot(
            backend.store, backend.catalog, small_spec(dataset=dataset, snapshot=taken.digest)
        )


def test_a_snapshot_is_found_by_its_digest_or_by_the_beginning_of_one(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    for reference in (taken.digest, taken.key, f"points@{taken.digest}", taken.digest[:20], taken.key[:12]):
        assert find_snapshot(backend.catalog, reference).digest == taken.digest
    for reference in ("points", "points@", "other@" + taken.digest[7:], "sha256:", "points@%"):
        with pytest.raises(NotFound, match=taken.key):
            find_snapshot(backend.catalog, reference)


def test_the_dataset_of_a_snapshot_is_the_one_that_it_was_taken_by(backend: Backend) -> None:
    spec = source(splits={"train": 0.5, "validation": 0.2, "test": 0.3}, seed=3, group="x")
    snapshot = take_snapshot(backend.store, backend.catalog, spec)
    assert DatasetSource.model_validate(dataset_of(snapshot)) == spec


def test_nothing_is_launched_on_a_deprecated_snapshot_and_it_stays(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    deprecate(backend.catalog, taken.digest, "labels of May are wrong")
    with pytest.raises(
        InvalidInput,
        match=f"snapshot = '{taken.key}' is not accepted: it is deprecated: labels of May are wrong",
    ):
        find_or_take_snapshot(backend.store, backend.catalog, small_spec(snapshot=taken.digest))
    for spec in (small_spec(snapshot=taken.digest), small_spec()):
        assert (
            find_or_take_snapshot(backend.store, backend.catalog, spec, allow_deprecated=True).digest
            == taken.digest
        )
    assert open_dataset(backend, taken).read("test").num_rows == taken.splits["test"]
    deprecate(backend.catalog, taken.digest, None)
    assert find_or_take_snapshot(
        backend.store, backend.catalog, small_spec(snapshot=taken.digest)
    ) == replace(taken, new=False)
    assert read_snapshot(backend.catalog, taken.digest).deprecated is None


def test_a_spec_may_insist_on_a_schema(backend: Backend, small_spec: Callable[..., SweepSpec]) -> None:
    taken = take_snapshot(backend.store, backend.catalog, source())
    wanted = {**POINTS, "schema_sha256": taken.schema_sha256[:16]}
    assert (
        find_or_take_snapshot(backend.store, backend.catalog, small_spec(dataset=wanted)).digest
        == taken.digest
    )
    with pytest.raises(
        InvalidInput,
        match=r"dataset.schema_sha256 = '00000000' is not accepted: points@.* no snapshot of it had that one",
    ):
        find_or_take_snapshot(
            backend.store, backend.catalog, small_spec(dataset={**POINTS, "schema_sha256": "0" * 8})
        )


def test_a_loader_hands_out_the_rows_of_a_split_each_once(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    dataset = open_dataset(
        backend, take_snapshot(backend.store, backend.catalog, provide(images(6_000), shard_mib=1, folds=3))
    )
    held_out = dataset.read("test")["id"].to_pylist()
    for fold in (0, 2):
        loaded = {
            split: [
                number
                for batch in dataset.loader(split, batch_size=100, fold=fold, columns=["id", "pixels"])
                for number in batch["id"]
            ]
            for split in ("train", "validation")
        }
        assert sorted(loaded["validation"]) == sorted(dataset.read("validation", fold=fold)["id"].to_pylist())
        assert sorted([*loaded["train"], *loaded["validation"], *held_out]) == list(range(6_000))
    other = dataset.loader("train", batch_size=100, fold=1).state_dict()
    with pytest.raises(InvalidInput, match="split = 'train of fold 1' is not accepted"):
        dataset.loader("train", batch_size=100, fold=0).load_state_dict(other)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (
            pa.array([None, 1, 2, 3] * 100),
            "is of type int64 and has [0-9]+ nulls, for which NumPy has no value",
        ),
        (
            pa.array([None, True, False, True] * 100),
            "is of type bool and has [0-9]+ nulls, for which NumPy has no value",
        ),
        (
            pa.array([[1.0], [2.0, None], [], None] * 100),
            "is of type list<.*double> and has [0-9]+ nulls within its lists",
        ),
        (
            pa.array([[1, 2], [2, None]] * 200, pa.list_(pa.int64(), 2)),
            r"is of type fixed_size_list<.*\[2\] and has [0-9]+ nulls within its lists",
        ),
        (
            pa.array([b"a", b"caf\xe9", None, b"c"] * 100).view(pa.string()),
            "is of type string and has text that is not UTF-8: make it text or",
        ),
        (pa.array(["a", "café", None, "💡"] * 100, pa.large_string()), None),
        (pa.array([b"a", b"caf\xe9", None, b"c"] * 100), None),
        (pa.array([None, 0.5, float("nan"), 1.0] * 100), None),
        (pa.array([None, "a", "b", "c"] * 100), None),
        (pa.array([None, [1], [2, 3], []] * 100), None),
    ],
)
def test_a_loader_that_cannot_read_a_column_is_refused_when_it_is_opened(
    backend: Backend, provide: Callable[..., DatasetSource], values: pa.Array, what: str | None
) -> None:
    table = pa.table({"id": np.arange(400), "x": values, "label": np.arange(400) % 3})
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, provide(table)))
    if what is None:
        assert (
            sum(len(batch["x"]) for batch in dataset.loader("train", batch_size=32))
            == dataset.splits["train"]
        )
    else:
        with pytest.raises(InvalidInput, match=f"column 'x' of split 'train' of dataset points {what}"):
            dataset.loader("train", batch_size=32)


def test_snapshots_of_two_datasets_are_two_though_their_rows_are_equal(backend: Backend) -> None:
    first, second = (
        take_snapshot(backend.store, backend.catalog, source(name=name)) for name in ("points", "others")
    )
    assert (first.name, second.name) == ("points", "others")
    assert first.digest != second.digest
    shards = [open_dataset(backend, snapshot).manifest["shards"] for snapshot in (first, second)]
    assert shards[0] == shards[1], "which they share"


def test_nothing_is_launched_on_a_source_whose_snapshot_is_deprecated(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    deprecate(backend.catalog, taken.digest, "labels of May are wrong")
    with pytest.raises(InvalidInput, match=f"dataset = '{taken.key}' is not accepted: it is deprecated"):
        find_or_take_snapshot(backend.store, backend.catalog, small_spec())


def test_other_rules_of_dealing_are_still_compared_with_the_snapshot_before(backend: Backend) -> None:
    first, second = (take_snapshot(backend.store, backend.catalog, source(seed=seed)) for seed in (0, 1))
    assert open_dataset(backend, second).manifest["lineage"]["before"] == first.digest


def test_the_held_out_rows_are_the_same_with_folds_and_without(backend: Backend) -> None:
    unfolded, folded = (
        open_dataset(backend, take_snapshot(backend.store, backend.catalog, source(folds=folds)))
        for folds in (None, 4)
    )
    assert unfolded.read("test").equals(folded.read("test"))


def test_a_folder_by_reference_is_not_what_it_was_with_its_content(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(60):
        (tmp_path / "raw" / f"{number}.txt").write_text(str(number))
    columns = []
    for reference in (None, "digest"):
        fields = {"folder": str(tmp_path / "raw"), "reference": reference}
        snapshot = take_snapshot(backend.store, backend.catalog, source(source=fields))
        columns.append(set(open_dataset(backend, snapshot).manifest["schema"]))
    assert columns[0] ^ columns[1] == {"content", "location"}


def test_a_folders_files_may_be_transformed_into_other_columns(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(60):
        (tmp_path / "raw" / f"{number}.txt").write_text(str(number))
    spec = source(
        source={"folder": str(tmp_path / "raw")}, transform="tests.resources.datasets.test_snapshots:lengths"
    )
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, spec))
    assert sorted(dataset.read()["number"].to_pylist()) == list(range(60))


def lengths(table: pa.Table) -> pa.Table:
    return pa.table(
        {"number": [int(content) for content in table["content"].to_pylist()], "label": [0] * table.num_rows}
    )


def test_a_file_that_two_patterns_name_is_read_once(backend: Backend, tmp_path: Path) -> None:
    pq.write_table(images(300), tmp_path / "a.parquet")
    files = [f"{tmp_path}/*.parquet", f"{tmp_path}/a.parquet"]
    assert take_snapshot(backend.store, backend.catalog, source(source={"files": files})).rows == 300
