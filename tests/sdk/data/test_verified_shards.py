"""A shard of a folder is hashed once on a machine before its use; a faulty one is named or replaced."""

import errno
import gc
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from halving import Dataset, NotFound, Store, StoreError
from halving.data import verified_shards
from halving.data.shard_copies import REMOTE, copy_shard
from halving.data.shards import Shard
from halving.data.verified_shards import VerifiedShards
from halving.store import retry
from tests.sdk.conftest import Script
from tests.sdk.data.sharded import counting_tables, flat, numbers, sharded_dataset

pytestmark = pytest.mark.usefixtures("no_settling_time")
SLOW = pytest.mark.slow
ROWS = [50, 50, 50]


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return sharded_dataset(store, *counting_tables(*ROWS))


@pytest.fixture
def remote(tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with copies of the shards, which the environment names."""
    monkeypatch.setenv(REMOTE, str(tmp_path / "remote"))
    remote = Store(tmp_path / "remote")
    for shard in dataset.shards("train"):
        copy_shard(dataset.store, remote, shard)
    return remote


def path_of(dataset: Dataset, number: int = 1) -> Path:
    return Path(dataset.store.path(dataset.shards("train")[number].name))


def flip(path: Path) -> None:
    """Damage one row in place: Arrow reads it all the same."""
    content = bytearray(path.read_bytes())
    first = next(
        place
        for value in range(0, 150, 50)
        if (place := content.find(struct.pack("<2q", value, value + 1))) >= 0
    )
    content[first + 40] ^= 1
    with path.open("r+b") as file:
        file.write(content)


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


FAULTS = pytest.mark.parametrize("fault", [flip, cut_off, Path.unlink])


# What is damaged


@pytest.mark.filterwarnings(
    "ignore:This DataLoader will create.*:UserWarning",
    "ignore:This process.*is multi-threaded:DeprecationWarning",
)
@pytest.mark.parametrize("workers", [None, 0, pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize("lanes", [1, 3])
def test_no_row_of_a_damaged_shard_is_handed_out_and_it_is_named(
    dataset: Dataset, workers: int | None, lanes: int
) -> None:
    flip(path_of(dataset))
    loader = dataset.loader("train", batch_size=5, lanes=lanes)
    rows: list[int] = []

    def train() -> None:
        for batch in loader if workers is None else loader.torch(workers):
            rows.extend(batch["n"].tolist())

    with pytest.raises(
        StoreError,
        match=f"the shard shards/sha256/../{path_of(dataset).name} .* is damaged .*: its content hashes to",
    ):
        train()
    assert not set(range(50, 100)) & set(rows)


@FAULTS
@pytest.mark.parametrize("number", [0, 1])
def test_a_faulty_shard_is_fetched_again_from_the_remote_with_one_warning(
    dataset: Dataset, remote: Store, fault: Callable[[Path], None], number: int
) -> None:
    path = path_of(dataset, number)
    whole = path.read_bytes()
    fault(path)
    with pytest.warns(
        UserWarning, match=rf"halving: the shard .*{path.name} .*; it was fetched again from {remote.root}"
    ) as warned:
        rows = flat(numbers(dataset.loader("train", batch_size=5)))
    assert len(warned) == 1
    assert sorted(rows) == list(range(150))
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@FAULTS
def test_reading_a_split_as_a_table_fetches_a_faulty_shard_too(
    dataset: Dataset, remote: Store, fault: Callable[[Path], None]
) -> None:
    fault(path_of(dataset))
    with pytest.warns(UserWarning, match=f"fetched again from {remote.root}"):
        assert dataset.read("train")["n"].to_pylist() == list(range(150))
    with pytest.raises(NotFound, match="no column 'y'"):
        dataset.read("train", columns=["y"])


def test_a_column_that_is_not_there_is_no_fault_of_a_shard(
    dataset: Dataset, hashed_shards: list[Shard]
) -> None:
    with pytest.raises(NotFound, match="the dataset has no column 'nope'"):
        dataset.read("train", columns=["nope"])
    assert hashed_shards == []


def test_who_has_a_damaged_file_mapped_is_not_disturbed_when_it_is_replaced(
    dataset: Dataset, remote: Store
) -> None:
    flip(path_of(dataset))
    mapped = np.memmap(path_of(dataset), np.uint8, "r")
    before = mapped.tobytes()
    with pytest.warns(UserWarning, match=f"fetched again from {remote.root}"):
        opened = VerifiedShards(dataset.store).open(dataset.shards("train")[1])
    assert mapped.tobytes() == before != opened.tobytes()


@FAULTS
def test_what_is_faulty_in_both_stores_is_one_error_that_names_both(
    dataset: Dataset, remote: Store, fault: Callable[[Path], None]
) -> None:
    shard = dataset.shards("train")[1]
    for place in (dataset.store, remote):
        fault(Path(place.path(shard.name)))
    kind = NotFound if fault is Path.unlink else StoreError
    for read in (lambda: list(dataset.loader("train", batch_size=5)), lambda: dataset.read("train")):
        with pytest.raises(kind, match=shard.name) as raised:
            read()
        assert dataset.store.root in str(raised.value)
        assert f"nor could it be fetched from {REMOTE}: " in str(raised.value)
        assert remote.root in str(raised.value)


def test_a_remote_that_is_no_store_is_named(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(path_of(dataset))
    monkeypatch.setenv(REMOTE, "ssh://host/folder")
    with pytest.raises(
        StoreError, match=rf"is damaged .*nor could it be fetched from {REMOTE}: .*ssh://host/folder"
    ):
        list(dataset.loader("train", batch_size=5))


def test_what_rots_without_a_write_is_hashed_again_where_it_cannot_be_read(
    dataset: Dataset, remote: Store
) -> None:
    verified = VerifiedShards(dataset.store)
    shard = dataset.shards("train")[1]
    path = path_of(dataset)
    verified.fetch(shard)
    path.write_bytes(bytes(shard.bytes))
    verified._remember(shard, verified_shards._identity(path.stat()), None)  # as if nothing had been written
    with pytest.warns(UserWarning, match=f"fetched again from {remote.root}"):
        assert sorted(flat(numbers(dataset.loader("train", batch_size=5)))) == list(range(150))


def test_what_a_killed_copy_left_is_cleared_by_a_copy_there_a_day_later(
    dataset: Dataset, remote: Store
) -> None:
    shard = dataset.shards("train")[1]
    folder = Path(remote.path(shard.name)).parent
    for name, age in ((".old.1.01234567", 90_000), (".new.1.01234567", 80_000)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    copy_shard(dataset.store, remote, shard)
    assert sorted(path.name for path in folder.iterdir()) == [".new.1.01234567", shard.sha256]


# What is remembered


def test_each_shard_is_hashed_once_and_not_by_the_next_reader(
    dataset: Dataset, hashed_shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = numbers(dataset.loader("train", batch_size=5))
    assert sorted(shard.name for shard in hashed_shards) == sorted(
        shard.name for shard in dataset.shards("train")
    )
    hashed_shards.clear()
    assert numbers(dataset.loader("train", batch_size=5)) == first
    monkeypatch.setattr(verified_shards, "_REMEMBERED", {})  # as in another process
    assert numbers(dataset.loader("train", batch_size=5)) == first
    assert hashed_shards == []


@SLOW
def test_another_process_does_not_hash_what_this_machine_has_verified(
    dataset: Dataset, script: Script
) -> None:
    numbers(dataset.loader("train", batch_size=5))
    done = script(
        "import sys, halving\n"
        "from halving.data.verified_shards import VerifiedShards\n"
        "VerifiedShards._hash = lambda *_: sys.exit('it is hashed again')\n"
        "loader = halving.Dataset(halving.Store(), 'points', sys.argv[1]).loader('train', batch_size=5)\n"
        "print(sum(len(batch['n']) for batch in loader))",
        dataset.digest,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "150\n", "")


@pytest.mark.parametrize("how", ["in place", "another file"])
def test_a_file_that_was_written_again_is_hashed_again_although_it_looks_as_before(
    dataset: Dataset, how: str
) -> None:
    numbers(dataset.loader("train", batch_size=5))
    path = path_of(dataset)
    before = path.stat()
    if how == "another file":
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        other.rename(path)
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(StoreError, match=path.name):
        list(dataset.loader("train", batch_size=5))


def test_a_file_that_was_just_written_is_not_remembered_as_verified(
    dataset: Dataset, hashed_shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_shards, "_SETTLED_SECONDS", 3600.0)
    verified = VerifiedShards(dataset.store)
    shard = dataset.shards("train")[0]
    verified.fetch(shard)
    verified.fetch(shard)
    assert hashed_shards == [shard, shard]


def test_equal_shards_of_several_stores_are_remembered_and_of_many_the_last(
    dataset: Dataset, tmp_path: Path, hashed_shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = dataset.shards("train")[0]
    stores = [Store(tmp_path / str(number)) for number in range(20)]
    monkeypatch.setattr(verified_shards, "_RECORD_BYTES", 500)
    for store in stores:
        copy_shard(dataset.store, store, shard)
        VerifiedShards(store).fetch(shard)
    monkeypatch.setattr(verified_shards, "_REMEMBERED", {})
    assert all(VerifiedShards(store).is_verified(shard) for store in stores[-2:])
    assert len(hashed_shards) == 20
    (record,) = (tmp_path / "cache" / "verified").iterdir()
    assert record.stat().st_size < 600


@pytest.mark.parametrize("lack", ["a folder that can be written", "a home"])
def test_without_a_cache_each_process_hashes_a_shard_once_and_says_so_once(
    dataset: Dataset, tmp_path: Path, hashed_shards: list[Shard], monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    monkeypatch.setattr(retry, "_SUBJECTS", set())
    if lack == "a home":
        monkeypatch.delenv("HALVING_CACHE")
        monkeypatch.setattr("os.path.expanduser", lambda path: path)
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("HALVING_CACHE", str(tmp_path / "file"))
    with pytest.warns(
        UserWarning, match="each process hashes the shards of .* again, .* give a folder .* by HALVING_CACHE"
    ) as warned:
        for _ in range(2):
            assert sorted(flat(numbers(dataset.loader("train", batch_size=5)))) == list(range(150))
    assert len(warned) == 1
    assert sorted(shard.name for shard in hashed_shards) == sorted(
        shard.name for shard in dataset.shards("train")
    )


def test_without_file_locks_a_shard_is_hashed_and_no_descriptor_leaks(
    dataset: Dataset, hashed_shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lustre and some network disks are by default."""

    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(retry, "_SUBJECTS", set())
    monkeypatch.setattr("fcntl.flock", flock)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.warns(UserWarning, match="the cache cannot remember which are whole: .*No locks available"):
        assert sorted(flat(numbers(dataset.loader("train", batch_size=5)))) == list(range(150))
    assert len(hashed_shards) == len(dataset.shards("train"))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
