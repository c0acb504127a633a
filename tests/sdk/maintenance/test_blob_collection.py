"""Collection of blobs: what is named or has just been put stays, and all else goes.

This holds in a folder and on S3, wherever the collection is killed.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halving import Store, StoreError
from halving.maintenance.blob_collection import NOBODY, Blob, Marks, Owner, delete_unmarked, find_unmarked
from halving.maintenance.cold_tier import Movable, move_blobs
from halving.maintenance.named_blobs import Record, digests_in, named_by_runs
from halving.maintenance.orphan_files import delete_orphan_file, find_orphan_files
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.cold import add_cold_root
from halving.store.store import blob_name, digest_of
from tests.changes import be_later, is_met, is_process_killed
from tests.sdk.maintenance.times import in_days
from tests.waiting import wait_for

OLD = Owner("p", "checkpoints")


def raw(*digests: str) -> list[bytes]:
    return [bytes.fromhex(digest.removeprefix("sha256:")) for digest in digests]


def record_one_of_each(store: Store) -> set[str]:
    """Blobs that the records of a run name, each in another way."""
    checkpoint, best, artifact, media, patch = (
        store.put_blob(name.encode()) for name in ("checkpoint", "best", "artifact", "media", "patch")
    )
    records = RunRecords(store, "p", "r")
    records.start({}, {}, None, {"provenance": {"git": {"patch": patch}}})
    records.add_checkpoint(SavedCheckpoint(1, 1, checkpoint, {}, {"best_checkpoint": best}))
    records.add_artifact("weights", artifact, 8)
    store.create(
        "runs/project=p/r/media/0001-0-000001-00000000.json",
        json.dumps({"digest": media}).encode(),
        sole=True,
    )
    store.create(
        "runs/project=p/r/mail/0001/task.json",
        json.dumps({"checkpoint": digest_of(b"by mail")}).encode(),
        sole=True,
    )
    return {checkpoint, best, artifact, media, patch}


def marks_of(store: Store, project: str = "p") -> Marks:
    marks = Marks()
    for _, records in named_by_runs(store, project):
        for record in records:
            marks.keep(record.digests, sharded=record.sharded)
    return marks


def test_a_blob_that_nothing_names_goes_and_every_other_stays(any_store: Store) -> None:
    kept = record_one_of_each(any_store)
    unnamed, expired, both = (
        any_store.put_blob(name) for name in (b"nobody's", b"expired", b"expired, and kept by another run")
    )
    marks = marks_of(any_store)
    marks.expire(raw(expired, both), OLD)
    marks.keep(raw(both))
    assert find_unmarked(any_store, marks, time.time() - 60) == []  # all were put since
    before = time.time() + 60
    unmarked = find_unmarked(any_store, marks, before)
    assert set(unmarked) == {Blob(unnamed, 8, NOBODY), Blob(expired, 7, OLD)}
    assert any_store.has_blob(unnamed)
    assert set(delete_unmarked(any_store, unmarked, before)) == set(unmarked)
    assert {digest for digest in (unnamed, expired, both, *kept) if any_store.has_blob(digest)} == {
        both,
        *kept,
    }
    assert find_unmarked(any_store, marks, before) == []
    assert delete_unmarked(any_store, unmarked, before) == []


def test_what_was_put_again_since_it_was_found_stays(store: Store, tmp_path: Path) -> None:
    digest = store.put_blob(b"weights")
    old = time.time() - 8 * 86_400
    os.utime(tmp_path / "store" / blob_name(digest), (old, old))
    before = time.time() - 7 * 86_400
    unmarked = find_unmarked(store, Marks(), before)
    assert unmarked == [Blob(digest, 7, NOBODY)]
    store.put_blob(b"weights")
    assert delete_unmarked(store, unmarked, before) == []
    assert store.has_blob(digest)


def test_the_manifest_of_a_sharded_checkpoint_keeps_its_parts_and_goes_before_them(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [any_store.put_blob(b"part %d" % number) for number in range(6)]

    def manifest(*named: str) -> str:
        content = {
            "halving_checkpoint": 1,
            "tensors": {"w": {"chunks": [[[0], [2], digest, 0, 8] for digest in named]}},
        }
        return any_store.put_blob(json.dumps(content, separators=(",", ":")).encode())

    kept = manifest(*parts[:3])
    expired = manifest(*parts[2:5])
    marks = Marks()
    marks.keep(raw(kept), sharded=True)
    marks.expire(raw(expired), OLD._replace(sharded=True))
    marks.keep_parts(any_store)
    unmarked = find_unmarked(any_store, marks, time.time() + 60)
    assert {(blob.digest, blob.owner.kind) for blob in unmarked} == {
        (expired, "checkpoints"),
        (parts[3], "checkpoints"),
        (parts[4], "checkpoints"),
        (parts[5], "unnamed blobs"),
    }
    collect = Store.collect
    early = []

    def look(store: Store, name: str, before: float) -> bool:
        early.extend([name] if name in map(blob_name, parts[3:5]) and store.has_blob(expired) else [])
        return collect(store, name, before)

    monkeypatch.setattr(Store, "collect", look)
    assert set(delete_unmarked(any_store, unmarked, time.time() + 60)) == set(unmarked)
    assert early == []


def test_records_are_read_once_and_only_new_ones_again(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_one_of_each(any_store)
    first = list(named_by_runs(any_store, "p"))
    reads = Counter[str]()
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda store, name: (reads.update([name]), read(store, name))[1])
    assert list(named_by_runs(any_store, "p")) == first
    assert list(reads) == ["retention/named-blobs/project=p.parquet"]
    new = any_store.put_blob(b"new")
    RunRecords(any_store, "p", "a").add_checkpoint(SavedCheckpoint(1, 1, new, {}, sharded=True))
    any_store.delete("runs/project=p/r/artifacts/weights.json")
    reads.clear()
    for _ in range(2):
        (a, (record,)), (r, records) = named_by_runs(any_store, "p")
        assert (a, r, record.digests, record.sharded) == ("a", "r", tuple(raw(new)), True)
        assert [each.name for each in records] == [
            each.name for each in first[0][1] if each.name != "artifacts/weights.json"
        ]
    assert sum(reads.values()) == 3  # what is remembered, twice, and the new record
    any_store.replace("retention/named-blobs/project=p.parquet", b"damaged")
    assert [run for run, _ in named_by_runs(any_store, "p")] == ["a", "r"]


def test_nothing_is_remembered_where_nothing_may_be_written(store: Store) -> None:
    record_one_of_each(store)
    assert [run for run, _ in named_by_runs(store, "p", remember=False)] == ["r"]
    assert store.names("retention") == []


def test_a_full_disk_stops_nobody_from_finding_what_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_one_of_each(store)

    def full(*_: Any) -> None:
        raise StoreError("no space left on device")

    monkeypatch.setattr(store, "replace", full)
    assert [run for run, _ in named_by_runs(store, "p")] == ["r"]


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b'{"digest": "sha256:'], ids=["empty", "zeros", "cut"])
def test_a_damaged_record_says_so_and_names_what_it_named_before_until_it_is_mended(
    any_store: Store, damage: bytes
) -> None:
    record_one_of_each(any_store)
    name = "runs/project=p/r/artifacts/weights.json"
    content = any_store.read(name)

    def record() -> Record:
        return next(
            record
            for _, records in named_by_runs(any_store, "p")
            for record in records
            if record.name == "artifacts/weights.json"
        )

    sound = record()
    any_store.replace(name, damage)
    for _ in range(2):
        assert record().problem.startswith(f"{any_store.address(name)} is damaged: ")
        assert (record().digests, record().may_name_more) == (sound.digests, True)
    any_store.replace(name, content)
    assert record()._replace(written=0.0) == sound._replace(written=0.0)


def test_a_damaged_record_names_what_looks_like_a_digest_in_it_and_whose_rerun_it_is(store: Store) -> None:
    RunRecords(store, "p", "again").start({}, {"rerun_of": "p/r"}, None, {"code": "sha256:" + "ab" * 32})
    name = "runs/project=p/again/record.json"
    store.replace(name, store.read(name)[:-5])
    ((_, (record,)),) = named_by_runs(store, "p")
    assert record.problem
    assert (record.digests, record.rerun_of) == ((bytes.fromhex("ab" * 32),), "p/r")


def test_a_rerun_is_known_by_its_record(store: Store) -> None:
    RunRecords(store, "p", "again").start({}, {"rerun_of": "p/r"}, None, {})
    ((_, (record,)),) = named_by_runs(store, "p")
    assert isinstance(record, Record)
    assert record.rerun_of == "p/r"


def test_nothing_goes_where_the_store_does_not_say_when_it_was_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.put_blob(b"weights")
    monkeypatch.setattr(
        store, "files", lambda prefix: [(name, size, 0.0) for name, size, _ in Store.files(store, prefix)]
    )
    assert find_unmarked(store, Marks(), time.time() + 60) == []
    monkeypatch.setattr(store, "_size_and_time", lambda name: (7, 0.0))
    assert not store.collect(blob_name(digest), time.time() + 60)
    assert store.has_blob(digest)


def test_no_request_of_a_collection_is_for_each_blob_that_stays(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [any_store.put_blob(b"%d" % number) for number in range(20)]
    marks = Marks()
    marks.keep(raw(*names[1:]))
    calls = Counter[str]()

    def count_calls(name: str) -> Any:
        method = getattr(Store, name)
        return lambda store, *arguments: (calls.update([name]), method(store, *arguments))[1]

    for name in ("files", "names", "read", "exists", "delete", "_size_and_time"):
        monkeypatch.setattr(Store, name, count_calls(name))
    before = time.time() + 60
    unmarked = find_unmarked(any_store, marks, before)
    folders = len({blob_name(name)[:19] for name in names})
    assert calls == {"names": 1, "files": folders}
    calls.clear()
    assert len(delete_unmarked(any_store, unmarked, before)) == 1
    # and on S3 three for the marker, by which one process at a time may do it
    assert calls == {"_size_and_time": 2, "delete": 1}


class Saves:
    """When the saves began whose blobs no record names yet."""

    def __init__(self) -> None:
        self._begun: dict[int, float] = {}

    def begin(self, number: int) -> None:
        self._begun[number] = time.time()

    def end(self, number: int) -> None:
        del self._begun[number]

    def oldest(self) -> float:
        """The begin of the oldest, or now."""
        now = time.time()
        return min([now, *self._begun.copy().values()])


def test_a_collection_beside_runs_that_save_the_same_bytes_takes_none_of_theirs(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old leftovers are collected with the shortest grace time while two runs save the same bytes.

    A blob goes as soon as it is older than every save that is not recorded yet.
    """
    refresh = 0.1
    monkeypatch.setattr("halving.store.store.REFRESH_SECONDS", refresh)
    # a file's time is that of the kernel's last tick, an object's is of a whole second
    tick = 0.05 if any_store.folder else 1.05
    shortest_grace = refresh + tick
    contents = [b"weights %d" % epoch for epoch in range(20)]
    saves = Saves()

    def save(number: int) -> None:
        store = Store(any_store.root)
        records = RunRecords(Store(any_store.root), "p", f"r{number}")
        for epoch, content in enumerate(contents):
            saves.begin(number)
            digest = store.put_blob(content)
            assert store.has_blob(digest)
            records.add_checkpoint(SavedCheckpoint(epoch, 1, digest, {}))
            saves.end(number)

    def find_leftovers(before: float) -> list[Blob]:
        return find_unmarked(any_store, marks_of(any_store), before)

    for content in contents:
        any_store.put_blob(content)
    wait_for(
        lambda: len(find_leftovers(time.time() - shortest_grace)) == len(contents),
        60,
        "the leftovers are old",
        every=0.02,
    )
    with ThreadPoolExecutor(2) as pool:
        savers = [pool.submit(save, number) for number in range(2)]
        while not all(saver.done() for saver in savers):
            before = saves.oldest() - shortest_grace
            delete_unmarked(any_store, find_leftovers(before), before)
    for saver in savers:
        saver.result()
    assert [any_store.get_blob(digest_of(content)) for content in contents] == contents


@pytest.mark.parametrize("goes", ["deleted", "moved to a colder place"])
def test_saving_bytes_at_any_step_of_their_deletion_or_of_the_save_keeps_them(
    any_store: Store, tmp_path: Path, goes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of both stops before its n-th change until the other has ended, or waits for it; for each n."""
    root, question, options = any_store.root.partition("?")
    cold = add_cold_root(any_store, f"{root}-cold{question}{options}")
    contents = [b"weights %d" % number for number in range(20)]
    for content in contents:
        any_store.put_blob(content)
    monkeypatch.setattr("halving.store.store.REFRESH_SECONDS", 0.1)
    now = wait_for(
        lambda: second_after(any_store), 60, "a later second, because an object's time is of a whole one"
    )
    left = iter(contents)

    def take(digest: str) -> None:
        blobs = [blob for blob in find_unmarked(any_store, marks_of(any_store), now) if blob.digest == digest]
        if goes == "deleted":
            delete_unmarked(any_store, blobs, now)
        else:
            list(move_blobs(any_store, cold, [Movable(digest, 9)], now))

    def save(content: bytes) -> None:
        records = RunRecords(any_store, "p", "r")
        records.add_checkpoint(SavedCheckpoint(contents.index(content), 1, any_store.put_blob(content), {}))

    def meet(step: int, *, is_save_first: bool) -> bool:
        content = next(left)
        both = [partial(save, content), partial(take, digest_of(content))]
        met = is_met(step, tmp_path, *both[:: 1 if is_save_first else -1])
        for _ in range(2):
            assert any_store.get_blob(digest_of(content)) == content
            take(digest_of(content))
        return met

    for is_save_first in (True, False):
        steps = next(step for step in itertools.count() if not meet(step, is_save_first=is_save_first))
        assert steps > 2


def second_after(store: Store) -> int:
    """The second that it is, if all blobs were put in one before it; or 0."""
    this = int(time.time())
    return this if this >= max(written for _, _, written in store.files("artifacts")) + 1 else 0


@pytest.mark.slow
def test_a_collection_that_is_killed_at_any_step_is_finished_by_the_next(
    any_store: Store, tmp_path: Path
) -> None:
    kept = any_store.put_blob(b"kept")
    marks = Marks()
    marks.keep(raw(kept))

    def collect() -> None:
        delete_unmarked(any_store, find_unmarked(any_store, marks, time.time() + 60), time.time() + 60)

    for step in itertools.count():
        doomed = [any_store.put_blob(b"doomed %d" % number) for number in range(2)]
        was_killed = is_process_killed(step, tmp_path, collect)
        be_later(any_store)
        collect()
        assert [digest for digest in (kept, *doomed) if any_store.has_blob(digest)] == [kept]
        if not was_killed:
            break
    assert step > 4


@pytest.mark.slow
def test_what_a_killed_upload_leaves_is_no_blob_and_goes_after_a_day(
    any_store: Store, tmp_path: Path
) -> None:
    content = os.urandom(25_000_000)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    child = "import sys, pathlib, halving.store.store\n"
    child += "halving.store.store.digest_of = lambda content: sys.argv[3]\n"  # the file can be read only once
    child += "halving.Store(sys.argv[1]).put_blob(pathlib.Path(sys.argv[2]))\n"
    with (
        subprocess.Popen(
            [sys.executable, "-c", child, any_store.root, str(fifo), digest_of(content)]
        ) as uploading,
        fifo.open("wb") as source,
    ):
        source.write(content[:20_000_000])
        source.flush()
        uploading.kill()
    assert not any_store.has_blob(digest_of(content))
    left = [name for name, _, _ in any_store.files("artifacts")]
    assert len(left) == (0 if any_store.folder is None else 1)
    assert list(find_orphan_files(any_store, (), in_days(0.9))) == []
    for orphan in find_orphan_files(any_store, (), in_days(1.1)):
        delete_orphan_file(any_store, orphan, in_days(1.1))
    assert list(any_store.files("artifacts")) == []


def test_whatever_looks_like_a_digest_is_one() -> None:
    record = digest_of(b"1")
    other = digest_of(b"2")
    assert digests_in(
        f'{{"a": "{record}", "b": ["{other}", "{record}"], "c": "sha256:12"}}'.encode()
    ) == tuple(raw(record, other))
