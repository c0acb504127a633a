"""The code location: all definitions that Dagster loads."""

import dagster as dg

from assets import checkpoints, datasets, features, reports, sweeps, trials
from pipelines import controls, jobs, maintenance, orphans, schedules, sensors
from pipelines.step_outputs import step_outputs
from resources.backend import Backend
from resources.execution.kubernetes.cluster_config import load_cluster

defs = dg.Definitions(
    assets=[
        datasets.dataset_snapshot,
        sweeps.sweep,
        trials.trial,
        reports.evaluation_report,
        checkpoints.promoted_checkpoint,
        *features.feature_assets(),
    ],
    asset_checks=[datasets.data_checks],
    jobs=[
        jobs.sweep,
        jobs.launch_sweep,
        controls.pause_sweep,
        controls.resume_sweep,
        controls.stop_sweep,
        controls.extend_sweep,
        jobs.run_trial,
        jobs.conclude_sweep,
        jobs.promote_version,
        maintenance.compact_metrics,
        maintenance.apply_retention,
    ],
    sensors=[
        sensors.launch_requested,
        sensors.start_trials,
        sensors.retry_crashed_trials,
        sensors.stop_diverged_trials,
        sensors.finish_sweeps,
        *([sensors.watch_starting_pods, orphans.end_orphaned_steps, orphans.end_abandoned_runs] if load_cluster() else []),
    ],
    schedules=[schedules.scheduled_retraining, schedules.hourly_compaction],
    resources={"backend": Backend(), "io_manager": step_outputs},
)
