"""The store: files are written once, whole or not at all, and blobs are their content."""

import hashlib
import multiprocessing
import os
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from halving import AlreadyExists, InvalidInput, NotFound, Store, StoreError
from halving.store.store import blob_name
from tests.sdk.conftest import Script

RACES = 25


def files_under(folder: Path) -> list[str]:
    """All files, hidden ones as well."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_what_is_created_is_read_back(any_store: Store) -> None:
    for name, data in {"a.json": b"{}", "deep/er/b.bin": bytes(range(256)) * 5000, "empty": b""}.items():
        any_store.create(name, data)
        assert any_store.read(name) == data
        assert any_store.exists(name)


def test_a_name_is_not_there_until_it_is_created(any_store: Store) -> None:
    assert not any_store.exists("a/b")
    with pytest.raises(NotFound, match="no a/b in the store"):
        any_store.read("a/b")
    any_store.create("a/b", b"1")
    assert any_store.exists("a/b")


def test_creating_the_same_bytes_again_is_allowed(any_store: Store) -> None:
    any_store.create("a/b", b"1")
    any_store.create("a/b", b"1")
    assert any_store.read("a/b") == b"1"


def test_a_created_file_never_changes(any_store: Store) -> None:
    any_store.create("a/b", b"1")
    with pytest.raises(AlreadyExists, match="a/b exists with other content"):
        any_store.create("a/b", b"2")
    assert any_store.read("a/b") == b"1"


def test_replace_is_the_one_way_to_change_a_file(any_store: Store) -> None:
    any_store.replace("page.html", b"1")
    any_store.replace("page.html", b"22")
    assert any_store.read("page.html") == b"22"
    assert any_store.names("") == ["page.html"]


def test_names_are_sorted_and_those_of_one_folder(any_store: Store) -> None:
    for name in ("d/b", "d/a", "d/sub/c", "e"):
        any_store.create(name, b"")
    assert any_store.names("d") == ["a", "b", "sub"]
    assert any_store.names("d/sub") == ["c"]
    assert any_store.names("nowhere") == []


def test_a_folder_by_its_address_is_that_folder(tmp_path: Path) -> None:
    assert Store(f"file://{tmp_path}/a%20store").folder == tmp_path / "a store"


def test_a_blob_is_named_by_its_content(any_store: Store) -> None:
    content = os.urandom(3_000_000)
    digest = any_store.put_blob(content)
    assert digest == "sha256:" + hashlib.sha256(content).hexdigest()
    assert any_store.get_blob(digest) == content
    assert any_store.exists(f"artifacts/sha256/{digest[7:9]}/{digest[7:]}")


def test_a_blob_is_stored_once_however_often_it_is_put(any_store: Store, tmp_path: Path) -> None:
    source = tmp_path / "model.bin"
    source.write_bytes(b"weights" * 1000)
    digests = {
        any_store.put_blob(b"weights" * 1000),
        any_store.put_blob(source),
        any_store.put_blob(b"weights" * 1000),
    }
    assert len(digests) == 1
    name = blob_name(digests.pop())
    assert any_store.names(name.rpartition("/")[0]) == [name.rpartition("/")[2]]


def test_a_file_and_its_bytes_are_the_same_blob(any_store: Store, tmp_path: Path) -> None:
    content = os.urandom(2_500_000)  # more than two chunks
    (tmp_path / "big").write_bytes(content)
    assert any_store.get_blob(any_store.put_blob(tmp_path / "big")) == content


def test_a_damaged_blob_is_noticed(any_store: Store) -> None:
    digest = any_store.put_blob(b"weights")
    any_store.replace(blob_name(digest), b"weighty")
    with pytest.raises(StoreError, match=f"{digest}.*is damaged"):
        any_store.get_blob(digest)


def test_an_absent_blob_is_not_found(any_store: Store) -> None:
    with pytest.raises(NotFound):
        any_store.get_blob("sha256:" + "0" * 64)


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


@pytest.mark.slow
def test_a_write_that_the_disk_refuses_leaves_nothing_and_the_name_free(
    script: Script, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(b"y" * 5000)
    done = script(
        "import resource, pathlib, halving\n"
        # a full disk, as far as one file can tell
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
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


def test_the_root_is_the_argument_then_the_environment_then_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Store().folder == tmp_path / ".halving"
    monkeypatch.setenv("HALVING_ROOT", str(tmp_path / "chosen"))
    assert Store().folder == tmp_path / "chosen"
    assert Store("here").folder == tmp_path / "here"


def test_a_store_stays_where_it_was_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store("s")
    store.create("a", b"1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.read("a") == b"1"


def _create_all(root: str, content: bytes, barrier: Barrier, answer: Connection) -> None:
    store = Store(root)
    won = []
    for number in range(RACES):
        barrier.wait(30)
        try:
            store.create(f"race/{number}", content)
            won.append(number)
        except AlreadyExists:
            pass
    answer.send(won)


@pytest.mark.slow
def test_of_two_processes_that_create_a_name_one_wins_and_no_file_is_torn(
    any_store: Store,
) -> None:
    spawn = multiprocessing.get_context("spawn")
    contents = [letter * 300_000 for letter in (b"a", b"b")]
    barrier = spawn.Barrier(2)
    pipes = [spawn.Pipe(duplex=False) for _ in contents]
    processes = [
        spawn.Process(target=_create_all, args=(any_store.root, content, barrier, writing))
        for content, (_, writing) in zip(contents, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        for name in any_store.names("race"):
            assert any_store.read(f"race/{name}") in contents
    assert [process.exitcode for process in processes] == [0, 0]
    won = [reading.recv() for reading, _ in pipes]
    assert sorted(won[0] + won[1]) == list(range(RACES))
    for winner, content in zip(won, contents, strict=True):
        for number in winner:
            assert any_store.read(f"race/{number}") == content
    assert len(any_store.names("race")) == RACES
