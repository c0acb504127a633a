"""The manifest of 10 TB: its size on disk, and the memory to open it and to begin training."""

import hashlib
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset, Store
from halving.data.loader import Loader
from halving.data.loader_plan import LANES
from halving.data.order import Order
from halving.data.shards import Shard, shards_of
from halving.data.snapshot import snapshot_folder
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource

SHARDS = 80_000
ROWS = 1_000
BYTES = 128 * 2**20
BATCH = 64


@pytest.fixture
def dataset(backend: Backend, provide: Callable[..., DatasetSource]) -> Dataset:
    """A snapshot with 80,000 shards to train on.

    The shards of the beginning of the first epoch are one stored shard.
    """
    parts = ["train"] * ROWS + ["validation"] * 10 + ["test"] * 10
    table = pa.table({"x": np.arange(len(parts)), "label": np.arange(len(parts)) % 2, "part": parts})
    snapshot = take_snapshot(backend.store, backend.catalog, provide(table, split_column="part"))
    manifest = Dataset(backend.store, snapshot.name, snapshot.digest).manifest
    (real,) = shards_of(manifest, "train")
    # The columns are read from shard 0.
    first = {0, *Order([ROWS] * SHARDS, seed=0, epoch=1, lanes=LANES).needs()[1][:LANES].tolist()}
    names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(SHARDS)]
    shards = [real if number in first else Shard(name, ROWS, BYTES) for number, name in enumerate(names)]
    return publish(backend.store, manifest, shards)


def publish(store: Store, manifest: dict[str, Any], shards: list[Shard]) -> Dataset:
    """Write the manifest of a snapshot like another one, but with these shards to train on."""
    digest = "sha256:" + hashlib.sha256(repr(shards).encode()).hexdigest()
    splits = {**manifest["splits"], "train": sum(shard.rows for shard in shards)}
    entries = {**manifest["shards"], "train": [[shard.sha256, shard.rows, shard.bytes] for shard in shards]}
    size = sum(entry[2] for of_split in entries.values() for entry in of_split)
    large = {
        **manifest,
        "digest": digest,
        "splits": splits,
        "rows": sum(splits.values()),
        "bytes": size,
        "shards": entries,
    }
    text = json.dumps(large, separators=(",", ":"), sort_keys=True)
    store.create(f"{snapshot_folder('points', digest)}/manifest.json", text.encode())
    return Dataset(store, "points", digest)


def peak_of(act: Callable[[], Any]) -> int:
    """The peak of additional memory that Python and NumPy hold."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_manifest_of_ten_terabytes_is_seven_megabytes(dataset: Dataset) -> None:
    size = len(dataset.store.read(f"{dataset.folder}/manifest.json"))
    assert dataset.manifest["bytes"] > 10 * 10**12
    assert 6_500_000 < size < 7_000_000


def test_training_on_ten_terabytes_begins_with_some_hundred_bytes_a_shard(
    dataset: Dataset,
) -> None:
    assert peak_of(lambda: dataset.manifest) < 500 * SHARDS
    assert len(dataset.shards("train")) == SHARDS
    loaders: list[Loader] = []
    assert peak_of(lambda: loaders.append(dataset.loader("train", batch_size=BATCH))) < 125 * SHARDS
    (loader,) = loaders
    assert len(loader) == SHARDS * ROWS // BATCH
    batches: list[dict[str, Any]] = []
    assert peak_of(lambda: batches.append(next(iter(loader)))) < 300 * SHARDS
    assert [len(column) for column in batches[0].values()] == [BATCH] * 3
