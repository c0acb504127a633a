"""``dataset_snapshot``: immutable content; each snapshot is a partition, for example ``digits@0123456789abcdef``."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.events import GROUP, Materialized
from resources.datasets.diff import compare
from resources.datasets.known_snapshots import Snapshot
from resources.datasets.statistics import merged

_SHOWN = ("bytes", "splits", "target", "schema_sha256", "source", "transform_sha256", "digest")
DATASETS = dg.DynamicPartitionsDefinition(name="datasets")

dataset_snapshot = dg.AssetSpec(
    "dataset_snapshot",
    description="Immutable rows and splits, named by the digest of their content. The first step of a sweep makes it.",
    group_name=GROUP,
    partitions_def=DATASETS,
    kinds={"arrow", "dvc"},
)


def materialized_snapshot(snapshot: Snapshot, manifest: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> Materialized:
    """The event of a snapshot that was taken.

    Args:
        before: the manifest of the dataset's snapshot before this one, to say what changed.
    """
    shown = {
        "dagster/row_count": snapshot.rows,
        **{name: getattr(snapshot, name) for name in _SHOWN},
        "shards": sum(len(shards) for shards in manifest["shards"].values()),
        "columns": _columns(manifest),
        "lineage": dict(manifest["lineage"]),
    }
    if classes := merged(manifest["statistics"].values())[snapshot.target].get("classes"):
        shown["classes"] = classes
    if before is not None:
        shown["changed"] = {"since": before["digest"], **compare(before, manifest)}
    return Materialized(
        "dataset_snapshot", partition=snapshot.key, version=snapshot.digest, metadata=shown, page=("datasets", snapshot.name)
    )


def _columns(manifest: Mapping[str, Any]) -> dg.MetadataValue:
    """A table of the columns: type, nulls and bounds."""
    whole = merged(manifest["statistics"].values())
    records = [
        dg.TableRecord({"column": name, "type": kind, "nulls": whole[name]["nulls"], **_bounds(whole[name])})
        for name, kind in manifest["schema"].items()
    ]
    columns = [dg.TableColumn(name, "int" if name == "nulls" else "string") for name in ("column", "type", "nulls", "min", "max")]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _bounds(column: Mapping[str, Any]) -> dict[str, str]:
    return {bound: "" if column.get(bound) is None else str(column[bound]) for bound in ("min", "max")}
