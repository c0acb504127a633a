"""The sensors that drive a launched sweep: read the catalog, let the brain decide, map decisions to runs.

Crash between a decision and its launch is harmless: the next tick asks for the same run key, and Dagster launches a
run key once.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import dagster as dg
from sqlalchemy import select

from assets.trials import TRIALS, observed_failure, trial_row
from pipelines.jobs import conclude_sweep, run_trial
from resources.assignment import Assignment, Superseded
from resources.catalog import SweepRow, utcnow
from resources.compute import local_concurrency
from resources.divergence import diverged_trials
from resources.lab import Lab
from resources.scheduler import Scheduler
from resources.spec import parse_spec

_TICK_SECONDS = 5
_RUN_KEY = "dagster/run_key"
_CONCLUDES = "halving/concludes"  # on runs that evaluate a sweep, with the sweep's id
_ENDED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]

_Subject = TypeVar("_Subject")
_Item = TypeVar("_Item")


@dg.sensor(
    job=run_trial,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Launch a run for every trial that the search starts, promotes or retries.",
)
def start_trials(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SensorResult | dg.SkipReason:
    waiting = [assignment for scheduler in _searching(context, lab) for assignment in _contained(context, scheduler, hand_out)]
    if not waiting:
        return dg.SkipReason("no trial waits for a run")
    # The trials of a sweep's spec are known from its opening, those that it was extended by are not.
    added = TRIALS.build_add_request([assignment.key for assignment in waiting])
    return dg.SensorResult(run_requests=[_run_request(assignment) for assignment in waiting], dynamic_partitions_requests=[added])


@dg.sensor(
    target=None,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Queue a crashed trial again, from its checkpoint and at most max_retries times; start_trials launches it.",
)
def retry_crashed_trials(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SensorResult:
    lost = []
    for scheduler in _searching(context, lab):
        lost += _contained(context, scheduler, Scheduler.requeue_lost)
        for assignment in _contained(context, scheduler, Scheduler.handed_out):
            if _ended_runs(context.instance, {_RUN_KEY: assignment.run_key}):
                scheduler.launch_failed(assignment, f"the run of attempt {assignment.attempt} ended before it began to train")
                lost.append(assignment)
    keys = [assignment.run_key for assignment in lost]
    return _told(lab, lost, f"queued again or given up: {keys}" if lost else "no trial has crashed")


@dg.sensor(
    target=None,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="End a trial whose streamed metrics are NaN, infinite or out of the spec's divergence bounds; its worker is freed.",
)
def stop_diverged_trials(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SensorResult:
    stopped: list[Assignment] = []
    for scheduler in _searching(context, lab):
        for assignment, told in _contained(context, scheduler, lambda scheduler: diverged_trials(lab.store, scheduler)):
            with suppress(Superseded):  # it ended by itself meanwhile
                scheduler.failed(assignment, told, seconds=0.0, checkpoint=None)
                stopped.append(assignment)
    keys = [assignment.key for assignment in stopped]
    return _told(lab, stopped, f"diverged and stopped: {keys}" if stopped else "no trial has diverged")


@dg.sensor(
    job=conclude_sweep,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Evaluate and promote the winner of a sweep whose search is over.",
)
def finish_sweeps(context: dg.SensorEvaluationContext, lab: Lab) -> dg.SensorResult | dg.SkipReason:
    requests = []
    for sweep in _launched(lab, "evaluating"):
        failures = _ended_runs(context.instance, {_CONCLUDES: sweep.id})
        if failures > parse_spec(sweep.spec).max_retries:
            # Only now is it over; launched again, the same spec becomes a new sweep.
            lab.catalog.end_sweep(sweep.id, "failed", only_from="evaluating")
        else:
            requests.append(_conclude_request(sweep, failures + 1))
    # A sweep without any result is concluded once: that run fails and says why.
    recent = utcnow() - timedelta(hours=1)
    for sweep in _launched(lab, "failed"):
        if sweep.finished_at and sweep.finished_at > recent and not _ended_runs(context.instance, {_CONCLUDES: sweep.id}):
            requests.append(_conclude_request(sweep, 1))
    return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("no sweep has just ended its search")


def hand_out(scheduler: Scheduler) -> list[Assignment]:
    """Fill the sweep's free places with work, and give every trial that waits for a run, new or from an earlier tick."""
    places = scheduler.spec.concurrency or local_concurrency(scheduler.spec)
    while scheduler.running() < places:
        if not isinstance(scheduler.next_work(worker=None), Assignment):
            break
    return scheduler.handed_out()


def _told(lab: Lab, failed: list[Assignment], summary: str) -> dg.SensorResult:
    """What a tick did to trials whose own runs can no longer say it, on the trials' pages too."""
    seen = [observed_failure(assignment.key, trial_row(lab, assignment.sweep, assignment.trial)) for assignment in failed]
    return dg.SensorResult(skip_reason=summary, asset_events=seen)


def _launched(lab: Lab, status: str) -> list[SweepRow]:
    with lab.catalog.read() as session:
        query = select(SweepRow).where(SweepRow.driver == "sensors", SweepRow.status == status)
        return list(session.scalars(query.order_by(SweepRow.created_at)))


def _run_request(assignment: Assignment) -> dg.RunRequest:
    tags = {"halving/sweep": assignment.sweep, "halving/trial": assignment.key, "halving/attempt": str(assignment.attempt)}
    return dg.RunRequest(run_key=assignment.run_key, partition_key=assignment.key, tags=tags)


def _conclude_request(sweep: SweepRow, attempt: int) -> dg.RunRequest:
    tags = {"halving/sweep": sweep.id, _CONCLUDES: sweep.id}
    return dg.RunRequest(run_key=f"{sweep.id}/conclude/a{attempt}", partition_key=sweep.id, tags=tags)


def _searching(context: dg.SensorEvaluationContext, lab: Lab) -> list[Scheduler]:
    return [
        scheduler
        for sweep in _launched(lab, "searching")
        for scheduler in _contained(context, sweep.id, lambda sweep: [Scheduler(lab.catalog, sweep)])
    ]


def _contained(context: dg.SensorEvaluationContext, subject: _Subject, work: Callable[[_Subject], list[_Item]]) -> list[_Item]:
    """What ``work`` gives, or nothing and a logged error: one sweep's fault must not stop the others."""
    try:
        return work(subject)
    except Exception:  # any fault of one sweep, down to a spec that this version no longer accepts
        context.log.exception(f"{subject} is left out of this tick")
        return []


def _ended_runs(instance: dg.DagsterInstance, tags: dict[str, str]) -> int:
    """How many runs with these tags are over without success."""
    return instance.get_runs_count(dg.RunsFilter(tags=tags, statuses=_ENDED))
