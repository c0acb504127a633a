"""``dataset_snapshot``: immutable content; each snapshot is a partition: ``digits@0123456789abcdef``."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.events import GROUP, Materialized, expected_failures
from assets.features import asset_key
from halving import Dataset, NotFound
from resources.backend import Backend
from resources.datasets.data_checks import CHECKS, DataCheck, check_data
from resources.datasets.diff import compare
from resources.datasets.manifest import manifest_before
from resources.datasets.snapshot_catalog import Snapshot, list_snapshots
from resources.datasets.statistics import all_columns
from resources.features.wanted import joined_views
from resources.sweep_spec.dataset import DatasetSource

_FIELDS = ("bytes", "splits", "target", "schema_sha256", "source", "transform_sha256", "digest")
DATASETS = dg.DynamicPartitionsDefinition(name="datasets")

dataset_snapshot = dg.AssetSpec(
    "dataset_snapshot",
    description=(
        "Immutable rows and splits, named by the digest of their content. The first step of a sweep makes it."
    ),
    group_name=GROUP,
    partitions_def=DATASETS,
    kinds={"arrow", "dvc"},
)


def snapshots_below(views: Sequence[dg.AssetsDefinition], specs: Path = Path("sweeps")) -> dg.AssetSpec:
    """``dataset_snapshot`` with an edge from each feature view that a spec in the folder joins to labels.

    The asset is one for all datasets, so the graph says that snapshots are made of these views, not which
    ones, and any days of a view may be in one. The event of a snapshot names exactly what is in it
    (:func:`materialized_snapshot`).
    """
    view_keys = {view.key for view in views}
    days = dg.AllPartitionMapping()
    keys = [asset_key(view) for view in joined_views(specs)]
    return dataset_snapshot.replace_attributes(
        deps=[dg.AssetDep(key, partition_mapping=days) for key in keys if key in view_keys]
    )


@dg.multi_asset_check(
    name="data_checks",
    specs=[
        dg.AssetCheckSpec(name, asset="dataset_snapshot", description=check.description)
        for name, check in CHECKS.items()
    ],
)
def data_checks(context: dg.AssetCheckExecutionContext, backend: Backend) -> Iterator[dg.AssetCheckResult]:
    """Check the newest snapshot again, with the checks of the spec that it was taken by."""
    with expected_failures():
        newest = max(list_snapshots(backend.catalog), key=lambda snapshot: snapshot.created_at, default=None)
        if newest is None:
            raise NotFound("there is no snapshot yet: launch a sweep")
        dataset = Dataset(backend.store, newest.name, newest.digest)
        source = DatasetSource.model_validate(newest.recipe)
        checks = {
            check.name: check
            for check in check_data(dataset, source, manifest_before(backend.store, dataset.manifest))
        }
    for name in CHECKS:
        check = checks.get(name) or DataCheck(name, True, "the spec has switched it off", blocking=False)
        described = {"snapshot": dg.MetadataValue.text(newest.key), **_metadata_of(check)}
        yield dg.AssetCheckResult(
            passed=check.passed,
            check_name=name,
            asset_key="dataset_snapshot",
            severity=_severity_of(check),
            metadata=described,
        )


def materialized_snapshot(
    snapshot: Snapshot, manifest: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> Materialized:
    """The event of a snapshot that was taken.

    Args:
        before: the manifest of the dataset's snapshot before this one, to say what changed.
    """
    metadata = {
        "dagster/row_count": snapshot.rows,
        **{name: getattr(snapshot, name) for name in _FIELDS},
        "shards": sum(len(shards) for shards in manifest["shards"].values()),
        "columns": _columns(manifest),
        "lineage": dict(manifest["lineage"]),
    }
    if classes := all_columns(manifest)[snapshot.target].get("classes"):
        metadata["classes"] = classes
    if before is not None:
        metadata["changed"] = {"since": before["digest"], **compare(before, manifest)}
    joined = manifest["lineage"]["source"].get("views", {})  # There are some only for labels with features.
    return Materialized(
        "dataset_snapshot",
        partition=snapshot.key,
        version=snapshot.digest,
        inputs={asset_key(view).to_user_string(): facts["partitions"] for view, facts in joined.items()},
        metadata=metadata,
        page=("datasets", snapshot.name),
    )


def check_events(
    context: Any, partition: str, checks: Sequence[DataCheck]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the events of a snapshot's checks, then end the step if a blocking one failed.

    A step yields them, because what it only logs is lost when it fails.

    Raises:
        dagster.Failure: blocking checks failed; the message names them.
    """
    for check in checks:
        yield dg.AssetCheckEvaluation(
            check_name=check.name,
            asset_key=dg.AssetKey("dataset_snapshot"),
            passed=check.passed,
            severity=_severity_of(check),
            metadata=_metadata_of(check),
            blocking=check.blocking,
            partition=partition,
        )
        if not check.passed and not check.blocking:
            context.log.warning(f"{partition}: {check.name}: {check.reason}")
    if failed := [f"{check.name}: {check.reason}" for check in checks if check.blocking and not check.passed]:
        lines = "\n".join(f"  - {failure}" for failure in failed)
        raise dg.Failure(
            f"the snapshot {partition} failed its data checks, so nothing is trained on it:\n{lines}\n"
            "Mend the data, or set dataset.checks in the spec if it is as it should be.",
            allow_retries=False,
        )


def _severity_of(check: DataCheck) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN


def _metadata_of(check: DataCheck) -> dict[str, dg.MetadataValue]:
    described: dict[str, dg.MetadataValue] = {"reason": dg.MetadataValue.text(check.reason)}
    if check.rows:
        described["rows"] = dg.MetadataValue.table([dg.TableRecord(row) for row in check.rows])
    return described


def _columns(manifest: Mapping[str, Any]) -> dg.MetadataValue:
    """A table of the columns: type, nulls and bounds."""
    statistics = all_columns(manifest)
    records = [
        dg.TableRecord(
            {"column": name, "type": kind, "nulls": statistics[name]["nulls"], **_bounds(statistics[name])}
        )
        for name, kind in manifest["schema"].items()
    ]
    types = dict.fromkeys(("column", "type", "nulls", "min", "max"), "string") | {"nulls": "int"}
    columns = [dg.TableColumn(name, kind) for name, kind in types.items()]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _bounds(column: Mapping[str, Any]) -> dict[str, str]:
    texts = dict.fromkeys(("min", "max"), "")
    return texts | {bound: str(column[bound]) for bound in texts if column.get(bound) is not None}
