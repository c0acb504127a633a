"""The code location: all definitions that Dagster loads."""

import dagster as dg

from assets.checkpoints import promoted_checkpoint
from assets.datasets import dataset_snapshot
from assets.reports import evaluation_report
from assets.sweeps import sweep as sweep_asset
from assets.trials import trial
from pipelines.controls import extend_sweep, pause_sweep, resume_sweep, stop_sweep
from pipelines.jobs import conclude_sweep, launch_sweep, promote_version, run_trial, sweep
from pipelines.maintenance import apply_retention, compact_metrics
from pipelines.orphans import end_abandoned_runs, end_orphaned_steps
from pipelines.schedules import hourly_compaction, scheduled_retraining
from pipelines.sensors import finish_sweeps, retry_crashed_trials, start_trials, stop_diverged_trials, watch_starting_pods
from pipelines.step_outputs import step_outputs
from resources.backend import Backend
from resources.execution.kubernetes.cluster_config import load_cluster

defs = dg.Definitions(
    assets=[dataset_snapshot, sweep_asset, trial, evaluation_report, promoted_checkpoint],
    jobs=[
        sweep,
        launch_sweep,
        pause_sweep,
        resume_sweep,
        stop_sweep,
        extend_sweep,
        run_trial,
        conclude_sweep,
        promote_version,
        compact_metrics,
        apply_retention,
    ],
    sensors=[
        start_trials,
        retry_crashed_trials,
        stop_diverged_trials,
        finish_sweeps,
        *([watch_starting_pods, end_orphaned_steps, end_abandoned_runs] if load_cluster() else []),
    ],
    schedules=[scheduled_retraining, hourly_compaction],
    resources={"backend": Backend(), "io_manager": step_outputs},
)
