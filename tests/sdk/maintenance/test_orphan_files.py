"""Blobs that no record names and what killed writers leave go with retention; whatever somebody may still name stays."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from halving import Store
from halving.maintenance.orphan_files import OrphanFile, delete_orphan_file, find_orphan_files
from halving.maintenance.retention import Drop, apply_retention
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.store import blob_name, digest_of


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def record_one_of_each(store: Store) -> set[str]:
    """Blobs that the records of a run name, each in another way."""
    checkpoint, best, artifact, media, patch = (
        store.put_blob(name.encode()) for name in ("checkpoint", "best", "artifact", "media", "patch")
    )
    records = RunRecords(store, "p", "r")
    records.start({}, {}, None, {"provenance": {"git": {"patch": patch}}})
    records.add_checkpoint(SavedCheckpoint(1, 1, checkpoint, {}, {"best_checkpoint": best}))
    records.add_artifact("weights", artifact, 8)
    store.create("runs/project=p/r/media/0001-0-000001-00000000.json", json.dumps({"digest": media}).encode(), sole=True)
    return {checkpoint, best, artifact, media, patch}


def test_a_blob_that_nothing_names_goes_a_week_after_it_was_put_and_every_other_stays(any_store: Store) -> None:
    kept = record_one_of_each(any_store)
    report, unrecorded = any_store.put_blob(b"report"), any_store.put_blob(b"nobody's")
    assert apply_retention(any_store, protected=(), keep_blobs={report}, now=in_days(6.9)).drops == ()
    assert apply_retention(any_store, protected=(), now=in_days(8)).drops == ()  # what the catalog names is unknown
    assert apply_retention(any_store, protected=(), keep_blobs={report}, project="p", now=in_days(8)).drops == ()
    would = apply_retention(any_store, protected=(), keep_blobs={report}, now=in_days(8), dry_run=True)
    assert would.drops == (Drop("", "artifacts", "orphan files", 0, 8),)
    assert any_store.has_blob(unrecorded)
    assert apply_retention(any_store, protected=(), keep_blobs={report}, now=in_days(8)).drops == would.drops
    assert [any_store.has_blob(digest) for digest in (unrecorded, report, *kept)] == [False, True, *[True] * len(kept)]
    assert apply_retention(any_store, protected=(), keep_blobs={report}, now=in_days(8)).drops == ()


def test_an_unrecorded_blob_that_is_put_again_after_it_was_found_stays(store: Store, tmp_path: Path) -> None:
    digest = store.put_blob(b"weights")
    old = time.time() - 8 * 86_400
    os.utime(tmp_path / "store" / blob_name(digest), (old, old))
    now = datetime.now(UTC)
    found = list(find_orphan_files(store, (), now, named_blobs=()))
    assert found == [OrphanFile("", "artifacts", blob_name(digest), 7)]
    store.put_blob(b"weights")
    delete_orphan_file(store, found[0], now)
    assert store.has_blob(digest)


def test_a_superseded_checkpoint_that_another_run_puts_again_meanwhile_stays(store: Store, tmp_path: Path) -> None:
    digest = store.put_blob(b"weights")
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, digest, {}))
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(2, 1, store.put_blob(b"newer"), {}))
    old = time.time() - 40 * 86_400
    os.utime(tmp_path / "store" / blob_name(digest), (old, old))
    for path in (tmp_path / "store/runs/project=p/r/checkpoints").iterdir():
        path.write_text(path.read_text().replace('"time": "20', '"time": "19'))
    store.put_blob(b"weights")
    apply_retention(store, protected=(), checkpoint_days=30)
    assert store.has_blob(digest)
    os.utime(tmp_path / "store" / blob_name(digest), (old, old))
    apply_retention(store, protected=(), checkpoint_days=30)
    assert not store.has_blob(digest)


@pytest.mark.parametrize("days", [0.0, 1.0])
def test_a_superseded_checkpoint_that_another_run_has_put_and_not_recorded_stays_however_few_days_are_kept(
    store: Store, tmp_path: Path, days: float
) -> None:
    digest = store.put_blob(b"weights")
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, digest, {}))
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(2, 1, store.put_blob(b"newer"), {}))
    store.put_blob(b"weights")  # by another run, after almost a day: what is younger is not written again
    assert apply_retention(store, protected=(), checkpoint_days=days, now=in_days(1.1)).drops == ()
    assert store.has_blob(digest)
    gone = apply_retention(store, protected=(), checkpoint_days=days, now=in_days(2.1))
    assert gone.drops == (Drop("p", "r", "checkpoint", 0, 7, digest),)
    assert not store.has_blob(digest)


def test_only_what_was_deleted_is_returned(store: Store, tmp_path: Path) -> None:
    digest = store.put_blob(b"weights")
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, digest, {}))
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(2, 1, store.put_blob(b"newer"), {}))
    later = (datetime.now(UTC) + timedelta(days=39)).timestamp()
    os.utime(tmp_path / "store" / blob_name(digest), (later, later))  # another run put it again
    assert apply_retention(store, protected=(), checkpoint_days=30, now=in_days(40)).drops == ()
    assert store.has_blob(digest)


def test_nothing_is_an_orphan_where_the_store_does_not_say_when_it_was_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put_blob(b"weights")
    store.create("runs/project=p/r/mail/0001/trial-000001.json", b"{}")
    monkeypatch.setattr(store, "files", lambda prefix: [(name, size, 0.0) for name, size, _ in Store.files(store, prefix)])
    assert list(find_orphan_files(store, (), datetime.now(UTC), named_blobs=())) == []
    monkeypatch.setattr(store, "_written", lambda name: (7, 0.0))
    assert not store.collect(blob_name(digest), time.time() + 60)
    assert store.has_blob(digest)


@pytest.mark.slow
def test_what_a_killed_upload_leaves_is_no_blob_and_goes_after_a_day(any_store: Store, tmp_path: Path) -> None:
    content, fifo = os.urandom(25_000_000), tmp_path / "fifo"
    os.mkfifo(fifo)
    child = "import sys, pathlib, halving.store.store\n"
    child += "halving.store.store.digest_of = lambda content: sys.argv[3]\n"  # the file can be read only once
    child += "halving.Store(sys.argv[1]).put_blob(pathlib.Path(sys.argv[2]))\n"
    with (
        subprocess.Popen([sys.executable, "-c", child, any_store.root, str(fifo), digest_of(content)]) as uploading,
        fifo.open("wb") as source,
    ):
        source.write(content[:20_000_000])
        source.flush()
        uploading.kill()
    assert not any_store.has_blob(digest_of(content))
    left = [name for name, _, _ in any_store.files("artifacts")]
    assert len(left) == (0 if any_store.folder is None else 1)
    apply_retention(any_store, protected=(), now=in_days(0.9))
    assert [name for name, _, _ in any_store.files("artifacts")] == left
    apply_retention(any_store, protected=(), now=in_days(1.1))
    assert list(any_store.files("artifacts")) == []


@pytest.mark.parametrize("folder", ["artifacts/sha256/ab", "datasets/points/0123456789abcdef", "reports"])
def test_temporary_files_of_killed_writers_go_wherever_they_are(store: Store, folder: str) -> None:
    store.create(f"{folder}/.data.arrow.17.0123abcd", b"half")
    store.create(f"{folder}/.gitignore", b"stays")
    apply_retention(store, protected=(), now=in_days(1.1))
    assert [name.rpartition("/")[2] for name, _, _ in store.files(folder)] == [".gitignore"]
