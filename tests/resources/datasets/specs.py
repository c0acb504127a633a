"""Specs of sources, and what is read of them."""

from typing import Any

import pyarrow as pa

from halving import Dataset
from resources.backend import Backend
from resources.datasets.snapshot_catalog import Snapshot
from resources.datasets.snapshots import take_snapshot
from resources.datasets.sources import open_source
from resources.sweep_spec.dataset import DatasetSource

POINTS = {"name": "points", "source": "tests.trainables:data", "target": "label"}


def spec(source: Any, **changes: Any) -> DatasetSource:
    """A spec of this source."""
    return DatasetSource.model_validate({"name": "points", "source": source, "target": "label", **changes})


def ids(source: Any) -> list[int]:
    """The ids of all rows of a source, in order."""
    return [
        number
        for part in open_source(spec(source)).parts
        for rows in part.read()
        for number in rows["id"].to_pylist()
    ]


def source(**changes: Any) -> DatasetSource:
    """A spec whose source is a function."""
    return DatasetSource.model_validate({**POINTS, **changes})


def open_dataset(backend: Backend, snapshot: Snapshot) -> Dataset:
    return Dataset(backend.store, snapshot.name, snapshot.digest)


def read_rows(backend: Backend, source: DatasetSource) -> pa.Table:
    """The rows of a new snapshot, sorted by id."""
    snapshot = take_snapshot(backend.store, backend.catalog, source)
    return open_dataset(backend, snapshot).read().sort_by("id")
