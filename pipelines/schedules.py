"""The schedules; each is off until you switch it on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from pipelines.jobs import sweep
from pipelines.maintenance import BACKUP_PLACE, apply_retention, backup, compact_metrics
from resources.sweep_spec.yaml_text import read_yaml

RETRAINED = Path(__file__).parent.parent / "sweeps" / "digits.yaml"


@dg.schedule(
    job=sweep,
    cron_schedule="0 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description=(
        "Search the digits sweep again every night on a new snapshot of its source; off until you switch "
        "it on."
    ),
)
def scheduled_retraining(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Launch ``sweeps/digits.yaml``; its first step takes a snapshot of the source as it is then."""
    config: dict[str, Any] = read_yaml(RETRAINED.read_bytes())
    return dg.RunRequest(
        run_config=config, tags={"halving/scheduled_for": context.scheduled_execution_time.isoformat()}
    )


def daily_features(assets: Sequence[dg.AssetsDefinition]) -> list[dg.ScheduleDefinition]:
    """A schedule for each asset of features.

    At six a view's features of the day before are materialised, and at seven they are pushed online.
    """
    return [_daily(asset) for asset in assets]


def _daily(asset: dg.AssetsDefinition) -> Any:
    name = asset.key.to_python_identifier()
    job = dg.define_asset_job(f"materialize_{name}", dg.AssetSelection.assets(asset))
    if asset.partitions_def is None:
        return dg.ScheduleDefinition(
            name=f"daily_{name}",
            job=job,
            cron_schedule="0 7 * * *",
            default_status=dg.DefaultScheduleStatus.STOPPED,
            description=(
                "Push every day at 7:00 UTC what is known of each entity; off until you switch it on."
            ),
        )
    return dg.build_schedule_from_partitioned_job(
        job,
        name=f"daily_{name}",
        hour_of_day=6,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=(
            "Materialise every day at 6:00 UTC the rows of the day before; off until you switch it on."
        ),
    )


hourly_compaction = dg.ScheduleDefinition(
    name="hourly_compaction",
    job=compact_metrics,
    cron_schedule="20 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Compact the segments of all runs every hour; off until you switch it on.",
)

nightly_retention = dg.ScheduleDefinition(
    name="nightly_retention",
    job=apply_retention,
    cron_schedule="40 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description=(
        "Delete every night what the policy retention.yaml does not keep; off until you switch it on."
    ),
)

nightly_backup = dg.ScheduleDefinition(
    name="nightly_backup",
    job=backup,
    cron_schedule="40 2 * * *",
    run_config={"ops": {"make_backup": {"config": {"keep": 14}}}},
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description=(
        f"Make a backup every night at the place {BACKUP_PLACE}, and keep the newest 14; off until you "
        "switch it on."
    ),
)
