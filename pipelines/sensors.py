"""The sensors that drive a launched sweep: read the catalog, let the brain decide, map decisions to runs.

Crash between a decision and its launch is harmless: the next tick asks for the same run key, and Dagster launches a
run key once.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

import dagster as dg
from sqlalchemy import select

from assets.trials import TRIALS, observed_trial, trial_row
from pipelines.jobs import conclude_sweep, run_trial
from resources.backend import Backend
from resources.catalog import SweepRow, TrialRow, utcnow
from resources.execution.concurrency import concurrency_of
from resources.execution.divergence import diverged_trials
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pending_pods import starting
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL, SWEEP_LABEL, TRIAL_LABEL, labels_of, worker_config
from resources.execution.kubernetes.pod_status import reason_kind
from resources.execution.wiring import make_scheduler
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.scheduler import Scheduler
from resources.sweep_spec import SweepSpec, parse_spec

_TICK_SECONDS = 5
_HANDED_OUT_A_TICK = 200  # of one sweep: each is a transaction, and a tick has a minute
_LOOKED_AT_A_TICK = 20  # trials whose metrics are read; their own workers look at them all the time
_RETRY_SECONDS = 10.0  # for a database that is away; the next tick comes soon
_RUN_KEY = "dagster/run_key"
_CONCLUDES = "halving/concludes"  # on runs that evaluate a sweep, with the sweep's id
_GOING_ON = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]
_ENDED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]

_schedulers: dict[tuple[str, str], Scheduler] = {}  # by the catalog's URL and the sweep

_Subject = TypeVar("_Subject")
_Item = TypeVar("_Item")


@dg.sensor(
    job=run_trial,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Launch a run for every trial that the search starts, promotes or retries.",
)
def start_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult | dg.SkipReason:
    requests = [request for scheduler in _searching(context, backend) for request in _contained(context, scheduler, _requests)]
    if not requests:
        return dg.SkipReason("no trial waits for a run")
    # The trials of a sweep's spec are known from its opening, those that it was extended by are not.
    added = TRIALS.build_add_request([str(request.partition_key) for request in requests])
    return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=[added])


@dg.sensor(
    target=None,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Queue a crashed trial again, from its checkpoint and at most max_retries times; start_trials launches it.",
)
def retry_crashed_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    def unclaimed(scheduler: Scheduler) -> list[Assignment]:
        return _unclaimed(context.instance, scheduler)

    lost = []
    for scheduler in _searching(context, backend):
        lost += _contained(context, scheduler, Scheduler.requeue_lost)
        lost += _contained(context, scheduler, unclaimed)
    keys = [assignment.run_key for assignment in lost]
    return _told(backend, lost, f"queued again or given up: {keys}" if lost else "no trial has crashed")


@dg.sensor(
    target=None,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Say why a trial's pod has not started; after start_timeout_seconds cancel its run, so that its place is free.",
)
def watch_starting_pods(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    def slow(scheduler: Scheduler) -> list[Assignment]:
        return _slow_to_start(context, backend, scheduler)

    news = [assignment for scheduler in _searching(context, backend) for assignment in _contained(context, scheduler, slow)]
    keys = [assignment.run_key for assignment in news]
    return _told(backend, news, f"pods that do not start: {keys}" if keys else "no pod has trouble to start")


@dg.sensor(
    target=None,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="End a trial whose streamed metrics are NaN, infinite or out of the spec's divergence bounds; its worker is freed.",
)
def stop_diverged_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    stopped: list[Assignment] = []
    turn = int(context.cursor or 0)
    context.update_cursor(str(turn + 1))

    def stop(scheduler: Scheduler) -> list[Assignment]:
        return _stop_diverged(backend, scheduler, turn)

    for scheduler in _searching(context, backend):
        stopped += _contained(context, scheduler, stop)
    keys = [assignment.key for assignment in stopped]
    return _told(backend, stopped, f"diverged and stopped: {keys}" if stopped else "no trial has diverged")


@dg.sensor(
    job=conclude_sweep,
    minimum_interval_seconds=_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Evaluate and promote the winner of a sweep whose search is over.",
)
def finish_sweeps(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult | dg.SkipReason:
    def concluding(sweep: SweepRow) -> list[dg.RunRequest]:
        failures = len(_ended_runs(context.instance, {_CONCLUDES: sweep.id}))
        if failures <= parse_spec(sweep.spec).max_retries:
            return [_conclude_request(sweep, failures + 1)]
        # Only now is it over; launched again, the same spec becomes a new sweep.
        backend.catalog.end_sweep(sweep.id, "failed", only_from="evaluating")
        return []

    requests = [request for sweep in _launched(backend, "evaluating") for request in _contained(context, sweep, concluding)]
    # A sweep without any result is concluded once: that run fails and says why.
    recent = utcnow() - timedelta(hours=1)
    for sweep in _launched(backend, "failed"):
        if sweep.finished_at and sweep.finished_at > recent and not _ended_runs(context.instance, {_CONCLUDES: sweep.id}):
            requests.append(_conclude_request(sweep, 1))
    return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("no sweep has just ended its search")


def hand_out(scheduler: Scheduler) -> list[Assignment]:
    """Fill the sweep's free places with work, and give every trial that waits for a run, new or from an earlier tick."""
    free = concurrency_of(scheduler.spec) - scheduler.running()
    for _ in range(min(free, _HANDED_OUT_A_TICK)):
        if not isinstance(scheduler.next_work(worker=None), Assignment):
            break
    return scheduler.handed_out()


def _requests(scheduler: Scheduler) -> list[dg.RunRequest]:
    return [_run_request(assignment, scheduler.spec) for assignment in hand_out(scheduler)]


def _unclaimed(instance: dg.DagsterInstance, scheduler: Scheduler) -> list[Assignment]:
    """Queue again the attempts whose runs ended before they claimed them."""
    queued = []
    for assignment in scheduler.handed_out():
        if ended := _ended_runs(instance, {_RUN_KEY: assignment.run_key}):
            told = f"run {ended[0].run_id} of attempt {assignment.attempt} ended as {ended[0].status.value} before it began to train"
            if scheduler.launch_failed(assignment, told):
                queued.append(assignment)
    return queued


def _slow_to_start(context: dg.SensorEvaluationContext, backend: Backend, scheduler: Scheduler) -> list[Assignment]:
    """Note why attempts' pods have not started, and give up those that are late; give those of which there is something new to tell."""
    news, limit = [], scheduler.spec.resources.start_timeout_seconds
    pods = starting(scheduler.id, scheduler.handed_out())
    known = _reasons(backend, scheduler) if pods else {}
    for pod in pods:
        before = known.get(pod.assignment.trial)
        if pod.seconds > limit:
            # First the run, then the trial: its next attempt begins when nobody can claim this one any more.
            _cancel_runs(context.instance, {_RUN_KEY: pod.assignment.run_key})
            reason = pod.reason or before or "the cluster gives no reason"
            told = f"the pod of attempt {pod.assignment.attempt} did not start within start_timeout_seconds = {limit:g}: {reason}"
            if not scheduler.launch_failed(pod.assignment, told):
                continue
        elif pod.reason != before:
            scheduler.note_waiting(pod.assignment, pod.reason, unclaimed=True)
            # How many nodes lack what changes with every other pod; an event each time would bury all others.
            if pod.reason is None or (before is not None and reason_kind(pod.reason) == reason_kind(before)):
                continue
        else:
            continue
        news.append(pod.assignment)
    return news


def _reasons(backend: Backend, scheduler: Scheduler) -> dict[int, str]:
    """Trial to why its pod had not started when that was last noted."""
    with backend.catalog.read() as session:
        noted = session.execute(
            select(TrialRow.number, TrialRow.waiting).where(TrialRow.sweep == scheduler.id, TrialRow.waiting.is_not(None))
        )
        return {number: waiting for number, waiting in noted if waiting is not None}


def _stop_diverged(backend: Backend, scheduler: Scheduler, turn: int) -> list[Assignment]:
    stopped = []
    for assignment, told in diverged_trials(backend.store, scheduler, turn, _LOOKED_AT_A_TICK):
        with suppress(Superseded):  # it ended by itself meanwhile
            scheduler.failed(assignment, told, seconds=0.0, checkpoint=None)
            stopped.append(assignment)
    return stopped


def _told(backend: Backend, failed: list[Assignment], summary: str) -> dg.SensorResult:
    """What a tick did to trials whose own runs can no longer say it, on the trials' pages too."""
    seen = [observed_trial(assignment.key, trial_row(backend, assignment.sweep, assignment.trial)) for assignment in failed]
    return dg.SensorResult(skip_reason=summary, asset_events=seen)


def _launched(backend: Backend, status: str) -> list[SweepRow]:
    with backend.catalog.read() as session:
        query = select(SweepRow).where(SweepRow.driver == "sensors", SweepRow.status == status)
        return list(session.scalars(query.order_by(SweepRow.created_at)))


def _run_request(assignment: Assignment, spec: SweepSpec) -> dg.RunRequest:
    tags = {SWEEP_LABEL: assignment.sweep, TRIAL_LABEL: assignment.key, ATTEMPT_LABEL: str(assignment.attempt)}
    if cluster := load_cluster():
        tags["dagster-k8s/config"] = json.dumps(worker_config(spec, cluster, labels_of(assignment)))
    return dg.RunRequest(run_key=assignment.run_key, partition_key=assignment.key, tags=tags)


def _conclude_request(sweep: SweepRow, attempt: int) -> dg.RunRequest:
    tags = {SWEEP_LABEL: sweep.id, _CONCLUDES: sweep.id}
    return dg.RunRequest(run_key=f"{sweep.id}/conclude/a{attempt}", partition_key=sweep.id, tags=tags)


def _searching(context: dg.SensorEvaluationContext, backend: Backend) -> list[Scheduler]:
    sweeps = {sweep.id for sweep in _launched(backend, "searching")}
    # Other sensors' threads change it meanwhile.
    for ended in [known for known in list(_schedulers) if known[0] == backend.catalog.url and known[1] not in sweeps]:
        _schedulers.pop(ended, None)
    return [scheduler for sweep in sorted(sweeps) for scheduler in _contained(context, sweep, lambda sweep: [_scheduler(backend, sweep)])]


def _scheduler(backend: Backend, sweep: str) -> Scheduler:
    """The sweep's scheduler, kept between ticks: a new one would read every trial of the sweep again."""
    known = _schedulers.get((backend.catalog.url, sweep))
    if known is None:
        known = _schedulers[backend.catalog.url, sweep] = make_scheduler(backend, sweep, retry_seconds=_RETRY_SECONDS)
    return known


def _contained(context: dg.SensorEvaluationContext, subject: _Subject, work: Callable[[_Subject], list[_Item]]) -> list[_Item]:
    """What ``work`` gives, or nothing and a logged error: one sweep's fault must not stop the others."""
    try:
        return work(subject)
    except Exception:  # any fault of one sweep, down to a spec that this version no longer accepts
        context.log.exception(f"{subject} is left out of this tick")
        return []


def _cancel_runs(instance: dg.DagsterInstance, tags: dict[str, str]) -> None:
    for run in instance.get_runs(dg.RunsFilter(tags=tags, statuses=_GOING_ON)):
        instance.run_coordinator.cancel_run(run.run_id)


def _ended_runs(instance: dg.DagsterInstance, tags: dict[str, str]) -> Sequence[dg.DagsterRun]:
    """Runs with these tags that are over without success."""
    return instance.get_runs(dg.RunsFilter(tags=tags, statuses=_ENDED))
