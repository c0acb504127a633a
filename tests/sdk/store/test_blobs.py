"""Blobs are whole or not there, whatever happens to their writers, and no needed one is collected."""

import gzip
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halving import NotFound, Store, StoreError
from halving.maintenance.cold_tier import move_blob
from halving.store.cold import add_cold_root
from halving.store.files import CHUNK
from halving.store.store import blob_name, digest_of
from tests.s3 import S3, Gate

LARGE = 25_000_000  # bytes: a multipart upload
REQUEST = re.compile(rb"(HEAD|GET|PUT|POST|DELETE) /\S+ HTTP/1.1\r\n")


class Counting(Gate):
    """A gate that notes the methods of the requests that pass it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.methods: list[str] = []
        super().__init__(target)

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        class Noting:
            def recv(_, size: int) -> bytes:  # noqa: N805
                data = source.recv(size)
                self.methods.extend(method.decode() for method in REQUEST.findall(data))
                return data

            def __getattr__(_, name: str) -> object:  # noqa: N805
                return getattr(source, name)

        super()._carry(Noting(), sink)  # type: ignore[arg-type]


@pytest.fixture
def gate(s3: S3) -> Iterator[Counting]:
    gate = Counting((s3.host, s3.port))
    yield gate
    gate.shut()


def test_a_small_blob_costs_one_look_and_one_put_and_one_that_is_there_one_look(
    s3: S3, gate: Counting
) -> None:
    store = Store(s3.root(secrets.token_hex(6), endpoint=gate.endpoint))
    digest = store.put_blob(b"weights")
    assert gate.methods == ["HEAD", "PUT"]
    assert (store.put_blob(b"weights"), store.has_blob(digest), store.has_blob(digest_of(b"other"))) == (
        digest,
        True,
        False,
    )
    # where it is not, a listing says that there is no colder place
    assert gate.methods == ["HEAD", "PUT", *["HEAD"] * 3, "GET"]


def test_a_large_blob_is_fetched_in_few_large_parts(s3: S3, gate: Counting) -> None:
    store = Store(s3.root(secrets.token_hex(6), endpoint=gate.endpoint))
    content = os.urandom(2 * CHUNK + 1)
    digest = store.put_blob(content)
    gate.methods.clear()
    assert store.get_blob(digest) == content
    assert gate.methods == ["HEAD", *["GET"] * 3]
    with store.blob_file(digest) as path:
        assert path.read_bytes() == content
    assert gate.methods == ["HEAD", *["GET"] * 3] * 2


def test_a_file_is_stored_as_it_is_whatever_its_name_says(any_store: Store) -> None:
    any_store.create("backups/one/catalog.jsonl.gz", gzip.compress(b"{}"), sole=True)
    assert gzip.decompress(any_store.read("backups/one/catalog.jsonl.gz")) == b"{}"
    with any_store.open_stream("backups/one/catalog.jsonl.gz") as stream:
        assert gzip.decompress(stream.read()) == b"{}"
    assert any_store.sizes(["backups/one/catalog.jsonl.gz"]) == {
        "backups/one/catalog.jsonl.gz": len(gzip.compress(b"{}"))
    }


def test_a_blob_in_a_colder_place_costs_two_requests_more_to_read(s3: S3, gate: Counting) -> None:
    store, cold = (Store(s3.root(secrets.token_hex(6), endpoint=gate.endpoint)) for _ in range(2))
    digest = store.put_blob(b"weights")

    def requests_of_a_read() -> int:
        before = len(gate.methods)
        assert store.get_blob(digest) == b"weights"
        return len(gate.methods) - before

    here = requests_of_a_read()
    assert move_blob(store, add_cold_root(store, cold.root), digest, time.time() + 100)
    first = requests_of_a_read()
    later = requests_of_a_read()
    assert (here, first, later) == (2, 7, 4)  # the first read also finds out which places there are


@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_an_upload_that_fails_leaves_alone_what_another_process_has_put(
    s3: S3, tmp_path: Path, kill: signal.Signals
) -> None:
    root = s3.root(secrets.token_hex(6))
    content = os.urandom(LARGE)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    child = "import signal, sys, pathlib, halving.store.store\n"
    child += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    child += "halving.store.store.digest_of = lambda content: sys.argv[3]\n"  # the file can be read only once
    child += "halving.Store(sys.argv[1]).put_blob(pathlib.Path(sys.argv[2]))\n"
    arguments = [root, str(fifo), digest_of(content)]
    with (
        subprocess.Popen(
            [sys.executable, "-c", child, *arguments], stderr=subprocess.PIPE, text=True
        ) as uploading,
        fifo.open("wb") as source,  # which the child has opened when this returns
    ):
        source.write(content[: LARGE // 2])
        source.flush()
        digest = Store(root).put_blob(content)
        uploading.send_signal(kill)
        assert uploading.wait(60) == -kill
    assert Store(root).get_blob(digest) == content


@pytest.mark.parametrize("size", [1000, LARGE])
def test_a_file_that_changes_while_it_is_stored_is_refused_and_not_published(
    any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    source = tmp_path / "source"
    contents = [os.urandom(size), os.urandom(size)]
    source.write_bytes(contents[0])
    monkeypatch.setattr(
        "halving.store.store.digest_of",
        lambda content: (digest_of(content), content.write_bytes(contents[1]))[0],
    )
    with pytest.raises(StoreError, match="source changed while it was being stored"):
        any_store.put_blob(source)
    assert [any_store.has_blob(digest_of(content)) for content in contents] == [False, False]
    assert list(any_store.files("artifacts")) == []


def test_a_file_that_is_not_what_was_hashed_is_refused_and_not_published(
    any_store: Store, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    any_store.put_hashed_blob(source, digest_of(b"weights"))
    assert any_store.get_blob(digest_of(b"weights")) == b"weights"
    with pytest.raises(StoreError, match="source changed"):
        any_store.put_hashed_blob(source, digest_of(b"others"))
    assert not any_store.has_blob(digest_of(b"others"))


def test_a_blob_that_is_not_whole_is_written_again(any_store: Store) -> None:
    digest = any_store.put_blob(b"weights")
    any_store.replace(blob_name(digest), b"")
    any_store.put_blob(b"weights")
    assert any_store.get_blob(digest) == b"weights"


def test_an_old_blob_is_young_again_when_it_is_put_again(store: Store, tmp_path: Path) -> None:
    name = blob_name(store.put_blob(b"weights"))
    for age, touched in ((3600, False), (100_000, True)):
        written = time.time() - age
        os.utime(tmp_path / "store" / name, (written, written))
        store.put_blob(b"weights")
        assert (time.time() - (tmp_path / "store" / name).stat().st_mtime < age / 2) == touched


def test_a_blob_is_collected_only_if_it_was_put_before_the_given_time(any_store: Store) -> None:
    digest = any_store.put_blob(b"weights")
    assert not any_store.collect(blob_name(digest), time.time() - 60)
    assert any_store.has_blob(digest)
    assert any_store.collect(blob_name(digest), time.time() + 60)
    assert not any_store.has_blob(digest)
    assert not any_store.collect(blob_name(digest), time.time() + 60)
    assert list(any_store.files("artifacts")) == []


@pytest.mark.parametrize("content", [b"weights", b"wei"], ids=["whole", "damaged"])
def test_a_blob_that_is_put_while_it_is_collected_is_there_afterwards(
    any_store: Store, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr("halving.store.store.REFRESH_SECONDS", -60.0)  # every blob is old
    digest = any_store.put_blob(b"weights")
    any_store.replace(blob_name(digest), content)
    collector = Store(any_store.root)
    deleting = threading.Event()
    may_delete = threading.Event()
    monkeypatch.setattr(
        collector, "delete", lambda name: (deleting.set(), may_delete.wait(30), any_store.delete(name))
    )
    collecting = threading.Thread(target=collector.collect, args=(blob_name(digest), time.time() + 60))
    putter = Store(any_store.root)
    written = any_store._size_and_time
    looks = threading.Semaphore(0)
    monkeypatch.setattr(putter, "_size_and_time", lambda name: (looks.release(), written(name))[1])
    putting = threading.Thread(target=putter.put_blob, args=(b"weights",))
    for thread in (collecting, putting):
        thread.start()
        assert deleting.wait(30)
    for _ in range(3):  # whether it is there, and before each of two tries, the first of which was refused
        assert looks.acquire(timeout=30)
    may_delete.set()
    collecting.join()
    putting.join()
    assert any_store.get_blob(digest) == b"weights"


@pytest.mark.parametrize("size", [0, 1000, LARGE])
def test_a_blob_as_a_file_has_its_bytes_and_leaves_no_copy(
    any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    content = os.urandom(size)
    with any_store.blob_file(any_store.put_blob(content)) as path:
        assert path.read_bytes() == content
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_blob_that_is_damaged_or_absent_is_no_file(any_store: Store) -> None:
    digest = any_store.put_blob(b"weights")
    any_store.replace(blob_name(digest), b"weighty")
    with pytest.raises(StoreError, match=f"{digest}.*is damaged"), any_store.blob_file(digest):
        pass
    with pytest.raises(NotFound), any_store.blob_file(digest_of(b"other")):
        pass
