"""A snapshot is its content: the same content is the same snapshot, splits are row numbers, DVC brings it back."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import Dataset, InvalidInput, NotFound, Store, StoreError
from halving.trial.import_string import import_function
from resources.backend import Backend
from resources.datasets import dvc_tracking, snapshots
from resources.datasets.snapshots import find_snapshot, snapshot_for, split_rows, take_snapshot
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.sweep import DatasetSource

POINTS = {"name": "points", "source": "tests.trainables:data", "target": "label"}


def source(**changes: Any) -> DatasetSource:
    return DatasetSource.model_validate({**POINTS, **changes})


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let the source return this, in place of the function that the spec names."""

    def use(content: Any) -> None:
        def load() -> Any:
            return content

        monkeypatch.setattr(snapshots, "import_function", lambda field, path: load)

    return use


def test_the_same_content_is_the_same_snapshot_wherever_and_whenever_it_is_taken(tmp_path: Path) -> None:
    here, there = Backend(root=str(tmp_path / "here")), Backend(root=str(tmp_path / "there"))
    first, again, other = (take_snapshot(backend.store, backend.catalog, source()) for backend in (here, here, there))
    assert first.digest == again.digest == other.digest
    assert (first.new, again.new, other.new) == (True, False, True)
    assert first.key == f"points@{first.digest.removeprefix('sha256:')[:16]}"


def test_other_rows_another_split_seed_or_another_target_are_another_snapshot(backend: Backend, provide: Callable[[Any], None]) -> None:
    table = import_function("source", POINTS["source"])()
    digests = [take_snapshot(backend.store, backend.catalog, source()).digest]
    digests.append(take_snapshot(backend.store, backend.catalog, source(seed=1)).digest)
    digests.append(take_snapshot(backend.store, backend.catalog, source(target="x")).digest)
    provide(table.slice(0, 89))
    digests.append(take_snapshot(backend.store, backend.catalog, source()).digest)
    assert len(set(digests)) == 4


@pytest.mark.parametrize("batch_bytes", [2**25, 800])
def test_how_the_table_was_built_does_not_matter(
    backend: Backend, provide: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(snapshots, "_BATCH_BYTES", batch_bytes)
    table = import_function("source", POINTS["source"])()
    whole = take_snapshot(backend.store, backend.catalog, source()).digest
    provide(pa.concat_tables([table.slice(0, 10), table.slice(10)]).replace_schema_metadata({"made": "today"}))
    assert take_snapshot(backend.store, backend.catalog, source()).digest == whole
    with_bitmaps = [pa.concat_arrays([pa.nulls(1, column.type), *column.chunks]).slice(1) for column in table.columns]
    provide(pa.table(with_bitmaps, table.column_names))
    assert take_snapshot(backend.store, backend.catalog, source()).digest == whole


def test_what_the_record_says_is_what_is_there(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    dataset = Dataset(backend.store, "points", snapshot.digest)
    assert snapshot.rows == 90 == dataset.read().num_rows
    assert snapshot.splits == {"train": 54, "validation": 18, "test": 18}
    folder = Path(backend.store.path(dataset.folder))
    assert snapshot.bytes == sum(file.stat().st_size for file in folder.rglob("*.arrow"))
    assert snapshot.source == POINTS["source"]
    assert len(snapshot.schema_sha256) == len(snapshot.transform_sha256) == 64
    assert dataset.manifest["schema"] == {"x": "double", "label": "string"}


def test_splits_share_no_row_and_together_are_all_rows(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    dataset = Dataset(backend.store, "points", snapshot.digest)
    rows = [row for split in dataset.splits for row in dataset.read(split)["x"].to_pylist()]
    assert sorted(rows) == sorted(dataset.read()["x"].to_pylist())


def test_a_table_is_written_in_batches_that_a_reader_can_hold(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = import_function("source", POINTS["source"])()
    monkeypatch.setattr(snapshots, "_BATCH_BYTES", whole.nbytes // 4)
    dataset = Dataset(backend.store, "points", take_snapshot(backend.store, backend.catalog, source()).digest)
    with backend.store.open_file(f"{dataset.folder}/data.arrow") as file:
        assert pa.ipc.open_file(file).num_record_batches == 5
    assert dataset.read().equals(whole)
    assert sum(dataset.read(split).num_rows for split in dataset.splits) == 90


def test_splits_are_row_numbers_not_copies(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    folder = Path(backend.store.path(Dataset(backend.store, "points", snapshot.digest).folder))
    for split in snapshot.splits:
        with pa.memory_map(str(folder / "splits" / f"{split}.arrow")) as file:
            assert pa.ipc.open_file(file).read_all().schema == pa.schema([("row", pa.int64())])


@given(
    rows=st.integers(3, 500),
    shares=st.lists(st.integers(1, 10), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_row_is_dealt_into_exactly_one_split_the_same_way_each_time(rows: int, shares: list[int], seed: int) -> None:
    given_shares = {f"split{index}": share / sum(shares) for index, share in enumerate(shares)}
    dealt = {name: split.tolist() for name, split in split_rows(rows, given_shares, seed).items()}
    assert sorted(row for split in dealt.values() for row in split) == list(range(rows))
    assert dealt == {name: split.tolist() for name, split in split_rows(rows, given_shares, seed).items()}
    for name, share in given_shares.items():
        assert abs(len(dealt[name]) - share * rows) <= 1


def test_the_shuffle_is_frozen_for_ever() -> None:
    dealt = split_rows(10, {"test": 0.3, "train": 0.7}, seed=0)
    assert {name: split.tolist() for name, split in dealt.items()} == {"test": [2, 4, 8], "train": [0, 1, 3, 5, 6, 7, 9]}


def test_a_folder_of_files_is_a_snapshot_with_a_row_for_each_file(backend: Backend, tmp_path: Path, provide: Callable[[Any], None]) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(5):
            (tmp_path / "images" / label / f"{number}.png").write_bytes(f"{label} {number}".encode())
    provide(str(tmp_path / "images"))
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    dataset = Dataset(backend.store, "points", snapshot.digest)
    rows = dataset.read().to_pylist()
    assert [row["label"] for row in rows] == ["cat"] * 5 + ["dog"] * 5
    assert dataset.file(rows[7]["path"]) == b"dog 2"


def test_a_file_of_the_source_that_is_called_like_our_manifest_is_content(
    backend: Backend, tmp_path: Path, provide: Callable[[Any], None]
) -> None:
    digests = []
    for content in ("one", "two"):
        folder = tmp_path / content
        (folder / "inner").mkdir(parents=True)
        for number in range(8):
            (folder / f"{number}.txt").write_text("same")
        (folder / "manifest.json").write_text(content)
        (folder / "inner" / "manifest.json").write_text("same")
        provide(str(folder))
        snapshot = take_snapshot(backend.store, backend.catalog, source())
        assert snapshot.rows == 10
        assert Dataset(backend.store, "points", snapshot.digest).file("manifest.json") == content.encode()
        digests.append(snapshot.digest)
    assert digests[0] != digests[1]


def test_a_push_that_failed_is_made_up_for_by_the_next_sweep(backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the remote should be")
    monkeypatch.setenv("HALVING_DVC_REMOTE", str(blocked))
    with pytest.raises(StoreError, match=f"DVC could not track .*check its remote .{blocked}"):
        take_snapshot(backend.store, backend.catalog, source())
    blocked.unlink()
    take_snapshot(backend.store, backend.catalog, source())
    assert [path for path in blocked.rglob("*") if path.is_file()]


def test_the_first_two_sweeps_of_a_store_may_track_at_once(tmp_path: Path) -> None:
    folders = [tmp_path / "datasets" / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a").write_text(folder.name)
    program = (
        "import sys; from pathlib import Path; from resources.datasets.dvc_tracking import track\n"
        "track(Path(sys.argv[1]).parent, Path(sys.argv[1]))"
    )
    both = [subprocess.Popen([sys.executable, "-c", program, str(folder)], stderr=subprocess.PIPE, text=True) for folder in folders]
    assert [(process.communicate()[1], process.returncode) for process in both] == [("", 0)] * 2
    assert all(Path(f"{folder}.dvc").exists() for folder in folders)


@pytest.mark.parametrize("released", [True, False])
def test_a_locked_project_is_waited_for_and_one_that_stays_locked_is_an_error(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    take_snapshot(backend.store, backend.catalog, source())
    monkeypatch.setattr(dvc_tracking, "_LOCK_SECONDS", 60.0 if released else 1.0)
    project = Path(backend.store.path("datasets"))
    holder = (
        "import sys; from dvc.repo import Repo; lock = Repo(sys.argv[1]).lock; lock.lock(); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        done: list[None] = []
        tracking = threading.Thread(target=lambda: done.append(dvc_tracking.track(project, next((project / "points").glob("*/")))))
        if released:
            tracking.start()
            holding.communicate()
            tracking.join()
            assert done == [None]
        else:
            with pytest.raises(StoreError, match="stays locked"):
                tracking.run()
            holding.kill()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (42, "dataset.source = 'tests.trainables:data' is not accepted: it returned int"),
        ("/nowhere/at/all", "'/nowhere/at/all', which is not a folder"),
        (pa.table({"x": [1]}), r"dataset.target = 'label' is not accepted: the columns are \['x'\]"),
        (pa.table({"label": ["a", "b"]}), "dataset.splits.* of 2 rows is empty; give it a larger share"),
    ],
)
def test_a_source_that_cannot_be_a_dataset_is_refused_by_field_and_value(
    backend: Backend, provide: Callable[[Any], None], content: Any, said: str
) -> None:
    provide(content)
    with pytest.raises(InvalidInput, match=said):
        take_snapshot(backend.store, backend.catalog, source())


def test_dvc_brings_a_lost_snapshot_back_from_its_remote(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    dataset = Dataset(backend.store, "points", snapshot.digest)
    folder, project = Path(backend.store.path(dataset.folder)), Path(backend.store.path("datasets"))
    before = dataset.read("train")
    shutil.rmtree(folder)
    shutil.rmtree(project / ".dvc" / "cache")
    subprocess.run([sys.executable, "-m", "dvc", "pull", "-q"], cwd=project, check=True)
    assert Dataset(backend.store, "points", snapshot.digest).read("train").equals(before)


def test_a_lost_snapshot_is_written_again_when_its_source_still_gives_it(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    shutil.rmtree(backend.store.path(Dataset(backend.store, "points", snapshot.digest).folder))
    assert take_snapshot(backend.store, backend.catalog, source()).digest == snapshot.digest
    assert Dataset(backend.store, "points", snapshot.digest).read("test").num_rows == 18


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
    assert snapshot_for(backend.store, backend.catalog, pinned).digest == taken.digest
    for wrong, says in (
        ({"snapshot": "sha256:" + "0" * 64}, "no dataset snapshot"),
        ({"snapshot": taken.digest, "dataset": {**dataset, "target": "x"}}, "with the target 'label', not of 'points' with 'x'"),
    ):
        with pytest.raises(InvalidInput, match=says):
            snapshot_for(backend.store, backend.catalog, small_spec(**wrong))


def test_a_snapshot_is_found_by_its_digest_or_by_the_beginning_of_one(backend: Backend, small_spec: Callable[..., SweepSpec]) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    for reference in (taken.digest, taken.key, f"points@{taken.digest}", taken.digest[:20], taken.key[:12]):
        assert find_snapshot(backend.catalog, reference).digest == taken.digest
    for reference in ("points", "points@", "other@" + taken.digest[7:], "sha256:", "points@%"):
        with pytest.raises(NotFound, match=taken.key):
            find_snapshot(backend.catalog, reference)
