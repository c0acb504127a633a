"""The assets of feature views: a partition for each day, and what was known last in the online store."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from assets.datasets import materialized_snapshot, snapshots_below
from assets.features import asset_key, feature_assets
from halving import Dataset
from halving.features import OnlineFeatures
from pipelines.definitions import defs
from resources.backend import Backend
from resources.catalog import FeatureViewRow
from resources.datasets.snapshots import take_snapshot
from resources.features.partitions import digest_of_partitions, partitions
from resources.features.registry import registered_views
from resources.features.view import load_view
from resources.features.wanted import online_address
from resources.sweep_spec.dataset import DatasetSource
from tests.backends import CHECKOUT

DAYS = ("2026-03-01", "2026-03-02")
VIEW = {
    "name": "visits",
    "version": 1,
    "entity": ["user_id"],
    "event_time": "ts",
    "delay": "1h",
    "start": "2026-03-01",
    "source": {"function": "tests.assets.test_features:visits"},
    "transform": "tests.assets.test_features:unless_thirteen",
    "schema": {"pages": "int64"},
    "online": True,
}


def visits() -> pa.Table:
    """Two users on each of two days."""
    times = [datetime(2026, 3, day, hour, tzinfo=UTC) for day in (1, 2) for hour in (8, 9)]
    return pa.table(
        {"user_id": [1, 2, 1, 2], "ts": pa.array(times, pa.timestamp("us", tz="UTC")), "pages": [3, 4, 13, 5]}
    )


def unless_thirteen(rows: pa.Table) -> pa.Table:
    if 13 in rows["pages"].to_pylist():
        raise ArithmeticError("thirteen pages")
    return rows.select(["pages"])


def as_they_are(rows: pa.Table) -> pa.Table:
    return rows.select(["pages"])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project's views, empty."""
    monkeypatch.setenv("HALVING_FEATURES", str(tmp_path / "features"))
    monkeypatch.delenv("HALVING_ONLINE", raising=False)
    (tmp_path / "features").mkdir()
    return tmp_path / "features"


def define(folder: Path, **changes: Any) -> list[dg.AssetsDefinition]:
    view = {**VIEW, **changes}
    (folder / f"{view['name']}.yaml").write_text(json.dumps(view))  # JSON is YAML, too.
    return feature_assets()


def materialize(
    backend: Backend,
    instance: dg.DagsterInstance,
    assets: list[dg.AssetsDefinition],
    key: str,
    day: str | None = None,
    **config: Any,
) -> Any:
    ops = {"ops": {key.replace("/", "__"): {"config": config}}} if config else None
    return dg.materialize(
        assets,
        selection=f'key:"{key}"',
        partition_key=day,
        resources={"backend": backend},
        instance=instance,
        run_config=ops,
        raise_on_error=False,
    )


def test_a_day_whose_transform_raises_fails_its_partition_alone(
    folder: Path, backend: Backend, instance: dg.DagsterInstance
) -> None:
    assets = define(folder)
    good, bad = (materialize(backend, instance, assets, "feature_view/visits_v1", day) for day in DAYS)
    assert (good.success, bad.success) == (True, False)
    (failed,) = [event for event in bad.all_events if event.is_step_failure]
    assert "raised ArithmeticError" in failed.step_failure_data.user_failure_data.description
    assert instance.get_materialized_partitions(dg.AssetKey(["feature_view", "visits_v1"])) == {DAYS[0]}
    (kept,) = partitions(backend.store, "visits", 1)
    (event,) = good.asset_materializations_for_node("feature_view__visits_v1")
    assert event.partition == DAYS[0]
    assert event.tags["dagster/data_version"] == f"sha256:{kept.sha256}"
    metadata = {name: value.value for name, value in event.metadata.items()}
    assert (metadata["dagster/row_count"], metadata["bytes"], metadata["digest"]) == (
        2,
        kept.bytes,
        f"sha256:{kept.sha256}",
    )
    assert metadata["change"] == "new"
    again = materialize(backend, instance, assets, "feature_view/visits_v1", DAYS[0])
    assert (
        again.asset_materializations_for_node("feature_view__visits_v1")[0].metadata["change"].value
        == "unchanged"
    )
    assert list(registered_views(backend.catalog)) == ["visits@1"]


def test_changed_code_fails_a_day_until_the_runs_config_says_why_values_are_the_same(
    folder: Path, backend: Backend, instance: dg.DagsterInstance
) -> None:
    assets = define(folder)
    key = "feature_view/visits_v1"
    assert materialize(backend, instance, assets, key, DAYS[0]).success
    with backend.catalog.write(exclusive=True) as session:
        session.get_one(FeatureViewRow, ("visits", 1)).code = {"transform": "0" * 64}
    refused = materialize(backend, instance, assets, key, DAYS[0])
    (failed,) = [event for event in refused.all_events if event.is_step_failure]
    assert (
        "the code that transform stands on changed" in failed.step_failure_data.user_failure_data.description
    )
    for _ in range(2):  # Each day of a backfill has the same config.
        assert materialize(backend, instance, assets, key, DAYS[0], accept_same_values="only faster").success
    assert [entry["reason"] for entry in registered_views(backend.catalog)["visits@1"].accepted] == [
        "only faster"
    ]
    with backend.catalog.write(exclusive=True) as session:
        session.get_one(FeatureViewRow, ("visits", 1)).code = {"transform": "1" * 64}
    refused = materialize(backend, instance, assets, key, DAYS[0], accept_same_values="only faster")
    (failed,) = [event for event in refused.all_events if event.is_step_failure]
    assert "it was the reason for a change on " in failed.step_failure_data.user_failure_data.description


def test_what_was_known_last_is_pushed_and_read_as_it_was_computed(
    folder: Path, backend: Backend, instance: dg.DagsterInstance
) -> None:
    assets = define(folder, transform="tests.assets.test_features:as_they_are")
    for day in DAYS:
        assert materialize(backend, instance, assets, "feature_view/visits_v1", day).success
    for pushed in ("2 entities, 2 of them newer", "2 entities, 0 of them newer"):
        done = materialize(backend, instance, assets, "online_features")
        assert done.asset_materializations_for_node("online_features")[0].metadata["visits@1"].value == pushed
    assert backend.store.folder is not None
    with OnlineFeatures(str(backend.store.folder / "features" / "online.db"), ["visits@1:pages"]) as online:
        assert online.read([{"user_id": user} for user in (1, 2, 3)])["pages"].to_pylist() == [13, 5, None]


def test_a_view_whose_code_changed_keeps_no_other_from_being_pushed(
    folder: Path, backend: Backend, instance: dg.DagsterInstance
) -> None:
    define(folder, name="changed", transform="tests.assets.test_features:as_they_are")
    assets = define(folder, transform="tests.assets.test_features:as_they_are")
    for view in ("changed", "visits"):
        assert materialize(backend, instance, assets, f"feature_view/{view}_v1", DAYS[0]).success
    with backend.catalog.write(exclusive=True) as session:
        session.get_one(FeatureViewRow, ("changed", 1)).code = {"transform": "0" * 64}
    refused = materialize(backend, instance, assets, "online_features")
    (failed,) = [event for event in refused.all_events if event.is_step_failure]
    assert "changed@1" in failed.step_failure_data.user_failure_data.description
    with OnlineFeatures(online_address(backend.store), ["visits@1:pages"]) as online:
        assert online.read([{"user_id": 1}])["pages"].to_pylist() == [3]


def test_a_snapshot_says_of_which_days_of_a_view_it_was_made(
    folder: Path, backend: Backend, instance: dg.DagsterInstance
) -> None:
    assets = define(folder, transform="tests.assets.test_features:as_they_are")
    for day in DAYS:
        assert materialize(backend, instance, assets, "feature_view/visits_v1", day).success
    labels = (
        "SELECT i AS user_id, TIMESTAMPTZ '2026-03-03 00:00:00+00' AS ts, i % 2 AS bought FROM range(60) t(i)"
    )
    dataset = {
        "name": "bought",
        "labels": {"sql": labels},
        "features": ["visits@1:pages"],
        "target": "bought",
    }
    snapshot = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(dataset))
    event = materialized_snapshot(
        snapshot, Dataset(backend.store, snapshot.name, snapshot.digest).manifest
    ).event()
    digest = digest_of_partitions(partitions(backend.store, "visits", 1))
    assert event.tags is not None
    assert event.tags["dagster/input_data_version/feature_view/visits_v1"] == digest
    assert event.metadata["inputs"].value == {"feature_view/visits_v1": digest}


def test_the_online_store_may_be_elsewhere(
    folder: Path,
    backend: Backend,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HALVING_ONLINE", str(tmp_path / "elsewhere.db"))
    assets = define(folder)
    assert materialize(backend, instance, assets, "feature_view/visits_v1", DAYS[0]).success
    assert materialize(backend, instance, assets, "online_features").success
    assert (tmp_path / "elsewhere.db").exists()


def test_a_store_that_is_no_folder_needs_an_address(
    folder: Path, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    remote = Backend(root="s3://bucket/prefix", catalog_url=f"sqlite:///{tmp_path}/catalog.db")
    done = materialize(remote, instance, define(folder), "online_features")
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    assert "HALVING_ONLINE is not set" in failed.step_failure_data.user_failure_data.description


def test_a_project_without_views_has_no_assets_of_them(folder: Path) -> None:
    assert feature_assets() == []
    assert len(define(folder, online=False)) == 1


def test_a_view_that_is_not_accepted_keeps_no_sweep_from_running(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert define(folder, event_time=3) == []
    assert "one is not accepted" in caplog.text


def test_this_projects_view_is_in_the_definitions_with_its_days() -> None:
    graph = defs.resolve_asset_graph()
    view = graph.get(asset_key(load_view(CHECKOUT / "features" / "clicks.yaml").key))
    assert isinstance(view.partitions_def, dg.DailyPartitionsDefinition)
    assert view.partitions_def.start.date() == date(2026, 3, 1)
    assert graph.get(dg.AssetKey("online_features")).parent_keys == {view.key}
    assert graph.get(dg.AssetKey("dataset_snapshot")).parent_keys == {view.key}, (
        "sweeps/clicks.yaml joins its features"
    )


def test_a_snapshot_is_below_the_views_that_specs_join_and_no_others(folder: Path, tmp_path: Path) -> None:
    define(folder)
    assets = define(folder, name="unused")
    for name, spec in {
        "a": {"dataset": {"features": ["visits@1:pages", "gone@1:ctr"]}},
        "b": {"dataset": 3},
        "c": "}",
        "d": {},
    }.items():
        (tmp_path / f"{name}.yaml").write_text(spec if isinstance(spec, str) else json.dumps(spec))
    snapshots = snapshots_below(assets, tmp_path)
    graph = dg.Definitions(
        assets=[*assets, snapshots], resources={"backend": Backend()}
    ).resolve_asset_graph()
    view = dg.AssetKey(["feature_view", "visits_v1"])
    assert graph.get(snapshots.key).parent_keys == {view}
    assert isinstance(graph.get_partition_mapping(snapshots.key, view), dg.AllPartitionMapping), (
        "any days may be in it"
    )
