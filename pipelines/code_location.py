"""All definitions of the code location; Dagster loads them by :mod:`pipelines.definitions`."""

import dagster as dg

from assets import checkpoints, datasets, features, reports, sweeps, trials
from pipelines import controls, decisions, jobs, maintenance, orphans, projects, reruns, schedules, sensors
from pipelines.step_outputs import step_outputs
from resources.backend import Backend
from resources.execution.kubernetes.cluster_config import load_cluster

views = features.feature_assets()
sensors_of_cluster: list[dg.SensorDefinition] = []
if load_cluster():
    sensors_of_cluster = [sensors.watch_starting_pods, orphans.end_orphaned_steps, orphans.end_abandoned_runs]
defs = dg.Definitions(
    assets=[
        datasets.snapshots_below(views),
        sweeps.sweep,
        trials.trial,
        reports.evaluation_report,
        checkpoints.promoted_checkpoint,
        *views,
    ],
    asset_checks=[datasets.data_checks],
    jobs=[
        jobs.sweep,
        jobs.launch_sweep,
        controls.pause_sweep,
        controls.resume_sweep,
        controls.stop_sweep,
        controls.extend_sweep,
        projects.set_project,
        jobs.run_trial,
        jobs.conclude_sweep,
        decisions.promote_version,
        decisions.rollback_model,
        decisions.approve_version,
        decisions.reject_version,
        reruns.rerun,
        maintenance.compact_metrics,
        maintenance.apply_retention,
        maintenance.backup,
    ],
    sensors=[
        sensors.launch_requested,
        sensors.start_trials,
        sensors.retry_crashed_trials,
        sensors.stop_diverged_trials,
        sensors.finish_sweeps,
        *sensors_of_cluster,
    ],
    schedules=[
        schedules.scheduled_retraining,
        schedules.hourly_compaction,
        schedules.nightly_retention,
        schedules.nightly_backup,
        *schedules.daily_features(views),
    ],
    resources={"backend": Backend(), "io_manager": step_outputs},
)
