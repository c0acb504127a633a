"""``sweep``: one launch of a sweep spec on one snapshot, for example ``digits-7f3a``."""

import dagster as dg

from assets.events import GROUP, Materialized, asset_link
from resources.catalog import SweepRow
from resources.datasets.snapshots import Snapshot
from resources.sweep_spec import SweepSpec

SWEEPS = dg.DynamicPartitionsDefinition(name="sweeps")

sweep = dg.AssetSpec(
    "sweep",
    description="A search: its spec, the snapshot that it runs on, and the commit of its code.",
    group_name=GROUP,
    deps=["dataset_snapshot"],
    partitions_def=SWEEPS,
    kinds={"optuna"},
)


def materialized_sweep(row: SweepRow, spec: SweepSpec, snapshot: Snapshot) -> Materialized:
    return Materialized(
        "sweep",
        partition=row.id,
        version=row.spec_digest,
        inputs={"dataset_snapshot": row.snapshot},
        metadata={
            "spec": dg.MetadataValue.json(row.spec),
            "objective": f"{spec.objective.direction} {spec.objective.metric}",
            "strategy": spec.strategy.name,
            "max_trials": spec.max_trials,
            "budgets": str(list(spec.budgets)),
            "snapshot": asset_link("dataset_snapshot", snapshot.key),
            "commit": row.commit or "(no git)",
            "report": asset_link("evaluation_report", row.id),
        },
        page=("sweeps", row.id),
    )
