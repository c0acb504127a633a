"""A snapshot that the catalog lacks is registered by the dataset's next one, with its whole row."""

import json
import shutil
import threading
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, Store
from halving.doctor.checks import OK, WARNING, Check, examine
from resources.backend import Backend
from resources.catalog import SnapshotRow
from resources.datasets import registration
from resources.datasets.registration import adopt, find_unregistered
from resources.datasets.shard_copies import verify
from resources.datasets.snapshot_catalog import Snapshot, deprecate, list_snapshots
from resources.datasets.snapshots import take_snapshot
from resources.doctor.consistency_checks import check_snapshots
from resources.sweep_spec.dataset import DatasetSource

Grow = Callable[[], Snapshot]


def table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": numbers,
            "text": [f"text {number}" for number in numbers],
            "label": [number % 3 for number in numbers],
        }
    )


@pytest.fixture
def grow(backend: Backend, tmp_path: Path) -> Grow:
    """Takes a snapshot of files; each call adds a file."""
    (tmp_path / "raw").mkdir()
    source = DatasetSource.model_validate(
        {"name": "points", "source": {"files": f"{tmp_path}/raw/*.parquet"}, "target": "label"}
    )

    def take() -> Snapshot:
        number = len(list((tmp_path / "raw").iterdir()))
        pq.write_table(table(300 * number, 300), tmp_path / "raw" / f"{number}.parquet")
        return take_snapshot(backend.store, backend.catalog, source)

    return take


def lose_row(backend: Backend, digest: str) -> None:
    with backend.catalog.write() as session:
        session.delete(session.get_one(SnapshotRow, digest))


def manifest_file(backend: Backend, snapshot: Snapshot) -> Path:
    return Path(
        backend.store.path(f"{Dataset(backend.store, snapshot.name, snapshot.digest).folder}/manifest.json")
    )


def change_manifest(backend: Backend, snapshot: Snapshot, **changes: Any) -> None:
    file = manifest_file(backend, snapshot)
    manifest = json.loads(file.read_bytes()) | changes
    file.unlink()
    file.write_text(json.dumps({name: value for name, value in manifest.items() if value is not None}))


def facts_of(snapshots: list[Snapshot]) -> list[tuple[Any, ...]]:
    return [
        (
            snapshot.digest,
            snapshot.rows,
            snapshot.splits,
            snapshot.source,
            snapshot.recipe,
            snapshot.transform_sha256,
            snapshot.deprecated,
        )
        for snapshot in snapshots
    ]


@pytest.mark.parametrize("lost", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2], []], ids=str)
def test_rows_that_are_lost_come_back_in_order_with_the_next_snapshot(
    backend: Backend, grow: Grow, lost: list[int]
) -> None:
    before = [grow() for _ in range(3)]
    rows = list_snapshots(backend.catalog, "points")
    for number in lost:
        lose_row(backend, before[number].digest)
    newest = grow()
    listed = list_snapshots(backend.catalog, "points")
    assert facts_of(listed[:3]) == facts_of(rows)
    assert [snapshot.digest for snapshot in listed] == [
        *(snapshot.digest for snapshot in before),
        newest.digest,
    ]
    for number in lost:
        made_at = json.loads(manifest_file(backend, before[number]).read_bytes())["lineage"]["made_at"]
        assert listed[number].created_at == datetime.fromisoformat(made_at)
    manifest = Dataset(backend.store, "points", newest.digest).manifest
    assert manifest["lineage"]["before"] == before[-1].digest, (
        "the one that was lost is what the next builds on"
    )
    assert list(filter(None, verify(Dataset(backend.store, "points", before[-1].digest)))) == []


def test_rows_that_are_lost_leave_no_file_to_be_read_again(
    backend: Backend, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_row(backend, grow().digest)
    read: list[str] = []
    opened = pq.ParquetFile

    def count_calls(file: Any, *arguments: Any, **named: Any) -> pq.ParquetFile:
        read.append(str(getattr(file, "name", file)))
        return opened(file, *arguments, **named)

    monkeypatch.setattr(pq, "ParquetFile", count_calls)
    taken = grow()
    assert taken.rows == 600
    assert [name for name in read if name.endswith("raw/0.parquet")] == [], (
        "the lost row's code and parts are those of the manifest"
    )


def test_a_lost_snapshot_still_says_by_which_columns_rows_are_dealt(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    first = take_snapshot(backend.store, backend.catalog, provide(table(0, 600)))
    lose_row(backend, first.digest)
    wider = table(0, 600).append_column("more", pa.array([number * 7 % 11 for number in range(600)]))
    second = take_snapshot(backend.store, backend.catalog, provide(wider))
    manifest = Dataset(backend.store, "points", second.digest).manifest
    assert manifest["key"] == ["id", "text"]
    assert second.splits == first.splits


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_snapshot_with_the_former_word_for_its_rules_is_appended_to(
    backend: Backend, grow: Grow, is_registered: bool
) -> None:
    first = grow()
    rules = Dataset(backend.store, first.name, first.digest).manifest["hash_rules"]
    change_manifest(backend, first, hash_rules=None, hashes=rules)
    if not is_registered:
        lose_row(backend, first.digest)
    second = grow()
    manifest = Dataset(backend.store, "points", second.digest).manifest
    assert (manifest["hash_rules"], manifest["lineage"]["before"]) == (rules, first.digest)
    assert second.rows == 600


MANGLED: dict[str, dict[str, Any]] = {
    "another name": {"name": "others"},
    "another digest": {"digest": "sha256:" + "0" * 64},
    "no digest": {"digest": None},
    "a digest that is no text": {"digest": 5},
    "other rows": {"rows": 301},
    "other splits": {"splits": {"train": 300}},
    "no shards, as an older version": {"shards": None},
    "shards that are none": {"shards": {"train": [["abc"]]}},
    "no recipe": {"recipe": None},
    "a recipe of another version": {"recipe": {"name": "points", "sauce": "m:load", "target": "label"}},
    "no lineage": {"lineage": None},
    "a time that is none": {"lineage": {"made_at": "yesterday"}},
    "no hashes": {"hash_rules": None},
    "bytes that are no number": {"bytes": "many"},
    "a target that is no text": {"target": ["label"]},
}


@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in MANGLED.items()])
def test_a_manifest_that_cannot_be_read_is_left_alone_and_told(
    backend: Backend, grow: Grow, changes: dict[str, Any]
) -> None:
    mangled = grow()
    other = grow()
    change_manifest(backend, mangled, **changes)
    content = manifest_file(backend, mangled).read_bytes()
    for snapshot in (mangled, other):
        lose_row(backend, snapshot.digest)
    findings = list(check_snapshots(backend.store, backend.catalog))
    assert [finding.level for finding in findings] == [WARNING, WARNING]
    assert "points/" + mangled.key.partition("@")[2] in findings[0].what
    with pytest.warns(UserWarning, match="is ignored, and no snapshot is listed for it"):
        newest = grow()
    assert [snapshot.digest for snapshot in list_snapshots(backend.catalog)] == [other.digest, newest.digest]
    assert manifest_file(backend, mangled).read_bytes() == content
    assert [finding.level for finding in check_snapshots(backend.store, backend.catalog)] == [WARNING]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b'{"name": "points"}', b'"text"']
)
def test_a_manifest_that_is_no_mapping_is_left_alone_and_told(
    backend: Backend, grow: Grow, content: bytes
) -> None:
    damaged = grow()
    file = manifest_file(backend, damaged)
    file.unlink()
    file.write_bytes(content)
    lose_row(backend, damaged.digest)
    with pytest.warns(UserWarning, match="is ignored"):
        newest = grow()
    assert [snapshot.digest for snapshot in list_snapshots(backend.catalog)] == [newest.digest]


@pytest.mark.parametrize(
    "name", ["0123456789abcdef", "0123456789ABCDEF", "notes", "0123", ".dvc", "0123456789abcdef.dvc"]
)
def test_folders_without_a_manifest_are_none_of_ours(backend: Backend, grow: Grow, name: str) -> None:
    grow()
    folder = Path(backend.store.path(f"datasets/points/{name}"))
    folder.mkdir()
    (folder / "parts.parquet").write_bytes(b"of a snapshot that was killed before its manifest was written")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adopt(backend.store, backend.catalog, "points") == []
        assert [finding.level for finding in check_snapshots(backend.store, backend.catalog)] == [OK]


def test_a_manifest_without_the_digest_of_its_code_is_registered_and_read_again(
    backend: Backend, grow: Grow
) -> None:
    lost = grow()
    change_manifest(backend, lost, code_sha256=None)
    lose_row(backend, lost.digest)
    assert grow().rows == 600
    assert list_snapshots(backend.catalog)[0].transform_sha256 == ""


def test_what_the_catalog_knows_stays_as_it_is(backend: Backend, grow: Grow) -> None:
    first = grow()
    second = grow()
    deprecate(backend.catalog, first.digest, "it has wrong labels")
    lose_row(backend, second.digest)
    rows = list_snapshots(backend.catalog)
    assert [snapshot.digest for snapshot in adopt(backend.store, backend.catalog, "points")] == [
        second.digest
    ]
    assert list_snapshots(backend.catalog)[:1] == rows
    assert adopt(backend.store, backend.catalog, "points") == []


def test_where_nothing_is_lost_one_folder_is_listed_and_no_manifest_is_read(
    backend: Backend, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        grow()
    calls: list[tuple[str, str]] = []
    for method in ("names", "read"):
        original = getattr(Store, method)

        def count_calls(store: Store, name: str, method: str = method, original: Any = original) -> Any:
            calls.append((method, name))
            return original(store, name)

        monkeypatch.setattr(Store, method, count_calls)
    assert find_unregistered(backend.store, backend.catalog, "points").manifests == []
    assert calls == [("names", "datasets/points")]


def test_several_that_register_the_same_lost_snapshots_at_once_have_each_once(
    backend: Backend, grow: Grow
) -> None:
    lost = [grow() for _ in range(3)]
    for snapshot in lost:
        lose_row(backend, snapshot.digest)
    together = threading.Barrier(4)
    adopted: list[list[Snapshot]] = []

    def adopt_all() -> None:
        together.wait()
        adopted.append(adopt(backend.store, Backend(root=backend.store.root).catalog, "points"))

    threads = [threading.Thread(target=adopt_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(adopted) == 4, "none has failed"
    new = [snapshot.digest for of_one in adopted for snapshot in of_one if snapshot.new]
    assert sorted(new) == sorted(snapshot.digest for snapshot in lost)
    assert [snapshot.digest for snapshot in list_snapshots(backend.catalog)] == [
        snapshot.digest for snapshot in lost
    ]


def test_a_snapshot_of_any_store_is_registered_in_a_new_catalog(
    any_store: Store, tmp_path: Path, catalog_file: Path, provide: Callable[..., DatasetSource]
) -> None:
    catalogs = []
    for name in ("old", "new"):
        shutil.copy(catalog_file, tmp_path / f"{name}.db")
        catalogs.append(Backend(root=str(tmp_path), catalog_url=f"sqlite:///{tmp_path}/{name}.db").catalog)
    old, new = catalogs
    digests = [
        take_snapshot(any_store, old, provide(table(0, rows), group="id")).digest for rows in (300, 600)
    ]
    newest = take_snapshot(any_store, new, provide(table(0, 900), group="id"))
    assert [snapshot.digest for snapshot in list_snapshots(new)] == [*digests, newest.digest]
    assert facts_of(list_snapshots(new))[:2] == facts_of(list_snapshots(old))


def test_a_snapshot_whose_shard_is_lost_beside_a_remote_does_not_stop_the_next(
    backend: Backend, provide: Callable[..., DatasetSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = take_snapshot(backend.store, backend.catalog, provide(table(0, 300), group="id"))
    dataset = Dataset(backend.store, "points", lost.digest)
    backend.store.delete(dataset.shards("test")[0].name)
    lose_row(backend, lost.digest)
    monkeypatch.setenv("HALVING_DVC_REMOTE", str(tmp_path / "remote"))
    with pytest.warns(UserWarning, match="is ignored, and no snapshot is listed for it"):
        newest = take_snapshot(backend.store, backend.catalog, provide(table(1_000, 300), group="id"))
    assert [snapshot.digest for snapshot in list_snapshots(backend.catalog)] == [newest.digest]


def test_doctor_tells_what_the_catalog_lacks_and_registers_it(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    def levels() -> list[str]:
        return [finding.level for finding in check_snapshots(backend.store, backend.catalog)]

    assert levels() == [OK], "there is no dataset"
    taken = [
        take_snapshot(backend.store, backend.catalog, provide(table(0, 300), name=name, group="id"))
        for name in ("ants", "bees")
    ]
    taken.append(
        take_snapshot(backend.store, backend.catalog, provide(table(0, 400), name="bees", group="id"))
    )
    assert levels() == [OK]
    for snapshot in taken:
        lose_row(backend, snapshot.digest)
    (finding,) = check_snapshots(backend.store, backend.catalog)
    assert finding.level == WARNING
    assert finding.what == "the store has 3 snapshots that the catalog lacks: 1 of ants, 2 of bees"
    assert list_snapshots(backend.catalog) == [], "a look changes nothing"
    repaired = [
        finding
        for _, finding in examine(
            [Check("snapshots", lambda: check_snapshots(backend.store, backend.catalog))], repair=True
        )
    ]
    assert any(all(snapshot.key in finding.repaired for snapshot in taken) for finding in repaired)
    assert [snapshot.digest for snapshot in list_snapshots(backend.catalog)] == [
        snapshot.digest for snapshot in taken
    ]
    assert levels() == [OK]


@pytest.mark.usefixtures("with_dvc")
def test_a_snapshot_that_is_registered_late_is_tracked_by_dvc_as_well(
    backend: Backend, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(registration, "track", lambda project, folder: None)
        lost = grow()
    lose_row(backend, lost.digest)
    tracked = manifest_file(backend, lost).parent.with_suffix(".dvc")
    assert not tracked.exists()
    adopt(backend.store, backend.catalog, "points")
    assert tracked.exists()
