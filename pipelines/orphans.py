"""Sensors that end steps and runs on a cluster whose pods go on after the process that started them."""

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import dagster as dg
from sqlalchemy import select

from pipelines.jobs import run_trial, sweep
from resources.backend import Backend
from resources.catalog import AttemptRow, SweepRow, TrialRow, utcnow
from resources.catalog.trial_key import parse_trial_key
from resources.execution.kubernetes.api import delete_job, find_jobs
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL, TRIAL_LABEL
from resources.search.state import Status

_STEP_ENDS_SECONDS = 20.0  # from the end of a run to that of its last step's pod, at most
_RUN_ENDS_SECONDS = 60.0  # from the end of an attempt to that of its run, at most
_STEPS = {"dagster/job": sweep.name, "app.kubernetes.io/component": "step_worker"}
_OVER = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_sensor = partial(dg.sensor, minimum_interval_seconds=20, default_status=dg.DefaultSensorStatus.RUNNING)


@_sensor(
    description=(
        "End the steps of a one-job sweep whose run was canceled, or is lost for good; their trials save a "
        "checkpoint."
    )
)
def end_orphaned_steps(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    # Nothing else ends them: a coordinator that has to end leaves its steps to the next coordinator, which
    # resumes the run, even if the run was canceled.
    going_on = [job for job in find_jobs(_STEPS) if not (job.status.failed or job.status.completion_time)]
    runs = sorted({job.metadata.labels["dagster/run-id"] for job in going_on})
    records: Sequence[dg.RunRecord] = []
    if runs:
        records = context.instance.get_run_records(dg.RunsFilter(run_ids=runs, statuses=_OVER))
    before = time.time() - _STEP_ENDS_SECONDS
    over = {record.dagster_run.run_id for record in records if (record.end_time or 0.0) < before}
    names = [job.metadata.name for job in going_on if job.metadata.labels["dagster/run-id"] in over]
    for name in names:
        delete_job(name)
    if not names:
        return dg.SkipReason("every step belongs to a run that goes on")
    return dg.SkipReason(f"ended: {names}")


@_sensor(
    description=(
        "Cancel a trial's run whose attempt ended a while ago: its pod is lost with its node, and holds a "
        "slot of the pool."
    )
)
def end_abandoned_runs(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SkipReason:
    started = dg.RunsFilter(job_name=run_trial.name, statuses=[dg.DagsterRunStatus.STARTED])
    canceled = []
    current = _current_attempts(backend)
    if context.instance.get_runs_count(started) > len(current):
        for run in context.instance.get_runs(started):
            if _is_abandoned(backend, run, current):
                context.instance.run_coordinator.cancel_run(run.run_id)
                canceled.append(run.run_id)
    if not canceled:
        return dg.SkipReason("every run of a trial has an attempt")
    return dg.SkipReason(f"canceled: {canceled}")


def _current_attempts(backend: Backend) -> set[tuple[str, int, int]]:
    with backend.catalog.read() as session:
        running = (
            TrialRow.status == Status.RUNNING,
            TrialRow.worker.is_not(None),
            SweepRow.driver == "sensors",
        )
        query = (
            select(TrialRow.sweep, TrialRow.number, TrialRow.attempt)
            .join(SweepRow, SweepRow.id == TrialRow.sweep)
            .where(*running)
        )
        return {(sweep_id, number, attempt) for sweep_id, number, attempt in session.execute(query)}


def _is_abandoned(backend: Backend, run: dg.DagsterRun, current: set[tuple[str, int, int]]) -> bool:
    if TRIAL_LABEL not in run.tags:
        return False
    key = (*parse_trial_key(run.tags[TRIAL_LABEL]), int(run.tags[ATTEMPT_LABEL]))
    if key in current:
        return False
    with backend.catalog.read() as session:
        attempt = session.get(AttemptRow, key)
    return bool(
        attempt and attempt.ended_at and attempt.ended_at < utcnow() - timedelta(seconds=_RUN_ENDS_SECONDS)
    )
