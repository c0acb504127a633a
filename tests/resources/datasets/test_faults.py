"""A snapshot that is killed at any point is invisible, and the next one is complete.

Damaged shards are named and fetched.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset, Store
from halving.data.shards import checked_shard, shards_of
from halving.maintenance.orphan_files import delete_orphan_file, find_orphan_files
from resources.backend import Backend
from resources.datasets import shard_copies
from resources.datasets.scratch_folder import scratch_folder
from resources.datasets.snapshot_catalog import list_snapshots
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.image_dataset import SPEC, take
from tests.resources.datasets.tables import images
from tests.s3 import S3

# Each entry is a process that takes the snapshot, and kills itself at the numbered call of a function. They
# are forked from a process that has imported everything.
_KILLED = """
import json, os, signal, sys
from halving import Store
from resources.backend import Backend
from resources.catalog import Catalog
from resources.datasets import registration, shard_writing, snapshots, spool
from resources.sweep_spec.dataset import DatasetSource

owners = {"write": (Catalog, "write"), "read_snapshot": (registration, "read_snapshot"),
    "append": (spool.Spool, "append"), "complete": (spool.Spool, "complete"),
    "take_over": (Store, "take_over"),
    "create": (Store, "create"), "replace": (Store, "replace"), "track": (registration, "track"),
    "hashes": (shard_writing.ShardWriter, "_publish_hashes")}

def take(root, function, left, spec):
    owner, name = owners[function]
    original = getattr(owner, name)

    def killed(*arguments, **named):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, name, killed)
    backend = Backend(**root)
    snapshots.take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(spec))

for root, function, call, spec in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        take(root, function, call, spec)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
_CALLS = [
    ("append", 1),
    ("append", 5),
    ("complete", 2),
    ("hashes", 2),
    ("take_over", 1),
    ("take_over", 6),
    ("create", 1),
    ("track", 1),
]


def kill_in_processes(kills: list[tuple[dict[str, str], str, int, dict[str, Any]]]) -> None:
    """Take snapshots in processes that kill themselves at a call of a function.

    Each entry has the backend, the function, the number of the call and the spec.
    """
    done = subprocess.run([sys.executable, "-c", _KILLED, json.dumps(kills)], capture_output=True, text=True)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * len(kills), done.stderr


@pytest.mark.slow
def test_a_snapshot_that_is_killed_anywhere_is_taken_whole_by_the_next(
    tmp_path: Path, catalog_file: Path
) -> None:
    roots = {tmp_path / f"{function} {call}": (function, call) for function, call in _CALLS}
    for root in roots:
        root.mkdir()
        shutil.copy(catalog_file, root / "catalog.db")
    kill_in_processes([({"root": str(root)}, *killed_at, SPEC) for root, killed_at in roots.items()])
    elsewhere = take(Backend(root=str(tmp_path / "other")))
    for root in roots:
        backend = Backend(root=str(root))
        assert list_snapshots(backend.catalog) == [], "what was not finished is not known"
        dataset = take(backend)
        assert dataset.read().sort_by("id").equals(images(6_000))
        assert dataset.digest == elsewhere.digest
        left = {path.name for path in (root / "shards").iterdir()}
        assert left == {"sha256"}, "what was being made is gone"


@pytest.mark.slow
def test_an_append_that_is_killed_anywhere_is_made_whole_by_the_next(
    tmp_path: Path, catalog_file: Path
) -> None:
    """It reads only the new file, merges a small shard, and writes its two files, the catalog and DVC's."""

    def spec(root: Path) -> dict[str, Any]:
        return {"name": "points", "source": {"files": f"{root}/raw"}, "target": "label", "shard_mib": 1}

    def append(root: Path) -> Dataset:
        backend = Backend(root=str(root))
        snapshot = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(spec(root)))
        return Dataset(backend.store, snapshot.name, snapshot.digest)

    calls = [
        ("append", 1),
        ("append", 3),
        ("complete", 1),
        ("complete", 2),
        ("hashes", 2),
        ("take_over", 1),
        ("take_over", 4),
    ]
    calls += [("create", 1), ("create", 2), ("track", 1), ("write", 1), ("read_snapshot", 1)]
    roots = {tmp_path / f"{function} {call}": (function, call) for function, call in calls}
    for root in (*roots, tmp_path / "other"):
        (root / "raw").mkdir(parents=True)
        shutil.copy(catalog_file, root / "catalog.db")
        pq.write_table(images(700), root / "raw" / "0.parquet")
        append(root)
        pq.write_table(images(3_000, 700), root / "raw" / "1.parquet")
    kill_in_processes([({"root": str(root)}, *killed_at, spec(root)) for root, killed_at in roots.items()])
    elsewhere = append(tmp_path / "other")
    for root, (function, _) in roots.items():
        backend = Backend(root=str(root))
        assert len(list_snapshots(backend.catalog)) == 1 + (function == "read_snapshot")
        dataset = append(root)
        assert dataset.digest == elsewhere.digest
        assert dataset.read().sort_by("id").equals(images(3_700))
        assert len(list_snapshots(backend.catalog)) == 2
        assert {path.name for path in (root / "shards").iterdir()} == {"sha256"}, (
            "what was being made is gone"
        )


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["more rows", "other rows"])
def test_a_snapshot_killed_before_its_registration_is_listed_if_its_source_changed(
    tmp_path: Path, catalog_file: Path, changed: str
) -> None:
    def spec(root: Path) -> dict[str, Any]:
        return {
            "name": "points",
            "source": {"files": f"{root}/raw"},
            "target": "label",
            "group": "id",
            "shard_mib": 1,
        }

    roots = {tmp_path / function: function for function in ("track", "write")}
    for root in roots:
        (root / "raw").mkdir(parents=True)
        shutil.copy(catalog_file, root / "catalog.db")
        pq.write_table(images(700), root / "raw" / "0.parquet")
    kill_in_processes([({"root": str(root)}, function, 1, spec(root)) for root, function in roots.items()])
    for root in roots:
        backend = Backend(root=str(root))
        assert list_snapshots(backend.catalog) == []
        (killed,) = backend.store.names("datasets/points")[:1]
        if changed == "more rows":
            pq.write_table(images(300, 700), root / "raw" / "1.parquet")
        else:
            pq.write_table(images(800, 5_000), root / "raw" / "0.parquet")
        newest = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(spec(root)))
        first, second = list_snapshots(backend.catalog)
        assert (first.key, second.digest) == (f"points@{killed}", newest.digest)
        dataset = Dataset(backend.store, "points", first.digest)
        assert dataset.read().sort_by("id").equals(images(700))
        assert list(filter(None, shard_copies.verify(dataset))) == []
        assert Dataset(backend.store, "points", newest.digest).manifest["lineage"]["before"] == first.digest


@pytest.mark.slow
def test_a_snapshot_that_is_killed_anywhere_on_s3_is_taken_whole_by_the_next(
    tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    calls = [("append", 5), ("complete", 2), ("take_over", 1), ("take_over", 6), ("create", 1), ("write", 1)]
    backends = [
        {"root": s3.root(f"{function}-{call}"), "catalog_url": f"sqlite:///{tmp_path}/{function}-{call}.db"}
        for function, call in calls
    ]
    for backend in backends:
        Backend(**backend).catalog.close()
    kill_in_processes(
        [(backend, *killed_at, SPEC) for backend, killed_at in zip(backends, calls, strict=True)]
    )
    elsewhere = take(Backend(root=str(tmp_path / "other")))
    for backend in backends:
        assert list_snapshots(Backend(**backend).catalog) == []
        dataset = take(Backend(**backend))
        assert dataset.digest == elsewhere.digest
        assert dataset.read().sort_by("id").equals(images(6_000))
    assert list(tmp_path.glob("halving-snapshots-*/*")) == [], "what was being made is gone"


@pytest.mark.slow
def test_a_snapshot_killed_while_it_is_copied_to_the_remote_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Store(tmp_path / "remote")
    monkeypatch.setenv("HALVING_DVC_REMOTE", remote.root)
    root = {"root": str(tmp_path / "store")}
    kill_in_processes([(root, "replace", 3, SPEC)])
    assert 0 < len(list(remote.files("shards"))) < 6
    dataset = take(Backend(**root))
    copied = [
        checked_shard(remote, shard) for split in sorted(dataset.splits) for shard in dataset.shards(split)
    ]
    assert pa.concat_tables(copied).sort_by("id").equals(images(6_000))


def test_shards_of_a_killed_snapshot_go_after_a_week_unless_one_has_them(backend: Backend) -> None:
    kept = take(backend)
    orphan = backend.store.path("shards/sha256/ab/" + "ab" * 32)
    Path(orphan).parent.mkdir(exist_ok=True)
    for name in (orphan, f"{orphan}.0123abcd.rows"):
        Path(name).write_bytes(b"of a snapshot that was killed")
    for days, expected in (
        (6.9, []),
        (7.1, ["shards/sha256/ab/" + "ab" * 32, "shards/sha256/ab/" + "ab" * 32 + ".0123abcd.rows"]),
    ):
        now = datetime.now(UTC) + timedelta(days=days)
        orphans = [
            shard_file
            for shard_file in find_orphan_files(backend.store, (), now)
            if shard_file.name.startswith("shards")
        ]
        assert sorted(shard_file.name for shard_file in orphans) == expected
    for shard_file in orphans:
        delete_orphan_file(backend.store, shard_file, now)
    assert not Path(orphan).exists()
    assert kept.read().num_rows == 6_000


@pytest.mark.slow
def test_a_shard_that_is_taken_again_is_not_deleted_meanwhile(backend: Backend) -> None:
    """A killed snapshot left it, and it is old; retention is about to delete it when a snapshot uses it."""
    dataset = take(backend)
    shard = shards_of(dataset.manifest, "test")[0]
    names = [shard.name, shard.row_hashes_name(dataset.manifest["hash_rules"])]
    for name in names:
        os.utime(backend.store.path(name), (time.time() - 864_000,) * 2)
    for folder in ("datasets", "catalog.db"):
        subprocess.run(["rm", "-r", backend.store.path(folder)], check=True)
    now = datetime.now(UTC)
    orphans = [
        orphan for orphan in find_orphan_files(backend.store, (), now) if orphan.name.startswith("shards")
    ]
    assert {orphan.name for orphan in orphans} == set(names)
    again = take(Backend(root=backend.store.root))
    for orphan in orphans:
        delete_orphan_file(backend.store, orphan, now)
    assert again.read("test").equals(dataset.read("test"))


@pytest.mark.usefixtures("with_dvc")
def test_no_shard_goes_while_a_manifest_is_lost_that_dvc_can_bring_back(backend: Backend) -> None:
    dataset = take(backend)
    Path(backend.store.path(f"{dataset.folder}/manifest.json")).unlink()
    assert not [
        orphan
        for orphan in find_orphan_files(backend.store, (), datetime.now(UTC) + timedelta(days=30))
        if orphan.name.startswith("shards")
    ]


@pytest.mark.usefixtures("with_dvc")
def test_a_snapshot_whose_parts_were_written_before_it_was_killed_gets_its_manifest(
    backend: Backend, tmp_path: Path
) -> None:
    """The files are touched in the meantime, so the identities of the parts differ."""
    pq.write_table(images(500), tmp_path / "rows.parquet")
    source = DatasetSource.model_validate(
        {"name": "points", "source": {"files": str(tmp_path / "rows.parquet")}, "target": "label"}
    )
    taken = take_snapshot(backend.store, backend.catalog, source)
    dataset = Dataset(backend.store, "points", taken.digest)
    for lost in (f"{dataset.folder}/manifest.json", f"{dataset.folder}.dvc", "catalog.db"):
        Path(backend.store.path(lost)).unlink()
    os.utime(tmp_path / "rows.parquet", (0, 0))
    again = take_snapshot(backend.store, Backend(root=backend.store.root).catalog, source)
    assert again.digest == taken.digest
    assert Dataset(backend.store, "points", again.digest).read().num_rows == 500


def test_two_that_take_the_same_snapshot_at_once_have_one(tmp_path: Path) -> None:
    backend = Backend(root=str(tmp_path))
    datasets: list[Dataset] = []
    threads = [
        threading.Thread(target=lambda: datasets.append(take(Backend(root=str(tmp_path))))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({dataset.digest for dataset in datasets}) == 1
    assert len(list_snapshots(backend.catalog)) == 1
    assert datasets[0].read().num_rows == 6_000


def test_what_another_process_is_making_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with scratch_folder(store) as own:
        (own / "rows").write_bytes(b"1")
        with scratch_folder(store) as other:
            assert (own / "rows").exists()
            assert own != other
    abandoned = tmp_path / "shards" / ".halving-making-dead"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    with (abandoned / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with scratch_folder(store):
            assert abandoned.exists(), "its process lives"
    with scratch_folder(store):
        assert not abandoned.exists()


@pytest.mark.slow
def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on file sizes acts like a full disk: a write fails in the middle."""
    program = (
        "import resource, signal, sys\n"
        "from resources.backend import Backend\n"
        "from tests.resources.datasets.image_dataset import take\n"
        "backend = Backend(root=sys.argv[1]); backend.catalog\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))\n"
        "take(backend)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "StoreError: cannot make a snapshot of points" in done.stderr, done.stderr
    assert "File too large" in done.stderr
    assert [path for path in (tmp_path / "shards").rglob("*") if path.is_file()] == []
    assert take(Backend(root=str(tmp_path))).read().num_rows == 6_000
