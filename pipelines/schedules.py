"""The schedules; each is off until you switch it on."""

from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from pipelines.jobs import sweep
from pipelines.maintenance import compact_metrics

RETRAINED = Path(__file__).parent.parent / "sweeps" / "digits.yaml"


@dg.schedule(
    job=sweep,
    cron_schedule="0 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Search the digits sweep again every night on a new snapshot of its source; off until you switch it on.",
)
def scheduled_retraining(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Launch ``sweeps/digits.yaml``; its first step takes a snapshot of the source as it is then."""
    config: dict[str, Any] = yaml.safe_load(RETRAINED.read_text())
    return dg.RunRequest(run_config=config, tags={"halving/scheduled_for": context.scheduled_execution_time.isoformat()})


hourly_compaction = dg.ScheduleDefinition(
    name="hourly_compaction",
    job=compact_metrics,
    cron_schedule="20 * * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Compact the segments of all runs every hour; off until you switch it on.",
)
