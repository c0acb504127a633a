"""A snapshot of labels with the features of this project's example, of which some days were materialised."""

from datetime import date

import pytest

from resources.backend import Backend
from resources.datasets.snapshot_catalog import Snapshot
from resources.datasets.snapshots import take_snapshot
from resources.features.materialize import materialize_day
from resources.features.wanted import project_view
from resources.sweep_spec.dataset import DatasetSource
from tests.backends import CHECKOUT

SPEC = {
    "name": "ctr",
    "labels": "examples.clicks:labels",
    "features": ["clicks@1:ctr", "clicks@1:night as at_night"],
    "label_time": "visited_at",
    "target": "ordered",
}


def with_features(backend: Backend, *days: date) -> Snapshot:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HALVING_FEATURES", str(CHECKOUT / "features"))
        for day in days:
            materialize_day(backend.store, project_view("clicks@1"), day)
        return take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(SPEC))
