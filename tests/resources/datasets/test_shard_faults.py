"""Missing and damaged shards are found, named and restored."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from halving import Dataset, NotFound, Store, StoreError
from halving.data.shards import shards_of
from resources.backend import Backend
from resources.datasets import shard_copies
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.image_dataset import take
from tests.resources.datasets.tables import images


def test_a_snapshot_is_taken_grown_verified_and_mended_in_any_store(
    any_store: Store, backend: Backend, tmp_path: Path
) -> None:
    source = DatasetSource.model_validate(
        {"name": "points", "source": {"files": f"{tmp_path}/*.parquet"}, "target": "label", "shard_mib": 1}
    )
    pq.write_table(images(3_000), tmp_path / "0.parquet")
    first = take_snapshot(any_store, backend.catalog, source)
    assert take_snapshot(any_store, backend.catalog, source).digest == first.digest
    pq.write_table(images(60, 3_000), tmp_path / "1.parquet")
    dataset = Dataset(any_store, "points", take_snapshot(any_store, backend.catalog, source).digest)
    assert dataset.manifest["lineage"]["before"] == first.digest
    assert dataset.manifest["stored"] <= 0.03 * first.bytes
    assert dataset.read().sort_by("id").equals(images(3_060))
    copy = Store(tmp_path / "copy")
    shards = dataset.shards("train")
    for shard in shards:
        copy.create(shard.name, any_store.read(shard.name))
    any_store.replace(shards[0].name, any_store.read(shards[0].name)[::-1])
    any_store.delete(shards[1].name)
    faults = [(fault.shard, fault.problem) for fault in shard_copies.verify(dataset) if fault is not None]
    assert faults == [(shards[0], "damaged"), (shards[1], "missing")]
    assert [fault.shard for fault in shard_copies.fetch(dataset, copy) if fault is not None] == shards[:2]
    assert list(filter(None, shard_copies.verify(dataset))) == []
    assert dataset.read().sort_by("id").equals(images(3_060))


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store to which shards are pushed as they are made."""
    monkeypatch.setenv(shard_copies.REMOTE, str(tmp_path / "remote"))
    return Store(tmp_path / "remote")


def _cut_off(path: Path) -> None:
    _write_anew(path, path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    _write_anew(path, bytes(content))


def _write_anew(path: Path, content: bytes) -> None:
    path.unlink()  # Whoever has it mapped keeps the old one.
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("fault", "what"), [(Path.unlink, "missing"), (_cut_off, "damaged"), (_flip, "damaged")]
)
def test_a_faulty_shard_is_found_named_and_fetched(
    backend: Backend, remote: Store, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path], None], what: str
) -> None:
    dataset = take(backend)
    whole = dataset.read()
    shard = shards_of(dataset.manifest, "train")[1]
    fault(Path(backend.store.path(shard.name)))
    faults = [outcome for outcome in shard_copies.verify(dataset) if outcome is not None]
    assert [(outcome.split, outcome.shard, outcome.problem) for outcome in faults] == [("train", shard, what)]
    monkeypatch.delenv(shard_copies.REMOTE)  # With a remote, reading would fetch the shard.
    with pytest.raises((NotFound, StoreError), match=shard.sha256):
        dataset.read("train")
    brought = [outcome.shard for outcome in shard_copies.fetch(dataset, remote) if outcome is not None]
    assert brought == [shard]
    assert dataset.read().equals(whole)
    assert [outcome for outcome in shard_copies.verify(dataset) if outcome is not None] == []


def test_a_copy_that_is_damaged_too_is_not_fetched(backend: Backend, remote: Store) -> None:
    dataset = take(backend)
    shard = shards_of(dataset.manifest, "train")[1]
    for store in (backend.store, remote):
        _flip(Path(store.path(shard.name)))
    with pytest.raises(StoreError, match=f"{shard.name} of {remote.root} is damaged"):
        list(shard_copies.fetch(dataset, remote))
    Path(remote.path(shard.name)).unlink()
    with pytest.raises(NotFound, match=shard.name):
        list(shard_copies.fetch(dataset, remote))


def test_rows_of_a_damaged_small_shard_do_not_get_into_the_snapshot_that_merges_it(
    backend: Backend, remote: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DatasetSource.model_validate(
        {"name": "points", "source": {"files": str(tmp_path / "*.parquet")}, "target": "label"}
    )
    pq.write_table(images(200), tmp_path / "first.parquet")
    first = take_snapshot(backend.store, backend.catalog, source)
    shard = shards_of(Dataset(backend.store, "points", first.digest).manifest, "train")[0]
    _flip(Path(backend.store.path(shard.name)))
    pq.write_table(images(1_000, 200), tmp_path / "second.parquet")
    with monkeypatch.context() as patch:
        patch.delenv(shard_copies.REMOTE)
        with pytest.raises(StoreError, match=f"{shard.name} .* is damaged"):
            take_snapshot(backend.store, backend.catalog, source)
    with pytest.warns(UserWarning, match=f"{shard.name} .*; it was fetched again from {remote.root}"):
        second = take_snapshot(backend.store, backend.catalog, source)
    assert Dataset(backend.store, "points", second.digest).read().sort_by("id").equals(images(1_200))
