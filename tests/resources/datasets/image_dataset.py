"""A dataset of 6,000 rows of 1 KiB."""

from halving import Dataset
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.tables import images

SPEC = {
    "name": "points",
    "source": "tests.resources.datasets.image_dataset:rows",
    "target": "label",
    "shard_mib": 1,
}


def rows() -> object:
    """6,000 rows of 1 KiB, in batches."""
    return iter(images(6_000).to_batches(max_chunksize=500))


def take(backend: Backend) -> Dataset:
    snapshot = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(SPEC))
    return Dataset(backend.store, snapshot.name, snapshot.digest)
