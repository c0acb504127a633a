"""The executor of one-job sweeps on a cluster: ``k8s_job_executor`` with rules for workers' pods.

A worker whose pod does not start costs nothing while others work, so it waits, and the event log has the
reason. When the search is over it is released, and when no worker of the sweep can start, the run fails with
the cluster's own reason.

A worker's pod that is reclaimed is replaced, however often that happens. A worker that crashes is replaced
ten times.
"""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.events import DagsterEvent, DagsterEventType, EngineEventData, StepFailureData
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)
from dagster._utils.error import SerializableErrorInfo
from dagster_k8s import k8s_job_executor
from dagster_k8s.client import DagsterK8sAPIRetryLimitExceeded, DagsterK8sUnrecoverableAPIError

from halving.errors import HalvingError
from resources.backend import Backend
from resources.execution.kubernetes.api import find_pods, read_job
from resources.execution.kubernetes.pending_pods import why_no_pod, why_not_started
from resources.execution.kubernetes.pod_manifests import SWEEP_LABEL
from resources.execution.kubernetes.pod_status import (
    has_started,
    is_lost,
    is_queued,
    reason_kind,
    termination_of,
)
from resources.execution.wiring import make_scheduler
from resources.scheduling.scheduler import Scheduler
from resources.search.state import Control

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

WORKERS = "work_on_trials"
"""The op whose steps are workers."""
MAX_CRASHES = 10
"""The number of crashes after which a slot's worker is replaced."""

_CHECK_SECONDS = 5
_RETRY_SECONDS = 10.0  # While the database is unavailable; the next check comes soon.
_LAST_EVENT_SECONDS = 30.0  # The last event of a step comes at most so long after the end of its pod.
_BLAMELESS = "this does not count as a crash"  # It marks such errors in the event log.
_CONFLICT = 409

_log = logging.getLogger(__name__)


class WorkerNotStarted(HalvingError, RuntimeError):
    """No pod of the sweep's workers could start; the message has the cluster's reason."""


@dg.executor(
    name="worker_pods",
    config_schema=k8s_job_executor.config_schema.as_field(),
    requirements=multiple_process_executor_requirements(),
)
def worker_pods(context: dg.InitExecutorContext) -> StepDelegatingExecutor:
    """Launch each step as a Kubernetes Job; ``per_step_k8s_config`` has the needs of a worker's trials."""
    create: Any = k8s_job_executor.executor_creation_fn
    executor: StepDelegatingExecutor = create(context)
    # A worker that starts when the search is over has nothing to train, so it must not wait for a GPU.
    without_needs: StepDelegatingExecutor = create(
        context._replace(executor_config={**context.executor_config, "per_step_k8s_config": {}})
    )
    with dg.build_resources({"backend": context.job.get_definition().resource_defs["backend"]}) as resources:
        backend: Backend = resources.backend
    # Dagster has no public way to give its executor another handler.
    executor._step_handler = WatchedSteps(backend, executor._step_handler, without_needs._step_handler)
    executor._check_step_health_interval_seconds = _CHECK_SECONDS
    return executor


class WatchedSteps(StepHandler):
    """Steps as Kubernetes Jobs, and the checks of workers' pods.

    Args:
        backend: the store and the catalog of the sweep.
        needing: launches a worker with the needs of its trials.
        idle: launches a worker without such needs, when the search is over.
    """

    name = "WatchedSteps"

    def __init__(self, backend: Backend, needing: StepHandler, idle: StepHandler) -> None:
        super().__init__()
        self._backend = backend
        self._needing = needing
        self._idle = idle
        # Dicts are by step. Times are those of the monotonic clock.
        self._since: dict[str, float] = {}  # when the step's job was launched
        self._ran = float("-inf")  # when a worker was last observed to run
        self._logged: dict[str, str] = {}  # the kind of reason why the step waits, as last logged
        # when the step's pod was first observed to have ended without an event of its end
        self._ended: dict[str, float] = {}
        self._not_started: dict[str, str] = {}  # why the step never started
        self._relaunched_idle: set[str] = set()  # steps launched again without needs, as the search is over
        self._sweep: Scheduler | None = None
        self._requeued = float("-inf")  # when lost trials were last queued again
        self._pods: tuple[float, list[V1Pod]] = (float("-inf"), [])  # the time of the request, and the pods

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        from urllib3.exceptions import HTTPError

        step = _step(step_handler_context)
        if step in self._not_started:
            raise WorkerNotStarted(self._not_started[step])
        if crashes := _too_many_crashes(step_handler_context, step):
            yield _give_up_event(step_handler_context, step, crashes)
            return
        self._since[step] = time.monotonic()
        self._ended.pop(step, None)
        try:
            yield from self._handler(step).launch_step(step_handler_context)
        except DagsterK8sUnrecoverableAPIError as error:
            # A resumed run takes steps for dead and launches them again, under the same name. If the job
            # still exists, the next check finds its state.
            if getattr(error.k8s_api_exception, "status", None) != _CONFLICT:
                raise
        except (DagsterK8sAPIRetryLimitExceeded, HTTPError, OSError) as error:
            _log.warning(
                "step %s is launched again if the cluster's API, which does not answer, has no job of it: %s",
                step,
                error,
            )

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        yield from self._handler(_step(step_handler_context)).terminate_step(step_handler_context)

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        step = _step(step_handler_context)
        try:
            return self._health(step_handler_context, step)
        except Exception as error:  # noqa: BLE001
            # The cluster's API and the database may raise anything, and Dagster would take the step for dead.
            _log.warning(
                "cannot check step %s, which counts as healthy until the next check: %s", step, error
            )
            return CheckStepHealthResult.healthy()

    def _health(self, context: StepHandlerContext, step: str) -> CheckStepHealthResult:
        pods = self._pods_of(context)
        worker = step.startswith(WORKERS)
        if worker:
            self._requeue_lost(context)
        if any(pod.status.phase == "Running" and not termination_of(pod) for pod in pods):
            if worker:
                self._ran = time.monotonic()
            return CheckStepHealthResult.healthy()
        if lost := next((pod for pod in pods if is_lost(pod, datetime.now(UTC))), None):
            list(self.terminate_step(context))
            return _blameless(
                f"pod {lost.metadata.name} is lost with its node {lost.spec.node_name}, which does not "
                "confirm its end"
            )
        if any(pod.status.phase == "Running" and pod.metadata.deletion_timestamp for pod in pods):
            # The job counts as failed from the deletion on (Kubernetes 1.26), but the worker still saves, and
            # reports its end itself.
            return CheckStepHealthResult.healthy()
        health = self._handler(step).check_step_health(context)
        if not health.is_healthy:
            termination = next(filter(None, map(termination_of, pods)), None)
            if termination is None:
                return _blameless(str(health.unhealthy_reason))
            reason = f"{health.unhealthy_reason} {termination.reason}"
            if termination.own_fault:
                return CheckStepHealthResult.unhealthy(reason)
            return _blameless(reason)
        if pods and all(pod.status.phase == "Succeeded" for pod in pods):
            # Kubernetes may start a deleted pod again, which Dagster ends at once. Then no event reports the
            # end of the first pod.
            since = self._ended.setdefault(step, time.monotonic())
            if time.monotonic() - since > _LAST_EVENT_SECONDS:
                return _blameless("its pod was deleted, or ended without an event")
            return health
        if not worker or any(has_started(pod) for pod in pods):
            return health
        reasons = [why_not_started(pod) for pod in pods]
        queued = any(is_queued(pod) for pod in pods)
        if not pods and (job := read_job(self._job(context))) is not None:
            reasons = [why_no_pod(job)]
            queued = bool(job.spec.suspend)
        if queued:
            self._since[step] = time.monotonic()  # Time in a queue does not count.
        return self._wait_or_give_up(context, step, next(filter(None, reasons), None))

    def _pods_of(self, context: StepHandlerContext) -> "list[V1Pod]":
        """The pods of a step's job; one request to the cluster serves all steps of a round."""
        requested, pods = self._pods
        if time.monotonic() - requested > _CHECK_SECONDS / 2:
            pods = find_pods({"dagster/run-id": context.dagster_run.run_id})
            self._pods = (time.monotonic(), pods)
        return [pod for pod in pods if pod.metadata.labels.get("job-name") == self._job(context)]

    def _job(self, context: StepHandlerContext) -> str:
        # It is a method of Dagster's K8sStepHandler.
        name: str = self._needing._get_k8s_step_job_name(context)  # type: ignore[attr-defined]
        return name

    def _wait_or_give_up(
        self, context: StepHandlerContext, step: str, reason: str | None
    ) -> CheckStepHealthResult:
        """Decide on a worker whose pod has not started yet: wait, give up, or start it without its needs."""
        if reason and self._logged.get(step) != reason_kind(reason):
            self._logged[step] = reason_kind(reason)
            DagsterEvent.engine_event(
                context.get_step_context(step),
                f"{step} waits for its pod to start: {reason}",
                EngineEventData(),
            )
        scheduler = self._scheduler(context)
        now = time.monotonic()
        if not scheduler.searching():
            list(self.terminate_step(context))
            self._relaunched_idle.add(step)
            return _blameless(f"the search was over before the pod of {step} started; it is released")
        limit = scheduler.spec.resources.start_timeout_seconds
        if now - max(self._since.setdefault(step, now), self._ran) <= limit:
            return CheckStepHealthResult.healthy()
        if scheduler.state().control is not Control.RUN:
            self._since[step] = now  # A paused sweep needs no worker.
            return CheckStepHealthResult.healthy()
        self._not_started[step] = (
            f"no worker of the sweep could start within resources.start_timeout_seconds = {limit:g}: "
            f"{reason or 'the cluster gives no reason'}. Ask for less, or give the cluster what is "
            "missing; the same job then goes on"
        )
        list(self.terminate_step(context))
        return CheckStepHealthResult.unhealthy(self._not_started[step])

    def _requeue_lost(self, context: StepHandlerContext) -> None:
        """Queue lost trials again, once a round.

        Workers do so whenever they take a trial, but no worker may be left.
        """
        if time.monotonic() - self._requeued > _CHECK_SECONDS / 2:
            try:
                self._scheduler(context).requeue_lost()
            except Exception as error:  # noqa: BLE001
                # The database may raise anything, and the pods' health does not depend on it.
                _log.warning("lost trials are looked for in the next round: %s", error)
            # The time is set afterwards, so that not every step waits for an unavailable database.
            self._requeued = time.monotonic()

    def _scheduler(self, context: StepHandlerContext) -> Scheduler:
        """The sweep that the run has opened and is tagged with."""
        if self._sweep is None:
            run = context.instance.get_run_by_id(context.dagster_run.run_id)
            if run is None or SWEEP_LABEL not in run.tags:
                raise WorkerNotStarted(
                    f"run {context.dagster_run.run_id} has workers and no tag {SWEEP_LABEL}"
                )
            self._sweep = make_scheduler(self._backend, run.tags[SWEEP_LABEL], retry_seconds=_RETRY_SECONDS)
        return self._sweep

    def _handler(self, step: str) -> StepHandler:
        return self._idle if step in self._relaunched_idle else self._needing


def _step(context: StepHandlerContext) -> str:
    (step,) = context.execute_step_args.step_keys_to_execute or ()
    return step


def _blameless(reason: str) -> CheckStepHealthResult:
    """The result for a step that is launched again without counting as crashed."""
    return CheckStepHealthResult.unhealthy(f"{reason}; {_BLAMELESS}")


def _too_many_crashes(context: StepHandlerContext, step: str) -> int:
    """The number of crashes of a slot's worker if these are too many, else 0.

    Dagster's own count includes reclaimed workers.
    """
    state = context.execute_step_args.known_state
    if not step.startswith(WORKERS) or state is None:
        return 0
    if state.get_retry_state().get_attempt_count(step) <= MAX_CRASHES:
        return 0
    retries = context.instance.all_logs(
        context.dagster_run.run_id, of_type=DagsterEventType.STEP_UP_FOR_RETRY
    )
    crashes = sum(
        entry.step_key == step and not _is_blameless(entry.get_dagster_event()) for entry in retries
    )
    if crashes <= MAX_CRASHES:
        return 0
    return crashes


def _is_blameless(retry: DagsterEvent) -> bool:
    """Whether a worker was launched again because it had been reclaimed or released."""
    error = retry.step_retry_data.error
    return error is not None and (error.cls_name == dg.RetryRequested.__name__ or _BLAMELESS in error.message)


def _give_up_event(context: StepHandlerContext, step: str, crashes: int) -> DagsterEvent:
    message = (
        f"{step} crashed {crashes} times and is not started again; other workers go on, and the same job "
        "then resumes the sweep"
    )
    return DagsterEvent.step_failure_event(
        context.get_step_context(step),
        StepFailureData(
            error=SerializableErrorInfo(message, stack=[], cls_name=None), user_failure_data=None
        ),
    )
