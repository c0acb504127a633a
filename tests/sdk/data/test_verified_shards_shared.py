"""A shard of a folder is hashed once, however many threads and processes need it at a time."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from halving import Dataset, Store
from halving.data import verified_shards
from halving.data.shards import Shard
from halving.data.verified_shards import VerifiedShards
from halving.errors import StoreUnavailable
from tests.sdk.data.sharded import counting_tables, sharded_dataset
from tests.waiting import wait_for

SPAWN = multiprocessing.get_context("spawn")
pytestmark = pytest.mark.usefixtures("no_settling_time")
SLOW = pytest.mark.slow
ROWS = [50, 50, 50]


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return sharded_dataset(store, *counting_tables(*ROWS))


@pytest.mark.parametrize("cache", ["cache", "file"])
def test_threads_that_need_a_shard_at_once_hash_it_once(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed_shards: list[Shard], cache: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HALVING_CACHE", str(tmp_path / cache))
    shard = dataset.shards("train")[0]
    maps = list[Any]()
    waiting = set[int]()
    hashing = set[int]()
    record_hash = VerifiedShards._hash

    def hashed_beside_others(verified: VerifiedShards, file: Any, shard: Shard) -> str:
        hashing.add(threading.get_ident())
        wait_for(lambda: len(waiting | hashing) == 4, 60, "the other threads")
        return record_hash(verified, file, shard)

    def still_waits() -> bool:
        waiting.add(threading.get_ident())
        return False

    monkeypatch.setattr(VerifiedShards, "_hash", hashed_beside_others)
    verified = VerifiedShards(dataset.store, gave_up=still_waits)
    threads = [threading.Thread(target=lambda: maps.append(verified.open(shard))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(mapped) for mapped in maps] == [shard.bytes] * 4
    assert hashed_shards == [shard]


def verify_all(root: str, shards: list[Shard], start: Any) -> None:
    original = VerifiedShards._hash

    def note_hash(verified: VerifiedShards, file: Any, shard: Shard) -> str:
        with Path("hashed").open("a") as lines:
            lines.write(f"{shard.name}\n")
        return original(verified, file, shard)

    VerifiedShards._hash = note_hash  # type: ignore[method-assign]
    verified_shards._SETTLED_SECONDS = -3600.0
    verified = VerifiedShards(Store(root))
    start.wait()
    for shard in shards:
        verified.open(shard)


@SLOW
def test_processes_that_need_a_shard_at_once_hash_it_once(store: Store) -> None:
    shards = sharded_dataset(store, *counting_tables(*[100_000] * 8)).shards("train")
    start = SPAWN.Event()
    processes = [SPAWN.Process(target=verify_all, args=(store.root, shards, start)) for _ in range(3)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(Path("hashed").read_text().split()) == sorted(shard.name for shard in shards)


def hash_for_ever(root: str, shard: Shard) -> None:
    def stay(*_: Any) -> str:
        Path("begun").touch()
        return str(threading.Event().wait())

    VerifiedShards._hash = stay  # type: ignore[method-assign]
    VerifiedShards(Store(root)).fetch(shard)


@SLOW
def test_a_process_that_is_killed_while_it_hashes_holds_up_nobody(dataset: Dataset) -> None:
    shard = dataset.shards("train")[0]
    process = SPAWN.Process(target=hash_for_ever, args=(dataset.store.root, shard))
    process.start()
    wait_for(Path("begun").exists, 60, "the beginning of the hashing")
    os.kill(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
    process.join()
    assert len(VerifiedShards(dataset.store).open(shard)) == shard.bytes


@SLOW
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_shard_is_hashed_does_not_hold_its_parents_lock(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = dataset.shards("train")[0]
    pids = []
    verified = VerifiedShards(dataset.store)

    def fork_within(*_: Any) -> str:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        pids.append(pid)
        raise StoreUnavailable("the hashing ends here")

    with monkeypatch.context() as patch:
        patch.setattr(VerifiedShards, "_hash", fork_within)
        with pytest.raises(StoreUnavailable, match="ends here"):
            verified.open(shard)
    try:
        assert len(verified.open(shard)) == shard.bytes
    finally:
        os.kill(pids[0], signal.SIGKILL)
        os.waitpid(pids[0], 0)


@SLOW
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_another_thread_hashes_a_shard_can_verify_it_itself(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    # Without a cache folder there is only the lock among threads.
    monkeypatch.setenv("HALVING_CACHE", str(tmp_path / "file"))
    shard = dataset.shards("train")[0]
    begun = threading.Event()
    end = threading.Event()
    original = VerifiedShards._hash

    def stay(verified: VerifiedShards, file: Any, shard: Shard) -> str:
        begun.set()
        end.wait(60)
        return original(verified, file, shard)

    monkeypatch.setattr(VerifiedShards, "_hash", stay)
    thread = threading.Thread(target=VerifiedShards(dataset.store).fetch, args=(shard,))
    thread.start()
    begun.wait(60)
    pid = os.fork()
    if pid == 0:
        VerifiedShards._hash = original  # type: ignore[method-assign]
        os._exit(len(VerifiedShards(dataset.store).open(shard)) != shard.bytes)
    try:
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        end.set()
        thread.join()


def test_what_nobody_waits_for_any_more_is_not_hashed_to_its_end(dataset: Dataset) -> None:
    shard = dataset.shards("train")[0]
    with pytest.raises(StoreUnavailable, match=f"{shard.name} is no longer waited for"):
        VerifiedShards(dataset.store, gave_up=lambda: True).open(shard)
    assert len(VerifiedShards(dataset.store).open(shard)) == shard.bytes
