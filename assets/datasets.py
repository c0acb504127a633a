"""``dataset_snapshot``: immutable content; each snapshot is a partition, for example ``digits@0123456789abcdef``."""

import dagster as dg

from assets.events import GROUP, Materialized
from resources.datasets.snapshots import Snapshot

_SHOWN = ("bytes", "splits", "target", "schema_sha256", "source", "transform_sha256", "digest")
DATASETS = dg.DynamicPartitionsDefinition(name="datasets")

dataset_snapshot = dg.AssetSpec(
    "dataset_snapshot",
    description="Immutable rows and splits, named by the digest of their content. The first step of a sweep makes it.",
    group_name=GROUP,
    partitions_def=DATASETS,
    kinds={"arrow", "dvc"},
)


def materialized_snapshot(snapshot: Snapshot) -> Materialized:
    return Materialized(
        "dataset_snapshot",
        partition=snapshot.key,
        version=snapshot.digest,
        metadata={"dagster/row_count": snapshot.rows, **{name: getattr(snapshot, name) for name in _SHOWN}},
        page=("datasets", snapshot.name),
    )
