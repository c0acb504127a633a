"""Datasets over HTTP: snapshots, and the features that were joined to them."""

from collections.abc import Callable
from datetime import date

from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.features.partitions import partitions
from resources.sweep_spec import SweepSpec
from tests.searches import search
from tests.server.joined import with_features
from tests.server.registry import score

Spec = Callable[..., SweepSpec]


def test_datasets_show_their_snapshots_and_the_sweeps_on_them(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    sweep = search(either_backend, small_spec(max_trials=1), score)
    (dataset,) = client.get("/datasets").json()["datasets"]
    assert dataset["name"] == "points"
    assert dataset["snapshots"][0]["sweeps"] == [sweep]
    assert client.get("/datasets/points").json() == dataset
    assert client.get("/datasets/nothing").json()["detail"] == "no dataset 'nothing'; there are points"


def test_a_snapshot_says_which_features_were_joined_to_it(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    snapshot = with_features(either_backend, date(2026, 3, 1), date(2026, 3, 2))
    made = partitions(either_backend.store, "clicks", 1)
    columns = [{"name": "ctr", "feature": "ctr"}, {"name": "at_night", "feature": "night"}]
    days = {"days": 2, "first": "2026-03-01", "last": "2026-03-02", "rows": sum(day.rows for day in made)}
    answered = client.get(f"/datasets/ctr/{snapshot.digest.removeprefix('sha256:')}").json()
    assert answered["views"] == [{"view": "clicks@1", "columns": columns, **days}]
    without_features = take_snapshot(either_backend.store, either_backend.catalog, small_spec().dataset)
    assert (
        client.get(f"/datasets/points/{without_features.digest.removeprefix('sha256:')}").json()["views"]
        == []
    )
