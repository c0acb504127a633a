"""The sensors that drive a launched sweep: read the catalog, let the search decide, map decisions to runs.

A crash between a decision and its launch is harmless: the next tick requests the same run key, and Dagster
launches each run key once.

A tick queries Dagster's run storage at most once for each sweep, however many attempts wait.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TypeVar

import dagster as dg
from sqlalchemy import select

from assets.trials import TRIALS, observed_trial, trial_row
from halving.maintenance.daily import begin_daily, begun_line
from pipelines.config import check_launch
from pipelines.jobs import INTENT, conclude_sweep, launch_sweep, run_trial
from resources.backend import Backend
from resources.catalog import IntentRow, ProjectRow, SweepRow, TrialRow, utcnow
from resources.execution.concurrency import concurrency_of
from resources.execution.divergence import diverged_trials
from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pending_pods import starting
from resources.execution.kubernetes.pod_manifests import (
    ATTEMPT_LABEL,
    SWEEP_LABEL,
    TRIAL_LABEL,
    labels_of,
    worker_config,
)
from resources.execution.kubernetes.pod_status import reason_kind
from resources.execution.wiring import make_scheduler
from resources.scheduling import intents
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.loop_scheduler import LoopScheduler
from resources.scheduling.scheduler import Scheduler
from resources.search.state import Control, Status
from resources.sweep_spec import SweepSpec, stored_spec

_MAX_STARTED_A_TICK = 200  # For each sweep; each start is a transaction, and a tick has a minute.
_MAX_CHECKED_A_TICK = 20  # Trials whose metrics are read; their own workers read them more often.
_RETRY_SECONDS = 10.0  # While the database is unavailable; the next tick comes soon.
_MAX_VALUES_A_QUERY = 1000  # Databases limit the parameters of a statement.
_RUN_KEY = "dagster/run_key"
_CONCLUDES = "halving/concludes"  # The tag of runs that evaluate a sweep, with the sweep's id.
_GOING_ON = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]
_ENDED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]

_CONCLUDED_DRIVERS = ("sensors", "api")  # The sensors evaluate sweeps of these drivers.

_sensor = partial(dg.sensor, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
_schedulers: dict[tuple[str, str], Scheduler] = {}  # by the catalog's URL and the sweep

_Subject = TypeVar("_Subject")
_Item = TypeVar("_Item")


@_sensor(
    job=run_trial, description="Launch a run for every trial that the search starts, promotes or retries."
)
def start_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult | dg.SkipReason:
    if _projects_share(backend):
        # Each sweep starts one trial first, which records its demand, before one of them takes the rest.
        _for_each(context, backend, partial(_start, limit=1))
    requests = _for_each(context, backend, partial(_requests, backend))
    if not requests:
        return dg.SkipReason("no trial waits for a run")
    # The trials of the spec got their partitions when the sweep was opened; those of an extension did not.
    added = TRIALS.build_add_request([str(request.partition_key) for request in requests])
    return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=[added])


@_sensor(
    description=(
        "Queue a crashed trial again, from its checkpoint and at most max_retries times; start_trials "
        "launches it."
    )
)
def retry_crashed_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    lost = _for_each(context, backend, Scheduler.requeue_lost)
    lost += _for_each(context, backend, partial(_requeue_unclaimed, context.instance))
    keys = [assignment.run_key for assignment in lost]
    summary = "no trial has crashed"
    if lost:
        summary = f"queued again or given up: {keys}"
    return _observe(backend, lost, summary)


@_sensor(
    description=(
        "Record why a trial's pod has not started; after start_timeout_seconds cancel its run, so that "
        "another trial can run."
    )
)
def watch_starting_pods(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    changed = _for_each(context, backend, partial(_watch_pods, context, backend))
    keys = [assignment.run_key for assignment in changed]
    summary = "no pod fails to start"
    if keys:
        summary = f"pods that do not start: {keys}"
    return _observe(backend, changed, summary)


@_sensor(
    description=(
        "End a trial whose streamed metrics are NaN, infinite or out of the spec's divergence bounds; its "
        "worker is freed."
    )
)
def stop_diverged_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    turn = int(context.cursor or 0)
    context.update_cursor(str(turn + 1))
    stopped = _for_each(context, backend, partial(_stop_diverged, backend, turn))
    keys = [assignment.key for assignment in stopped]
    summary = "no trial has diverged"
    if stopped:
        summary = f"diverged and stopped: {keys}"
    return _observe(backend, stopped, summary)


@_sensor(job=conclude_sweep, description="Evaluate and promote the winner of a sweep whose search is over.")
def finish_sweeps(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult | dg.SkipReason:
    def conclude(sweep: SweepRow) -> list[dg.RunRequest]:
        if failures[sweep.id] <= stored_spec(sweep.spec).max_retries:
            return [_conclude_request(sweep, failures[sweep.id] + 1)]
        # Only now the sweep is over; launched again, the same spec becomes a new sweep.
        backend.catalog.end_sweep(sweep.id, "failed", only_from="evaluating")
        return []

    if begin_daily(backend.store) is not None:
        context.log.info(begun_line(backend.store))
    for sweep in _sweeps(backend, "searching", "api"):
        if sweep.control == Control.STOP:
            _run_guarded(context, sweep.id, partial(_end_stopped, backend))
    recent = utcnow() - timedelta(hours=1)
    evaluating = _sweeps(backend, "evaluating", *_CONCLUDED_DRIVERS)
    failed = [
        sweep
        for sweep in _sweeps(backend, "failed", *_CONCLUDED_DRIVERS)
        if sweep.finished_at
        and sweep.finished_at > recent
        and (sweep.spec.get("predictor") or sweep.spec.get("evaluator"))
    ]
    concluded = _runs(context.instance, _CONCLUDES, [sweep.id for sweep in evaluating + failed], _ENDED)
    failures = Counter(run.tags[_CONCLUDES] for run in concluded)
    requests = [request for sweep in evaluating for request in _run_guarded(context, sweep, conclude)]
    # A sweep without any result is concluded once: that run fails with the reason.
    requests += [_conclude_request(sweep, 1) for sweep in failed if not failures[sweep.id]]
    if not requests:
        return dg.SkipReason("no sweep has just ended its search")
    return dg.SensorResult(run_requests=requests)


@_sensor(
    job=launch_sweep,
    description=(
        "Open the sweeps and training runs that the API was asked for, each by a run of launch_sweep."
    ),
)
def launch_requested(
    context: dg.SensorEvaluationContext, backend: Backend
) -> dg.SensorResult | dg.SkipReason:
    open_intents = intents.list_unsettled(backend.catalog)
    runs: dict[str, intents.Launched] = {}
    if open_intents:
        runs = _launched_runs(context.instance, [_intent_key(intent) for intent, _ in open_intents])

    def launch(open_intent: tuple[IntentRow, bool]) -> list[dg.RunRequest]:
        intent, opened = open_intent
        step = intents.next_step(intent.status, intent.run, runs.get(_intent_key(intent)), opened=opened)
        if isinstance(step, intents.Launch) and (problem := _problem_here(intent)):
            step = intents.Became(intents.FAILED, None, problem)
        if isinstance(step, intents.Became):
            intents.become(backend.catalog, intent.id, step)
        if not isinstance(step, intents.Launch):
            return []
        return [_intent_request(intent)]

    requests = [request for intent in open_intents for request in _run_guarded(context, intent, launch)]
    if requests:
        return dg.SensorResult(run_requests=requests)
    return dg.SkipReason("nothing new was asked for")


def hand_out(scheduler: Scheduler) -> list[Assignment]:
    """Hand out trials up to the sweep's concurrency; returns all attempts that wait for a run."""
    _start(scheduler, _MAX_STARTED_A_TICK)
    return scheduler.unclaimed_attempts()


def _start(scheduler: Scheduler, limit: int) -> list[Assignment]:
    """Hand out trials up to the sweep's concurrency and a limit; returns them."""
    started: list[Assignment] = []
    free = concurrency_of(scheduler.spec) - scheduler.running()
    if free <= 0:
        # next_work takes back unclaimed attempts as well, but is not called where no place is free.
        scheduler.take_back_unclaimed()
        free = concurrency_of(scheduler.spec) - scheduler.running()
    while len(started) < min(free, limit):
        assignment = scheduler.next_work(worker=None)
        if not isinstance(assignment, Assignment):
            break
        started.append(assignment)
    return started


def _projects_share(backend: Backend) -> bool:
    with backend.catalog.read() as session:
        return session.scalar(select(ProjectRow.name).limit(1)) is not None


def _requests(backend: Backend, scheduler: Scheduler) -> list[dg.RunRequest]:
    return [_run_request(backend, assignment, scheduler.spec) for assignment in hand_out(scheduler)]


def _requeue_unclaimed(instance: dg.DagsterInstance, scheduler: Scheduler) -> list[Assignment]:
    """Queue again the attempts whose runs ended before they claimed them; returns these attempts."""
    queued = []
    waiting = {assignment.run_key: assignment for assignment in scheduler.unclaimed_attempts()}
    for run in _runs(instance, _RUN_KEY, waiting, _ENDED):
        assignment = waiting[run.tags[_RUN_KEY]]
        error = (
            f"run {run.run_id} of attempt {assignment.attempt} ended as {run.status.value} before it began "
            "to train"
        )
        if scheduler.report_failed_launch(assignment, error):
            queued.append(assignment)
    return queued


def _watch_pods(
    context: dg.SensorEvaluationContext, backend: Backend, scheduler: Scheduler
) -> list[Assignment]:
    """Record why attempts' pods have not started, and give up late ones; returns attempts that changed."""
    changed = []
    limit = scheduler.spec.resources.start_timeout_seconds
    pods = starting(scheduler.id, scheduler.unclaimed_attempts())
    reasons = {}
    if pods:
        reasons = _reasons(backend, scheduler)
    # Runs are canceled before their trials are queued again, so that no run can claim an attempt any more
    # when the next one begins.
    late = [pod.assignment.run_key for pod in pods if pod.seconds > limit]
    for run in _runs(context.instance, _RUN_KEY, late, _GOING_ON):
        context.instance.run_coordinator.cancel_run(run.run_id)
    for pod in pods:
        before = reasons.get(pod.assignment.trial)
        if pod.seconds > limit:
            reason = pod.reason or before or "the cluster gives no reason"
            error = (
                f"the pod of attempt {pod.assignment.attempt} did not start within start_timeout_seconds = "
                f"{limit:g}: {reason}"
            )
            if not scheduler.report_failed_launch(pod.assignment, error):
                continue
        elif pod.reason != before:
            scheduler.note_waiting(pod.assignment, pod.reason, unclaimed=True)
            # The numbers of nodes in a reason change all the time, and an event for each change would hide
            # all other events. So only another kind of reason is a change.
            if pod.reason is None or (before is not None and reason_kind(pod.reason) == reason_kind(before)):
                continue
        else:
            continue
        changed.append(pod.assignment)
    return changed


def _reasons(backend: Backend, scheduler: Scheduler) -> dict[int, str]:
    """The reason that was last recorded why a trial's pod has not started, by the trial's number."""
    with backend.catalog.read() as session:
        query = select(TrialRow.number, TrialRow.waiting).where(
            TrialRow.sweep == scheduler.id, TrialRow.waiting.is_not(None)
        )
        return {number: waiting for number, waiting in session.execute(query) if waiting is not None}


def _stop_diverged(backend: Backend, turn: int, scheduler: Scheduler) -> list[Assignment]:
    stopped = []
    for assignment, error in diverged_trials(backend.store, scheduler, turn, _MAX_CHECKED_A_TICK):
        with suppress(Superseded):  # It has ended by itself meanwhile.
            scheduler.report_failure(assignment, error, seconds=None, checkpoint=None)
            stopped.append(assignment)
    return stopped


def _observe(backend: Backend, changed: list[Assignment], summary: str) -> dg.SensorResult:
    """The result of a tick that changed trials, with an observation of each: their own runs cannot log it."""
    observations = [
        observed_trial(assignment.key, trial_row(backend, assignment.sweep, assignment.trial))
        for assignment in changed
    ]
    return dg.SensorResult(skip_reason=summary, asset_events=observations)


def _sweeps(backend: Backend, status: str, *drivers: str) -> list[SweepRow]:
    """Sweeps with this status that one of these drives; by default the sensors alone."""
    with backend.catalog.read() as session:
        query = select(SweepRow).where(
            SweepRow.driver.in_(drivers or ("sensors",)), SweepRow.status == status
        )
        return list(session.scalars(query.order_by(SweepRow.created_at)))


def _run_request(backend: Backend, assignment: Assignment, spec: SweepSpec) -> dg.RunRequest:
    tags = {
        SWEEP_LABEL: assignment.sweep,
        TRIAL_LABEL: assignment.key,
        ATTEMPT_LABEL: str(assignment.attempt),
    }
    if cluster := load_cluster():
        of_project = cluster.of_project(spec.project, lambda: backend.catalog)
        tags["dagster-k8s/config"] = json.dumps(
            worker_config(spec, of_project, labels_of(assignment), assignment.granted)
        )
    return dg.RunRequest(run_key=assignment.run_key, partition_key=assignment.key, tags=tags)


def _conclude_request(sweep: SweepRow, attempt: int) -> dg.RunRequest:
    tags = {SWEEP_LABEL: sweep.id, _CONCLUDES: sweep.id}
    return dg.RunRequest(run_key=f"{sweep.id}/conclude/a{attempt}", partition_key=sweep.id, tags=tags)


def _end_stopped(backend: Backend, sweep: str) -> list[None]:
    """End the search of a stopped study when no external loop holds a trial any more.

    The sensor does so, because the loops may never call again.
    """
    with backend.catalog.read() as session:
        leases = session.scalars(
            select(TrialRow.lease_until).where(TrialRow.sweep == sweep, TrialRow.status == Status.RUNNING)
        ).all()
    now = backend.catalog.now()
    if leases and all(until is not None and until > now for until in leases):
        return []
    scheduler = LoopScheduler(backend.catalog, sweep, retry_seconds=_RETRY_SECONDS)
    scheduler.requeue_lost()
    scheduler.end_if_over()
    return []


def _intent_key(intent: IntentRow) -> str:
    return f"intent/{intent.id}"


def _intent_request(intent: IntentRow) -> dg.RunRequest:
    tags = {INTENT: intent.id, SWEEP_LABEL: intent.sweep, "halving/actor": intent.actor}
    return dg.RunRequest(run_key=_intent_key(intent), run_config=intent.payload["spec"], tags=tags)


def _problem_here(intent: IntentRow) -> str | None:
    """Why Dagster would refuse an intent's spec; None where it would not.

    The server that accepted it may know less of the cluster, or be of another version.
    """
    try:
        check_launch(intent.payload["spec"])
    except dg.DagsterError as error:
        return str(error)
    return None


def _launched_runs(instance: dg.DagsterInstance, keys: list[str]) -> dict[str, intents.Launched]:
    """The newest run of each of these run keys, as far as Dagster has one."""
    launched: dict[str, intents.Launched] = {}
    # Dagster lists the newest first, so that here the newest replaces the others.
    for run in reversed(_runs(instance, _RUN_KEY, keys, list(dg.DagsterRunStatus))):
        going_on = run.status not in (*_ENDED, dg.DagsterRunStatus.SUCCESS)
        reason = ""
        if not going_on:
            reason = f"run {run.run_id} of Dagster ended as {run.status.value}{_failure(instance, run)}"
        launched[run.tags[_RUN_KEY]] = intents.Launched(run.run_id, going_on, reason)
    return launched


def _failure(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Why a run's first failed step failed, in the step's own words."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        data = entry.get_dagster_event().step_failure_data
        reason = data.error and data.error.message
        if data.user_failure_data:
            reason = data.user_failure_data.description
        return f": {(reason or 'no reason was recorded').strip()}"
    return ""


def _for_each(
    context: dg.SensorEvaluationContext, backend: Backend, work: Callable[[Scheduler], list[_Item]]
) -> list[_Item]:
    """Call ``work`` for each sweep that is searching; returns all results in one list."""
    items: list[_Item] = []
    for scheduler in _schedulers_of_searches(context, backend):
        items += _run_guarded(context, scheduler, work)
    return items


def _schedulers_of_searches(context: dg.SensorEvaluationContext, backend: Backend) -> list[Scheduler]:
    sweeps = {sweep.id for sweep in _sweeps(backend, "searching")}
    for url, sweep in list(_schedulers):  # This is a copy, as other sensors' threads change it meanwhile.
        if url == backend.catalog.url and sweep not in sweeps:
            _schedulers.pop((url, sweep), None)
    schedulers: list[Scheduler] = []
    for sweep in sorted(sweeps):
        schedulers += _run_guarded(context, sweep, lambda sweep: [_scheduler(backend, sweep)])
    return schedulers


def _scheduler(backend: Backend, sweep: str) -> Scheduler:
    """The sweep's scheduler, kept between ticks: a new one would read every trial of the sweep again."""
    key = (backend.catalog.url, sweep)
    scheduler = _schedulers.get(key)
    if scheduler is None:
        scheduler = make_scheduler(backend, sweep, retry_seconds=_RETRY_SECONDS)
        _schedulers[key] = scheduler
    return scheduler


def _run_guarded(
    context: dg.SensorEvaluationContext, subject: _Subject, work: Callable[[_Subject], list[_Item]]
) -> list[_Item]:
    """Call ``work`` and return its results, or log its error and return none.

    The error of one sweep must not stop the others.
    """
    try:
        return work(subject)
    except Exception:  # A sweep may raise anything, such as for a spec that this version refuses.
        context.log.exception(f"{subject} is left out of this tick")
        return []


def _runs(
    instance: dg.DagsterInstance, tag: str, values: Iterable[str], statuses: list[dg.DagsterRunStatus]
) -> list[dg.DagsterRun]:
    """The runs with one of these statuses whose tag has one of these values, newest first in each query."""
    wanted = list(values)
    runs: list[dg.DagsterRun] = []
    for start in range(0, len(wanted), _MAX_VALUES_A_QUERY):
        part = wanted[start : start + _MAX_VALUES_A_QUERY]
        runs += instance.get_runs(dg.RunsFilter(tags={tag: part}, statuses=statuses))
    return runs
