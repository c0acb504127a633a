"""The benchmark's object store serves real clients, and compaction and the index ask little of it."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import compaction, index_on_s3
from benchmarks.object_server import CREDENTIALS, ObjectServer, object_server
from benchmarks.stores import PROJECT
from halving import NotFound, Store
from halving.maintenance import compaction as maintained
from resources.analysis.run_index.entry import read_entry
from resources.catalog import Catalog
from resources.upkeep.bulk_delete import delete_at_once
from resources.upkeep.compaction import compact_waiting
from tests.indexed_runs import names


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


def test_what_is_stored_is_read_listed_and_deleted(server: ObjectServer) -> None:
    store = Store(server.root("bucket"))
    digest = store.put_blob(b"content" * 1_000)
    for name in "abc":
        store.create(f"folder/{name}", name.encode())
    assert store.get_blob(digest) == b"content" * 1_000
    assert store.names("folder") == ["a", "b", "c"]
    assert store.names("") == ["artifacts", "folder"]
    with store.open_file("folder/a") as file:
        assert file.read() == b"a"
    delete_at_once(store, [f"folder/{name}" for name in "abc"])
    assert store.names("folder") == []
    with pytest.raises(NotFound):
        store.read("folder/a")


def test_compaction_costs_two_reads_a_segment_ten_writes_and_one_deletion(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    root = compaction.fill(server, url, 1)
    catalog = Catalog(url)
    store = Store(root)
    server.counts.clear()
    assert compact_waiting(store, catalog).points == 6_400
    counts = server.counts
    assert counts["GET"] <= 64 + 2
    assert counts["HEAD"] <= 64 + 8
    assert counts["PUT"] + counts["LIST"] + counts["POST"] <= 10
    server.counts.clear()
    monkeypatch.setattr(maintained, "GRACE_SECONDS", 0.0)
    compaction.make_due(url)
    assert compact_waiting(store, catalog).cleaned == 1
    assert (server.counts["POST"], server.counts["DELETE"]) == (1, 0)
    assert server.counts.total() <= 7
    assert not [path for path in server.objects if path.endswith(".parquet") and "/live/" in path]
    catalog.close()


@pytest.mark.parametrize(("compacted", "files"), [(False, 3), (True, 4)])
def test_the_index_reads_an_ended_run_with_two_listings_and_each_file_once(
    server: ObjectServer, tmp_path: Path, compacted: bool, files: int
) -> None:
    """A compacted run has a record, an end, a manifest and a rollup; a file is asked for its size first."""
    store = Store(index_on_s3.fill(server, str(tmp_path), 4, compacted=compacted))
    for place in range(4):
        server.counts.clear()
        entry = read_entry(store, PROJECT, f"run-{place:06d}")
        assert entry is not None
        assert len([name for kind, name in entry.values if kind == "metrics"]) == index_on_s3.METRICS
        assert server.counts == {"LIST": 2, "HEAD": files, "GET": files}
        server.counts.clear()
        assert read_entry(store, PROJECT, f"run-{place:06d}", entry.row) is None
        assert server.counts == {"LIST": 2}


@pytest.mark.slow
def test_several_processes_read_each_run_once_and_the_index_has_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HALVING_JOURNAL", *CREDENTIALS):  # which it sets, as in a process of its own
        monkeypatch.setenv(name, os.environ.get(name, ""))
    runs = 600  # so many are worth processes of their own, where there are several cores
    counts = index_on_s3.make_index(str(tmp_path), runs, compacted=False)["counts"]
    assert (counts["HEAD"], counts["GET"]) == (3 * runs, 3 * runs)
    assert 2 * runs < counts["LIST"] < 2 * runs + 10
    with closing(Catalog(f"sqlite:///{tmp_path}/index.db")) as catalog:
        assert len(names(catalog, "status = finished and metrics.metric_9 > 0")) == runs
