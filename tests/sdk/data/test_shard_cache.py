"""Shards in the cache are fetched once, kept while they are used, never too many, and never damaged."""

import errno
import multiprocessing
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halving import InvalidInput, NotFound, Store, StoreError
from halving.data.shard_cache import ShardCache
from halving.data.shards import Shard
from tests.s3 import S3, Gate
from tests.sdk.data.cached import content, names, random_shard
from tests.sdk.data.sharded import (
    arrow_file,
    counting_tables,
    numbers,
    put_shard,
    sharded_dataset,
    snapshot,
)
from tests.waiting import wait_for

SPAWN = multiprocessing.get_context("spawn")


# Fetching


class Counting(Store):
    """Writes a line for each shard that is asked of the store."""

    def parts(self, name: str) -> Iterator[bytes]:
        with Path("asked").open("a") as file:
            file.write(f"{name}\n")
        yield from super().parts(name)


def fetch_all(root: str, shards: list[Shard], start: Any) -> None:
    start.wait()
    cache = ShardCache(Counting(root))
    for shard in shards:
        cache.open(shard)


def test_many_processes_and_threads_fetch_a_shard_once(remote: Store) -> None:
    shards = [random_shard(remote, 1_000_000) for _ in range(4)]
    start = SPAWN.Event()
    workers: list[Any] = [
        SPAWN.Process(target=fetch_all, args=(remote.root, shards, start)) for _ in range(3)
    ]
    workers += [threading.Thread(target=fetch_all, args=(remote.root, shards, start)) for _ in range(3)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers[:3])
    assert sorted(Path("asked").read_text().split()) == sorted(shard.name for shard in shards)


@pytest.mark.usefixtures("soon")
def test_a_process_that_is_killed_while_it_fetches_holds_up_nobody(
    remote: Store, s3_gate: Gate, folder: Path
) -> None:
    shard = random_shard(remote)
    s3_gate.swallow()
    start = SPAWN.Event()
    start.set()
    process = SPAWN.Process(target=fetch_all, args=(remote.root, [shard], start))
    process.start()
    wait_for(
        lambda: folder.exists() and names(folder) == [f"{shard.sha256}.part"], 60, "the beginning of a fetch"
    )
    os.kill(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
    process.join()
    s3_gate.open()
    assert np.array_equal(ShardCache(remote).open(shard), np.frombuffer(remote.read(shard.name), np.uint8))
    assert names(folder) == [shard.sha256]


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_forked_in_the_middle_of_a_fetch_does_not_hold_its_parents_lock(
    remote: Store, folder: Path
) -> None:
    shard = random_shard(remote)
    pids = []
    cache = ShardCache(remote)

    def fork_within(fetch: Callable[[], None]) -> None:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        pids.append(pid)
        raise StoreError("the fetch ends here")

    with pytest.raises(StoreError, match="ends here"):
        ShardCache(remote, fork_within).open(shard)
    try:
        assert len(cache.open(shard)) == shard.bytes
    finally:
        os.kill(pids[0], signal.SIGKILL)
        os.waitpid(pids[0], 0)


# Room


def test_the_least_recently_used_shards_make_room_and_the_limit_is_kept(remote: Store, folder: Path) -> None:
    a, b, c, d = (random_shard(remote) for _ in range(4))
    cache = ShardCache(remote, limit=250_000)
    for shard, kept in (
        (a, [a]),
        (b, [a, b]),
        (a, [a, b]),
        (c, [a, c]),
        (d, [c, d]),
        (c, [c, d]),
        (a, [a, c]),
    ):
        assert content(cache, shard) == remote.read(shard.name)
        assert names(folder) == sorted(shard.sha256 for shard in kept)


def test_a_shard_that_is_in_use_stays_also_where_another_process_uses_it(remote: Store, folder: Path) -> None:
    used, other, third = (random_shard(remote) for _ in range(3))
    start = SPAWN.Event()
    done = SPAWN.Event()
    ShardCache(remote).fetch(used)
    process = SPAWN.Process(target=hold, args=(remote.root, used, start, done))
    process.start()
    try:
        start.wait()
        cache = ShardCache(remote, limit=250_000)
        cache.open(other)
        cache.open(third)
        assert names(folder) == sorted([used.sha256, third.sha256])
    finally:
        done.set()
        process.join()
    cache.open(other)
    assert names(folder) == sorted([other.sha256, third.sha256])


def hold(root: str, shard: Shard, start: Any, done: Any) -> None:
    mapped = ShardCache(Store(root)).open(shard)
    start.set()
    done.wait()
    assert len(mapped) == shard.bytes


def test_where_all_is_in_use_a_shard_is_held_in_memory_and_nothing_is_deleted(
    remote: Store, folder: Path
) -> None:
    shards = [random_shard(remote) for _ in range(4)]
    cache = ShardCache(remote, limit=250_000)
    with pytest.warns(
        UserWarning,
        match="does not take the shards of .*, so they are held in memory: .* HALVING_CACHE_BYTES",
    ) as warned:
        arrays = [cache.open(shard) for shard in shards]
    assert len(warned) == 1
    assert [array.tobytes() for array in arrays] == [remote.read(shard.name) for shard in shards]
    assert names(folder) == sorted(shard.sha256 for shard in shards[:2])


@pytest.fixture(params=["mounted where it can be", "made up"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 1 MiB.

    Without the right to mount one, a folder for which the test says what the kernel would say of a full disk.
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if request.param != "made up" and not subprocess.run(mount, capture_output=True, check=False).returncode:
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
        return
    reserve = os.posix_fallocate

    def reserve_if_there_is_room(descriptor: int, offset: int, size: int) -> None:
        if sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) + size > 2**20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", reserve_if_there_is_room)
    yield folder


def test_a_full_disk_leaves_nothing_behind_and_the_shards_are_held_in_memory(
    remote: Store, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_CACHE", str(disk))
    shards = [random_shard(remote, 700_000) for _ in range(2)]
    (disk / "others").write_bytes(bytes(600_000))
    cache = ShardCache(remote, limit=10**9)
    with pytest.warns(UserWarning, match="No space left on device"):
        assert [content(cache, shard) for shard in shards] == [remote.read(shard.name) for shard in shards]
    assert names(disk / "shards") == []
    (disk / "others").unlink()
    content(cache, shards[0])
    assert names(disk / "shards") == [shards[0].sha256]
    content(cache, shards[1])  # the disk is full by what may be deleted
    assert names(disk / "shards") == [shards[1].sha256]


def test_a_shard_that_the_disk_refuses_is_held_in_memory_and_deletes_no_other(
    remote: Store, folder: Path
) -> None:
    small = random_shard(remote, 100_000)
    large = random_shard(remote, 700_000)
    process = SPAWN.Process(target=read_with_small_files, args=(remote.root, small, large))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert names(folder) == [small.sha256]


def read_with_small_files(root: str, small: Shard, large: Shard) -> None:
    """Read in a process of its own, because a limit to the size of files cannot be lifted again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    store = Store(root)
    cache = ShardCache(store, limit=10**9)
    cache.fetch(small)
    with pytest.warns(
        UserWarning,
        match=f"does not take the shards of .*, so they are held in memory: .*{os.strerror(errno.EFBIG)}",
    ):
        assert content(cache, large) == store.read(large.name)


@pytest.mark.parametrize("wrong", ["a file", "below a file"])
def test_a_cache_that_cannot_be_written_is_named_and_done_without(
    remote: Store, tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" if wrong == "a file" else tmp_path / "file" / "shards"
    shard = random_shard(remote)
    with pytest.warns(UserWarning, match=f"the cache {place} does not take"):
        assert content(ShardCache(remote, folder=place), shard) == remote.read(shard.name)


def test_the_bytes_allowed_are_half_of_what_is_free_or_what_the_environment_says(
    remote: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.statvfs(".").f_bavail * os.statvfs(".").f_frsize
    assert 0.3 < ShardCache(remote).limit / free < 0.7
    monkeypatch.setenv("HALVING_CACHE_BYTES", "12345")
    assert ShardCache(remote).limit == 12345
    monkeypatch.setenv("HALVING_CACHE_BYTES", "10 GB")
    with pytest.raises(
        InvalidInput, match="HALVING_CACHE_BYTES = '10 GB' is not accepted: give a number of bytes"
    ):
        ShardCache(remote)


# Damage


@pytest.mark.parametrize("damage", ["changed", "cut off", "longer", "empty"])
def test_a_copy_that_is_damaged_is_fetched_again(remote: Store, folder: Path, damage: str) -> None:
    shard = random_shard(remote)
    cache = ShardCache(remote)
    cache.fetch(shard)
    copy = folder / shard.sha256
    with copy.open("r+b") as file:
        if damage == "changed":
            file.seek(50_000)
            file.write(b"damage")
        elif damage == "longer":
            file.seek(0, 2)
            file.write(b"1")
        else:
            file.truncate(0 if damage == "empty" else 99_999)
    assert cache.open_copy(shard) is None
    assert content(cache, shard) == remote.read(shard.name)


def test_a_copy_that_was_only_touched_is_kept(remote: Store, s3_gate: Gate, folder: Path) -> None:
    shard = random_shard(remote)
    ShardCache(remote).fetch(shard)
    (folder / shard.sha256).touch()
    s3_gate.shut()
    assert ShardCache(remote).open_copy(shard) is not None


def test_a_copy_that_changed_silently_on_the_disk_and_is_unreadable_is_fetched_again(
    remote: Store, folder: Path
) -> None:
    dataset = sharded_dataset(remote, *counting_tables(50, 60))
    expected = numbers(dataset.loader("train", batch_size=16))
    for name in names(folder):
        facts = (folder / name).stat()
        (folder / name).write_bytes(bytes(facts.st_size))
        os.utime(folder / name, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert numbers(dataset.loader("train", batch_size=16)) == expected


def test_a_shard_that_is_damaged_in_the_store_is_named_and_not_kept(
    s3: S3, remote: Store, folder: Path
) -> None:
    good = arrow_file(counting_tables(50)[0])
    other = arrow_file(counting_tables(60)[0])
    for content_, says in (
        (bytes(len(good)), "its content hashes to"),
        (good[:-1], "it has .* bytes, not"),
        (good + b"1", "it has more than"),
    ):
        shard = put_shard(remote, good, 50)
        with s3.filesystem().open_output_stream(remote.path(shard.name)) as stream:
            stream.write(content_)
        cache = ShardCache(remote)
        for _ in range(2):
            with pytest.raises(
                StoreError, match=f"the shard {shard.name} of the store .* is damaged .*: {says}"
            ):
                cache.open(shard)
        assert names(folder) == []
        remote.delete(shard.name)
    assert other


def test_a_shard_that_is_missing_is_named(remote: Store, folder: Path) -> None:
    tables = counting_tables(50, 60)
    shards = [put_shard(remote, arrow_file(table), table.num_rows) for table in tables]
    remote.delete(shards[1].name)
    loader = snapshot(remote, {"train": shards}).loader("train", batch_size=16)
    with pytest.raises(NotFound, match=shards[1].name):
        list(loader)
    assert f"{shards[1].sha256}.part" not in names(folder)
