"""The sensors that drive a launched sweep: read the catalog, let the brain decide, map decisions to runs.

Crash between a decision and its launch is harmless: the next tick asks for the same run key, and Dagster launches a
run key once.
"""

from datetime import timedelta

import dagster as dg
from sqlalchemy import select

from pipelines.jobs import conclude_sweep, run_trial
from resources.catalog import SweepRow, utcnow
from resources.compute import local_concurrency
from resources.lab import Lab
from resources.scheduler import Assignment, Scheduler

_TICK_SECONDS = 5
_RUN_KEY = "dagster/run_key"
_ENDED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


@dg.sensor(
    job=run_trial,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Launch a run for every trial that the search starts, promotes or retries.",
)
def start_trials(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SensorResult | dg.SkipReason:
    waiting = [assignment for sweep in _launched(lab, "searching") for assignment in hand_out(Scheduler(lab.catalog, sweep.id))]
    if not waiting:
        return dg.SkipReason("no trial waits for a run")
    return dg.SensorResult(run_requests=[_run_request(assignment) for assignment in waiting])


@dg.sensor(
    target=None,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Queue a crashed trial again, from its checkpoint and at most max_retries times; start_trials launches it.",
)
def retry_crashed_trials(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SkipReason:
    lost = [
        assignment.run_key
        for sweep in _launched(lab, "searching")
        for assignment in Scheduler(lab.catalog, sweep.id).requeue_lost(lambda run_key: _has_ended(context.instance, run_key))
    ]
    return dg.SkipReason(f"queued again or given up: {lost}" if lost else "no trial has crashed")


@dg.sensor(
    job=conclude_sweep,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Evaluate and promote the winner of a sweep whose search is over.",
)
def finish_sweeps(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SensorResult | dg.SkipReason:
    # A failed sweep is concluded too: that run fails and says why no trial has a result.
    recent = utcnow() - timedelta(hours=1)
    over = [sweep.id for sweep in _launched(lab, "evaluating")]
    over += [sweep.id for sweep in _launched(lab, "failed") if sweep.finished_at and sweep.finished_at > recent]
    if not over:
        return dg.SkipReason("no sweep has just ended its search")
    return dg.SensorResult(run_requests=[dg.RunRequest(run_key=f"{sweep}/conclude", partition_key=sweep) for sweep in over])


def hand_out(scheduler: Scheduler) -> list[Assignment]:
    """Fill the sweep's free places with work, and give every trial that waits for a run, new or from an earlier tick."""
    places = scheduler.spec.concurrency or local_concurrency(scheduler.spec)
    while scheduler.running() < places:
        if not isinstance(scheduler.next_work(worker=None), Assignment):
            break
    return scheduler.handed_out()


def _launched(lab: Lab, status: str) -> list[SweepRow]:
    with lab.catalog.read() as session:
        query = select(SweepRow).where(SweepRow.driver == "sensors", SweepRow.status == status)
        return list(session.scalars(query.order_by(SweepRow.created_at)))


def _run_request(assignment: Assignment) -> dg.RunRequest:
    tags = {"halving/sweep": assignment.sweep, "halving/trial": assignment.key, "halving/attempt": str(assignment.attempt)}
    return dg.RunRequest(run_key=assignment.run_key, partition_key=assignment.key, tags=tags)


def _has_ended(instance: dg.DagsterInstance, run_key: str) -> bool:
    """Whether the run that was launched for an attempt is over without success."""
    return instance.get_runs_count(dg.RunsFilter(tags={_RUN_KEY: run_key}, statuses=_ENDED)) > 0
