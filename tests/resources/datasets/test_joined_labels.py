"""A snapshot of labels and features has what was known at each label's time.

Its lineage says of which days.
"""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples import clicks
from halving import Dataset, InvalidInput, NotFound
from resources.backend import Backend
from resources.datasets.snapshot_catalog import Snapshot
from resources.datasets.snapshots import take_snapshot
from resources.features.materialize import materialize_all, materialize_day
from resources.features.partitions import digest_of_partitions, partitions
from resources.features.registry import registered_views
from resources.features.wanted import project_view, views_of
from resources.sweep_spec.dataset import DatasetSource
from tests.backends import CHECKOUT

DAYS = [date(2026, 3, 1) + timedelta(days=number) for number in range(clicks.DAYS)]


def spec(**changes: Any) -> DatasetSource:
    fields: dict[str, Any] = {
        "name": "ctr",
        "labels": "examples.clicks:labels",
        "features": ["clicks@1:ctr", "clicks@1:night as at_night"],
        "label_time": "visited_at",
        "target": "ordered",
    }
    return DatasetSource.model_validate({**fields, **changes})


@pytest.fixture(autouse=True)
def _views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALVING_FEATURES", str(CHECKOUT / "features"))


def take(backend: Backend, source: DatasetSource) -> Snapshot:
    return take_snapshot(backend.store, backend.catalog, source)


def rows(backend: Backend, snapshot: Snapshot) -> list[dict[str, Any]]:
    table = Dataset(backend.store, snapshot.name, snapshot.digest).read()
    return sorted(table.to_pylist(), key=lambda row: (row["visited_at"], row["user_id"]))


def brute_force() -> list[dict[str, Any]]:
    """Each label with its user's newest hour that was loaded by then, and is at most two days old."""
    hours: dict[int, list[dict[str, Any]]] = {}
    for row, features in zip(
        clicks.hourly().to_pylist(), clicks.transform(clicks.hourly()).to_pylist(), strict=True
    ):
        hours.setdefault(row["user_id"], []).append(row | features)
    joined = []
    for label in clicks.labels().to_pylist():
        hours_so_far = [hour for hour in hours[label["user_id"]] if hour["loaded_at"] <= label["visited_at"]]
        newest = max(hours_so_far, key=lambda hour: (hour["ts"], hour["loaded_at"]), default=None)
        if newest is None or label["visited_at"] - newest["ts"] > timedelta(days=2):
            newest = {"ctr": None, "night": None}
        joined.append({**label, "ctr": newest["ctr"], "at_night": newest["night"]})
    return sorted(joined, key=lambda row: (row["visited_at"], row["user_id"]))


def test_the_rows_are_the_labels_with_what_was_known_at_their_time(backend: Backend) -> None:
    materialize_all(backend.store, project_view("clicks@1"))
    snapshot = take(backend, spec())
    assert rows(backend, snapshot) == brute_force()
    manifest = Dataset(backend.store, "ctr", snapshot.digest).manifest
    assert manifest["schema"] == {**_schema(clicks.labels()), "ctr": "double", "at_night": "bool"}
    joined = [partition for partition in partitions(backend.store, "clicks", 1) if partition.day in DAYS]
    digest = digest_of_partitions(joined)
    hours = sum(ts.date() in DAYS for ts in clicks.hourly()["ts"].to_pylist())
    assert manifest["lineage"]["source"] == {
        "kind": "features",
        "labels": {"kind": "function", "function": "examples.clicks:labels"},
        "features": ["clicks@1:ctr", "clicks@1:night as at_night"],
        "views": {
            "clicks@1": {
                "days": len(DAYS),
                "first": "2026-03-01",
                "last": "2026-03-14",
                "rows": hours,
                "partitions": digest,
            }
        },
        "partitions": digest,
    }
    assert "def labels()" in manifest["lineage"]["code"]["labels"]
    assert snapshot.source == "examples.clicks:labels with clicks@1:ctr, clicks@1:night as at_night"
    assert list(registered_views(backend.catalog)) == ["clicks@1"]


def test_the_same_labels_and_days_are_the_same_snapshot_and_another_day_is_not(
    backend: Backend,
) -> None:
    view = project_view("clicks@1")
    for day in DAYS[:3]:
        materialize_day(backend.store, view, day)
    first = take(backend, spec())
    again = take(backend, spec())
    assert (again.digest, again.new) == (first.digest, False)
    materialize_day(backend.store, view, DAYS[3])
    other = take(backend, spec())
    assert other.new
    assert other.digest != first.digest
    assert _days(backend, other) == _days(backend, first) + 1


def test_a_label_stays_in_its_split_when_its_features_change(backend: Backend) -> None:
    view = project_view("clicks@1")
    materialize_day(backend.store, view, DAYS[0])
    before = take(backend, spec())
    materialize_all(backend.store, view)
    after = take(backend, spec())
    assert _schema(clicks.labels()).keys() - {"ordered"} == set(
        Dataset(backend.store, "ctr", after.digest).manifest["key"]
    )
    for split in ("train", "validation", "test"):
        old, new = (
            _labels(Dataset(backend.store, "ctr", snapshot.digest).read(split))
            for snapshot in (before, after)
        )
        assert old == new


def test_a_definition_that_the_version_was_not_materialised_by_is_refused(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    materialize_day(backend.store, project_view("clicks@1"), DAYS[0])
    take(backend, spec())
    text = (CHECKOUT / "features" / "clicks.yaml").read_text()
    (tmp_path / "clicks.yaml").write_text(text.replace("ttl: 2d", "ttl: 9d"))
    monkeypatch.setenv("HALVING_FEATURES", str(tmp_path))
    with pytest.raises(InvalidInput, match="ttl was 2d and is 9d"):
        take(backend, spec())


def test_a_view_that_was_never_materialised_is_named_with_the_command(backend: Backend) -> None:
    with pytest.raises(
        NotFound, match=r"clicks@1 has not been materialised in .*; halving features materialize does it"
    ):
        take(backend, spec())


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("click@1:ctr", r"no feature view click@1, did you mean 'clicks@1'\?; there are clicks@1"),
        ("clicks@2:ctr", r"no feature view clicks@2, did you mean 'clicks@1'\?; there are clicks@1"),
        ("clicks@1:rate", "clicks@1 has no such feature; it has ctr, night"),
    ],
)
def test_a_feature_that_does_not_exist_is_refused_with_what_there_is(feature: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        views_of(spec(features=[feature]))


def test_a_project_without_views_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALVING_FEATURES", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"there are none: define one in features/NAME\.yaml"):
        views_of(spec())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"files": "gone/*.parquet"}}, r"dataset\.labels\.files = 'gone/\*\.parquet'"),
        (
            {"labels": {"sql": "SELECT 1 AS user_id WHERE false"}},
            r"dataset\.labels is not accepted: it has no rows",
        ),
        ({"label_time": "at"}, "they have no column 'at'"),
        (
            {"labels": {"sql": "SELECT 1 AS user_id, TIMESTAMP '2026-03-02' AS visited_at, 1 AS ordered"}},
            "'visited_at' .* has no time zone",
        ),
    ],
)
def test_labels_that_cannot_be_joined_are_refused_by_the_field(
    backend: Backend, changes: dict[str, Any], message: str
) -> None:
    materialize_day(backend.store, project_view("clicks@1"), DAYS[0])
    with pytest.raises(InvalidInput, match=message):
        take(backend, spec(**changes))


def _days(backend: Backend, snapshot: Snapshot) -> int:
    days: int = Dataset(backend.store, "ctr", snapshot.digest).manifest["lineage"]["source"]["views"][
        "clicks@1"
    ]["days"]
    return days


def _labels(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(
        zip(*(table[name].to_pylist() for name in ("visited_at", "user_id", "ordered")), strict=True)
    )


def _schema(table: pa.Table) -> dict[str, str]:
    return {column.name: str(column.type) for column in table.schema}
