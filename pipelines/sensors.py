"""The sensors that drive a launched sweep: read the catalog, let the search decide, map decisions to runs.

A crash between a decision and its launch is harmless: the next tick asks for the same run key, and Dagster
launches each run key once.

A tick asks Dagster's run storage at most once for each sweep, however many attempts wait.
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

_HANDED_OUT_A_TICK = 200  # for each sweep: each is a transaction, and a tick has a minute
_LOOKED_AT_A_TICK = 20  # trials whose metrics are read; their own workers look at them more often
_RETRY_SECONDS = 10.0  # while the database is unavailable; the next tick comes soon
_VALUES_A_QUERY = 1000  # databases limit the parameters of a statement
_RUN_KEY = "dagster/run_key"
_CONCLUDES = "halving/concludes"  # on runs that evaluate a sweep, with the sweep's id
_GOING_ON = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]
_ENDED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]

_CONCLUDED = ("sensors", "api")  # drivers of the sweeps that nobody else evaluates

_sensor = partial(dg.sensor, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
_schedulers: dict[tuple[str, str], Scheduler] = {}  # by the catalog's URL and the sweep

_Subject = TypeVar("_Subject")
_Item = TypeVar("_Item")


@_sensor(
    job=run_trial, description="Launch a run for every trial that the search starts, promotes or retries."
)
def start_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult | dg.SkipReason:
    if _projects_share(backend):  # each says what it asks for before one of them takes the rest
        _of_each(context, backend, partial(_start, most=1))
    requests = _of_each(context, backend, partial(_requests, backend))
    if not requests:
        return dg.SkipReason("no trial waits for a run")
    # The trials that a spec allows have got their partitions when the sweep was opened, those that it was
    # extended by have not.
    added = TRIALS.build_add_request([str(request.partition_key) for request in requests])
    return dg.SensorResult(run_requests=requests, dynamic_partitions_requests=[added])


@_sensor(
    description=(
        "Queue a crashed trial again, from its checkpoint and at most max_retries times; start_trials "
        "launches it."
    )
)
def retry_crashed_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    lost = _of_each(context, backend, Scheduler.requeue_lost)
    lost += _of_each(context, backend, partial(_unclaimed, context.instance))
    keys = [assignment.run_key for assignment in lost]
    return _observed(backend, lost, f"queued again or given up: {keys}" if lost else "no trial has crashed")


@_sensor(
    description=(
        "Record why a trial's pod has not started; after start_timeout_seconds cancel its run, so that "
        "another trial can run."
    )
)
def watch_starting_pods(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    news = _of_each(context, backend, partial(_slow_to_start, context, backend))
    keys = [assignment.run_key for assignment in news]
    return _observed(backend, news, f"pods that do not start: {keys}" if keys else "no pod fails to start")


@_sensor(
    description=(
        "End a trial whose streamed metrics are NaN, infinite or out of the spec's divergence bounds; its "
        "worker is freed."
    )
)
def stop_diverged_trials(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult:
    turn = int(context.cursor or 0)
    context.update_cursor(str(turn + 1))
    stopped = _of_each(context, backend, partial(_stop_diverged, backend, turn))
    keys = [assignment.key for assignment in stopped]
    return _observed(
        backend, stopped, f"diverged and stopped: {keys}" if stopped else "no trial has diverged"
    )


@_sensor(job=conclude_sweep, description="Evaluate and promote the winner of a sweep whose search is over.")
def finish_sweeps(context: dg.SensorEvaluationContext, backend: Backend) -> dg.SensorResult | dg.SkipReason:
    def concluding(sweep: SweepRow) -> list[dg.RunRequest]:
        if failures[sweep.id] <= stored_spec(sweep.spec).max_retries:
            return [_conclude_request(sweep, failures[sweep.id] + 1)]
        # Only now is it over; launched again, the same spec becomes a new sweep.
        backend.catalog.end_sweep(sweep.id, "failed", only_from="evaluating")
        return []

    if begin_daily(backend.store) is not None:
        context.log.info(begun_line(backend.store))
    for sweep in _launched(backend, "searching", "api"):
        if sweep.control == Control.STOP:
            _contained(context, sweep.id, partial(_end_stopped, backend))
    recent = utcnow() - timedelta(hours=1)
    evaluating = _launched(backend, "evaluating", *_CONCLUDED)
    failed = [
        sweep
        for sweep in _launched(backend, "failed", *_CONCLUDED)
        if sweep.finished_at
        and sweep.finished_at > recent
        and (sweep.spec.get("predictor") or sweep.spec.get("evaluator"))
    ]
    concluded = _runs(context.instance, _CONCLUDES, [sweep.id for sweep in evaluating + failed], _ENDED)
    failures = Counter(run.tags[_CONCLUDES] for run in concluded)
    requests = [request for sweep in evaluating for request in _contained(context, sweep, concluding)]
    # A sweep without any result is concluded once: that run fails with the reason.
    requests += [_conclude_request(sweep, 1) for sweep in failed if not failures[sweep.id]]
    return (
        dg.SensorResult(run_requests=requests)
        if requests
        else dg.SkipReason("no sweep has just ended its search")
    )


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
    seen = (
        _launched_runs(context.instance, [_intent_key(intent) for intent, _ in open_intents])
        if open_intents
        else {}
    )

    def launching(looked_at: tuple[IntentRow, bool]) -> list[dg.RunRequest]:
        intent, opened = looked_at
        step = intents.next_step(intent.status, intent.run, seen.get(_intent_key(intent)), opened=opened)
        if isinstance(step, intents.Launch) and (problem := _problem_here(intent)):
            step = intents.Became(intents.FAILED, None, problem)
        if isinstance(step, intents.Became):
            intents.become(backend.catalog, intent.id, step)
        return [_intent_request(intent)] if isinstance(step, intents.Launch) else []

    requests = [request for one in open_intents for request in _contained(context, one, launching)]
    return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("nothing new was asked for")


def hand_out(scheduler: Scheduler) -> list[Assignment]:
    """Hand out trials up to the sweep's concurrency; give every attempt that waits for a run, new or from an
    earlier tick.
    """
    _start(scheduler, _HANDED_OUT_A_TICK)
    return scheduler.unclaimed_attempts()


def _start(scheduler: Scheduler, most: int) -> list[Assignment]:
    """Hand out trials up to the sweep's concurrency, and at most so many; give them."""
    started: list[Assignment] = []
    if (free := concurrency_of(scheduler.spec) - scheduler.running()) <= 0:
        scheduler.take_back_unclaimed()  # which asking for work does as well, but there is none to ask for
        free = concurrency_of(scheduler.spec) - scheduler.running()
    while len(started) < min(free, most) and isinstance(
        given := scheduler.next_work(worker=None), Assignment
    ):
        started.append(given)
    return started


def _projects_share(backend: Backend) -> bool:
    with backend.catalog.read() as session:
        return session.scalar(select(ProjectRow.name).limit(1)) is not None


def _requests(backend: Backend, scheduler: Scheduler) -> list[dg.RunRequest]:
    return [_run_request(backend, assignment, scheduler.spec) for assignment in hand_out(scheduler)]


def _unclaimed(instance: dg.DagsterInstance, scheduler: Scheduler) -> list[Assignment]:
    """Queue again the attempts whose runs ended before they claimed them."""
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


def _slow_to_start(
    context: dg.SensorEvaluationContext, backend: Backend, scheduler: Scheduler
) -> list[Assignment]:
    """Record why attempts' pods have not started, and give up those that are late; give the attempts with
    something new.
    """
    news = []
    limit = scheduler.spec.resources.start_timeout_seconds
    pods = starting(scheduler.id, scheduler.unclaimed_attempts())
    known = _reasons(backend, scheduler) if pods else {}
    # First the runs, then the trials: the next attempt at a trial begins when no run can claim this one any
    # more.
    for run in _runs(
        context.instance, _RUN_KEY, [pod.assignment.run_key for pod in pods if pod.seconds > limit], _GOING_ON
    ):
        context.instance.run_coordinator.cancel_run(run.run_id)
    for pod in pods:
        before = known.get(pod.assignment.trial)
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
            # How many nodes lack what changes all the time; an event for each change would hide all other
            # events.
            if pod.reason is None or (before is not None and reason_kind(pod.reason) == reason_kind(before)):
                continue
        else:
            continue
        news.append(pod.assignment)
    return news


def _reasons(backend: Backend, scheduler: Scheduler) -> dict[int, str]:
    """Trial to the reason that was last recorded why its pod has not started."""
    with backend.catalog.read() as session:
        query = select(TrialRow.number, TrialRow.waiting).where(
            TrialRow.sweep == scheduler.id, TrialRow.waiting.is_not(None)
        )
        return {number: waiting for number, waiting in session.execute(query) if waiting is not None}


def _stop_diverged(backend: Backend, turn: int, scheduler: Scheduler) -> list[Assignment]:
    stopped = []
    for assignment, error in diverged_trials(backend.store, scheduler, turn, _LOOKED_AT_A_TICK):
        with suppress(Superseded):  # it ended by itself meanwhile
            scheduler.report_failure(assignment, error, seconds=None, checkpoint=None)
            stopped.append(assignment)
    return stopped


def _observed(backend: Backend, changed: list[Assignment], summary: str) -> dg.SensorResult:
    """What a tick did to trials, with an observation of each: the trials' own runs cannot log it."""
    seen = [
        observed_trial(assignment.key, trial_row(backend, assignment.sweep, assignment.trial))
        for assignment in changed
    ]
    return dg.SensorResult(skip_reason=summary, asset_events=seen)


def _launched(backend: Backend, status: str, *drivers: str) -> list[SweepRow]:
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
    """End the search of a stopped study once no external loop holds a trial any more: they may never ask
    again.
    """
    with backend.catalog.read() as session:
        held = session.scalars(
            select(TrialRow.lease_until).where(TrialRow.sweep == sweep, TrialRow.status == Status.RUNNING)
        ).all()
    now = backend.catalog.now()
    if held and all(until is not None and until > now for until in held):
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
    """Why Dagster would not take an intent's spec: the server may know less of the cluster, or be of another
    version.
    """
    try:
        check_launch(intent.payload["spec"])
    except dg.DagsterError as error:
        return str(error)
    return None


def _launched_runs(instance: dg.DagsterInstance, keys: list[str]) -> dict[str, intents.Launched]:
    """The newest run of each of these run keys, as far as Dagster has one."""
    found: dict[str, intents.Launched] = {}
    for run in reversed(_runs(instance, _RUN_KEY, keys, list(dg.DagsterRunStatus))):  # the newest come first
        going_on = run.status not in (*_ENDED, dg.DagsterRunStatus.SUCCESS)
        reason = (
            ""
            if going_on
            else f"run {run.run_id} of Dagster ended as {run.status.value}{_failure(instance, run)}"
        )
        found[run.tags[_RUN_KEY]] = intents.Launched(run.run_id, going_on, reason)
    return found


def _failure(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """Why a run's first failed step failed, in the step's own words."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        data = entry.get_dagster_event().step_failure_data
        said = (
            data.user_failure_data.description
            if data.user_failure_data
            else data.error and data.error.message
        )
        return f": {(said or 'no reason was recorded').strip()}"
    return ""


def _of_each(
    context: dg.SensorEvaluationContext, backend: Backend, work: Callable[[Scheduler], list[_Item]]
) -> list[_Item]:
    """What ``work`` gives for the sweeps that are searching, in one list."""
    return [
        item for scheduler in _searching(context, backend) for item in _contained(context, scheduler, work)
    ]


def _searching(context: dg.SensorEvaluationContext, backend: Backend) -> list[Scheduler]:
    sweeps = {sweep.id for sweep in _launched(backend, "searching")}
    # A copy, as other sensors' threads change it meanwhile.
    for ended in [
        known for known in list(_schedulers) if known[0] == backend.catalog.url and known[1] not in sweeps
    ]:
        _schedulers.pop(ended, None)
    return [
        scheduler
        for sweep in sorted(sweeps)
        for scheduler in _contained(context, sweep, lambda sweep: [_scheduler(backend, sweep)])
    ]


def _scheduler(backend: Backend, sweep: str) -> Scheduler:
    """The sweep's scheduler, kept between ticks: a new one would read every trial of the sweep again."""
    known = _schedulers.get((backend.catalog.url, sweep))
    if known is None:
        known = _schedulers[backend.catalog.url, sweep] = make_scheduler(
            backend, sweep, retry_seconds=_RETRY_SECONDS
        )
    return known


def _contained(
    context: dg.SensorEvaluationContext, subject: _Subject, work: Callable[[_Subject], list[_Item]]
) -> list[_Item]:
    """What ``work`` gives; after an error, which is logged, nothing: one sweep's error must not stop the
    others.
    """
    try:
        return work(subject)
    except Exception:  # any error of one sweep, such as a spec that this version does not accept any more
        context.log.exception(f"{subject} is left out of this tick")
        return []


def _runs(
    instance: dg.DagsterInstance, tag: str, values: Iterable[str], statuses: list[dg.DagsterRunStatus]
) -> list[dg.DagsterRun]:
    """The runs with one of these statuses whose tag has one of these values; one query for
    :data:`_VALUES_A_QUERY` of them.
    """
    wanted = list(values)
    return [
        run
        for start in range(0, len(wanted), _VALUES_A_QUERY)
        for run in instance.get_runs(
            dg.RunsFilter(tags={tag: wanted[start : start + _VALUES_A_QUERY]}, statuses=statuses)
        )
    ]
