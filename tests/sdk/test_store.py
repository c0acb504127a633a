"""The store: files are written once, whole or not at all, and blobs are their content."""

import hashlib
import multiprocessing
import os
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from halving import AlreadyExists, InvalidInput, NotFound, Store, StoreError
from halving.store import blob_name
from tests.sdk.conftest import Script

ROOTS = ["folder", "address"]
RACES = 25


@pytest.fixture(params=ROOTS)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The same folder, reached as a folder and as an address through ``pyarrow.fs``."""
    root = tmp_path / "store"
    return Store(root if request.param == "folder" else f"file://{root}")


def files_under(folder: Path) -> list[str]:
    """All files, hidden ones as well."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_what_is_created_is_read_back(either: Store) -> None:
    for name, data in {"a.json": b"{}", "deep/er/b.bin": bytes(range(256)) * 5000, "empty": b""}.items():
        either.create(name, data)
        assert either.read(name) == data
        assert either.exists(name)


def test_a_name_is_not_there_until_it_is_created(either: Store) -> None:
    assert not either.exists("a/b")
    with pytest.raises(NotFound, match="no a/b in the store"):
        either.read("a/b")
    either.create("a/b", b"1")
    assert either.exists("a/b")


def test_creating_the_same_bytes_again_is_allowed(either: Store) -> None:
    either.create("a/b", b"1")
    either.create("a/b", b"1")
    assert either.read("a/b") == b"1"


def test_a_created_file_never_changes(either: Store) -> None:
    either.create("a/b", b"1")
    with pytest.raises(AlreadyExists, match="a/b exists with other content"):
        either.create("a/b", b"2")
    assert either.read("a/b") == b"1"


def test_replace_is_the_one_way_to_change_a_file(either: Store) -> None:
    either.replace("page.html", b"1")
    either.replace("page.html", b"22")
    assert either.read("page.html") == b"22"
    assert either.names("") == ["page.html"]


def test_names_are_sorted_and_those_of_one_folder(either: Store) -> None:
    for name in ("d/b", "d/a", "d/sub/c", "e"):
        either.create(name, b"")
    assert either.names("d") == ["a", "b", "sub"]
    assert either.names("d/sub") == ["c"]
    assert either.names("nowhere") == []


def test_both_ways_to_a_folder_see_the_same_files(tmp_path: Path) -> None:
    folder, address = Store(tmp_path / "s"), Store(f"file://{tmp_path}/s")
    folder.create("a/1", b"one")
    address.create("a/2", b"two")
    digest = address.put_blob(b"three")
    assert folder.names("a") == address.names("a") == ["1", "2"]
    assert (address.read("a/1"), folder.read("a/2"), folder.get_blob(digest)) == (b"one", b"two", b"three")


def test_a_blob_is_named_by_its_content(either: Store) -> None:
    content = os.urandom(3_000_000)
    digest = either.put_blob(content)
    assert digest == "sha256:" + hashlib.sha256(content).hexdigest()
    assert either.get_blob(digest) == content
    assert either.exists(f"artifacts/sha256/{digest[7:9]}/{digest[7:]}")


def test_a_blob_is_stored_once_however_often_it_is_put(either: Store, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(b"weights" * 1000)
    digests = {either.put_blob(b"weights" * 1000), either.put_blob(source), either.put_blob(b"weights" * 1000)}
    assert len(digests) == 1
    assert len(files_under(tmp_path / "store")) == 1


def test_a_file_and_its_bytes_are_the_same_blob(either: Store, tmp_path: Path) -> None:
    content = os.urandom(2_500_000)  # more than two chunks
    (tmp_path / "big").write_bytes(content)
    assert either.get_blob(either.put_blob(tmp_path / "big")) == content


def test_a_damaged_blob_is_noticed(either: Store, tmp_path: Path) -> None:
    digest = either.put_blob(b"weights")
    (tmp_path / "store" / blob_name(digest)).write_bytes(b"weighty")
    with pytest.raises(StoreError, match=f"{digest}.*is damaged"):
        either.get_blob(digest)


def test_an_absent_blob_is_not_found(either: Store) -> None:
    with pytest.raises(NotFound):
        either.get_blob("sha256:" + "0" * 64)


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "latest",
        "md5:" + "0" * 32,
        "sha256:" + "0" * 63,
        "sha256:" + "g" * 64,
        "sha256:" + "A" * 64,
        "sha256:../../../../../../etc/" + "x" * 42,
        "sha256:" + "0" * 64 + "\n",
    ],
)
def test_only_a_digest_names_a_blob(store: Store, digest: str) -> None:
    with pytest.raises(InvalidInput, match="give sha256:"):
        store.get_blob(digest)


def test_no_temporary_file_stays_behind_what_was_written(store: Store, tmp_path: Path) -> None:
    store.create("a/b", b"1")
    store.create("a/b", b"1")
    with pytest.raises(AlreadyExists):
        store.create("a/b", b"2")
    digest = store.put_blob(b"blob")
    assert files_under(tmp_path / "store") == sorted(["a/b", blob_name(digest)])


def test_a_write_that_the_disk_refuses_leaves_nothing_and_the_name_free(script: Script, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"y" * 5000)
    done = script(
        "import resource, pathlib, halving\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"  # a full disk, as far as one file can tell
        "store = halving.Store()\n"
        "writes = [lambda: store.create('a/b', b'x' * 5000), lambda: store.put_blob(b'x' * 5000),\n"
        "          lambda: store.put_blob(pathlib.Path('large'))]\n"
        "for write in writes:\n"
        "    try:\n"
        "        write()\n"
        "    except halving.StoreError as error:\n"
        "        print(error)\n"
        "print([str(p) for p in store.folder.rglob('*') if p.is_file()])\n"
        "store.create('a/b', b'small')\n"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("File too large" in line for line in lines[:3])
    assert lines[3] == "[]"
    assert files_under(tmp_path / "store") == ["a/b"]


def test_a_root_that_is_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("not a folder")
    for name in ("top", "folder/file"):
        with pytest.raises(StoreError, match=f"cannot write .*{name}"):
            Store(tmp_path / "root").create(name, b"")
    with pytest.raises(StoreError, match="cannot write the blob"):
        Store(tmp_path / "root").put_blob(b"")


def test_the_root_is_the_argument_then_the_environment_then_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Store().folder == tmp_path / ".halving"
    monkeypatch.setenv("HALVING_ROOT", str(tmp_path / "chosen"))
    assert Store().folder == tmp_path / "chosen"
    assert Store("here").folder == tmp_path / "here"


def test_a_store_stays_where_it_was_when_the_working_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("s")
    store.create("a", b"1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.read("a") == b"1"


def _create_all(root: str, content: bytes, barrier: Barrier, answer: Connection) -> None:
    store, won = Store(root), []
    for number in range(RACES):
        barrier.wait(30)
        try:
            store.create(f"race/{number}", content)
            won.append(number)
        except AlreadyExists:
            pass
    answer.send(won)


def test_one_of_two_processes_that_create_the_same_name_wins_and_nobody_sees_a_torn_file(store: Store, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    contents = [letter * 300_000 for letter in (b"a", b"b")]
    barrier, pipes = spawn.Barrier(2), [spawn.Pipe(duplex=False) for _ in contents]
    processes = [
        spawn.Process(target=_create_all, args=(store.root, content, barrier, writing))
        for content, (_, writing) in zip(contents, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        for name in store.names("race"):
            assert store.read(f"race/{name}") in contents
    assert [process.exitcode for process in processes] == [0, 0]
    won = [reading.recv() for reading, _ in pipes]
    assert sorted(won[0] + won[1]) == list(range(RACES))
    for winner, content in zip(won, contents, strict=True):
        for number in winner:
            assert store.read(f"race/{number}") == content
    assert len(files_under(tmp_path / "store")) == RACES
