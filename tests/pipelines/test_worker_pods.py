"""Workers of a one-job sweep whose pods do not start, are reclaimed, or crash, on a simulated cluster."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.events import DagsterEvent, StepSuccessData
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)
from dagster_k8s.client import DagsterK8sUnrecoverableAPIError
from kubernetes.client import ApiException, V1Pod
from sqlalchemy import update

from pipelines import worker_pods
from pipelines.worker_pods import MAX_CRASHES, WORKERS, WatchedSteps
from resources.backend import Backend
from resources.catalog import TrialRow
from resources.datasets.snapshots import take_snapshot
from resources.execution.kubernetes.pod_manifests import SWEEP_LABEL
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep, pause_sweep
from resources.search.state import Status
from resources.sweep_spec import parse_spec
from tests.resources.execution.kubernetes.pod_json import pod

Small = Callable[..., dict[str, Any]]
LIMIT = 30.0  # start_timeout_seconds


class Jobs(StepHandler):
    """A fake of Dagster's handler of Kubernetes Jobs: a job is dead if a pod has failed or was deleted.

    Kubernetes counts a deleted pod since 1.26.
    """

    name = "Jobs"

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        self._cluster.launched.append(self._get_k8s_step_job_name(step_handler_context))
        yield from self._cluster.launch(step_handler_context)

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        job = self._get_k8s_step_job_name(step_handler_context)
        if any(pod.status.phase == "Failed" or pod.metadata.deletion_timestamp for pod in self._cluster.pods):
            return CheckStepHealthResult.unhealthy(f"Discovered failed Kubernetes job {job}.")
        return CheckStepHealthResult.healthy()

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        self._cluster.terminated.append(self._get_k8s_step_job_name(step_handler_context))
        yield from ()

    def _get_k8s_step_job_name(self, context: StepHandlerContext) -> str:
        (step,) = context.execute_step_args.step_keys_to_execute or ()
        return f"job-{step}"


class Cluster:
    """What a test lets the cluster say, and what was asked of it."""

    now = 0.0

    def __init__(self) -> None:
        self.pods: list[V1Pod] = []
        self.launched: list[str] = []
        self.terminated: list[str] = []
        self.logged: list[str] = []
        self.launch: Callable[[StepHandlerContext], Iterator[DagsterEvent]] = lambda context: iter(())

    def find_pods(self, labels: dict[str, str]) -> list[V1Pod]:
        return self.pods

    def shows(self, *states: V1Pod, step: str = f"{WORKERS}[0]") -> None:
        for state in states:
            state.metadata.labels = {"job-name": f"job-{step}"}
        self.pods = list(states)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(worker_pods, "find_pods", lambda labels: cluster.find_pods(labels))
    monkeypatch.setattr(worker_pods, "read_job", lambda name: None)
    monkeypatch.setattr("resources.execution.kubernetes.pending_pods.events_of", lambda subject: [])
    return cluster


class Watched:
    """The handler under test, looking at the slots of one sweep at a time that the test sets."""

    def __init__(self, backend: Backend, scheduler: Scheduler, cluster: Cluster) -> None:
        self.handler = WatchedSteps(backend, Jobs(cluster), Jobs(cluster))
        self._run = SimpleNamespace(run_id="r", tags={SWEEP_LABEL: scheduler.id})
        self._cluster = cluster

    def context(self, slot: int) -> Any:
        arguments = SimpleNamespace(step_keys_to_execute=[f"{WORKERS}[{slot}]"], known_state=None)
        instance = SimpleNamespace(get_run_by_id=lambda run_id: self._run)
        return SimpleNamespace(
            execute_step_args=arguments,
            instance=instance,
            dagster_run=self._run,
            get_step_context=lambda step: None,
        )

    def launch(self, slot: int = 0) -> None:
        list(self.handler.launch_step(self.context(slot)))

    def look(self, after: float, slot: int = 0) -> CheckStepHealthResult:
        self._cluster.now += after
        return self.handler.check_step_health(self.context(slot))


@pytest.fixture
def scheduler(backend: Backend, small: Small) -> Scheduler:
    spec = parse_spec(small(resources={"start_timeout_seconds": LIMIT}))
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    return Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
    )


@pytest.fixture
def watched_steps(
    backend: Backend, scheduler: Scheduler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Watched:
    monkeypatch.setattr(worker_pods, "time", SimpleNamespace(monotonic=lambda: cluster.now))
    monkeypatch.setattr(
        worker_pods.DagsterEvent,
        "engine_event",
        lambda context, message, data: cluster.logged.append(message),
    )
    return Watched(backend, scheduler, cluster)


def unschedulable(nodes: int = 1) -> V1Pod:
    lacking = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/{nodes} nodes are available",
    }
    return pod("Pending", conditions=[lacking])


def running() -> V1Pod:
    return pod("Running", containers=[{"running": {}}])


@pytest.mark.parametrize("state", ["waits for a node", "ran on a node that is lost"])
def test_a_lost_trial_is_queued_again_although_no_worker_lives_to_do_it(
    backend: Backend, scheduler: Scheduler, watched_steps: Watched, cluster: Cluster, state: str
) -> None:
    scheduler.next_work("gone:1")
    with backend.catalog.write() as session:
        session.execute(update(TrialRow).values(lease_until=1.0, doubted_until=2.0))
    cluster.shows(unschedulable() if state == "waits for a node" else running())
    assert watched_steps.look(5).is_healthy
    assert scheduler.state().trials[0].status is Status.QUEUED


def test_a_run_without_workers_ends_with_the_clusters_reason_despite_a_lost_trial(
    scheduler: Scheduler, watched_steps: Watched, cluster: Cluster
) -> None:
    scheduler.next_work("gone:1")
    cluster.shows(unschedulable())
    watched_steps.launch()
    assert watched_steps.look(LIMIT - 1).is_healthy
    given_up = watched_steps.look(2)
    assert (
        "no worker of the sweep could start within resources.start_timeout_seconds = 30: Unschedulable"
        in str(given_up.unhealthy_reason)
    )
    assert cluster.terminated == [f"job-{WORKERS}[0]"]
    with pytest.raises(worker_pods.WorkerNotStarted, match="0/1 nodes are available"):
        watched_steps.launch()


def test_a_slot_without_a_node_waits_while_another_worker_runs_or_has_just_run(
    watched_steps: Watched, cluster: Cluster
) -> None:
    first = running()
    second = unschedulable()
    cluster.shows(first)
    second.metadata.labels = {"job-name": f"job-{WORKERS}[1]"}
    cluster.pods.append(second)
    watched_steps.launch(0)
    watched_steps.launch(1)
    for _ in range(4):
        assert watched_steps.look(LIMIT / 2, slot=0).is_healthy
        assert watched_steps.look(0, slot=1).is_healthy
    cluster.pods = [second]  # the other is reclaimed, between two trials
    assert watched_steps.look(LIMIT / 2, slot=1).is_healthy
    assert not watched_steps.look(LIMIT, slot=1).is_healthy


def test_a_paused_sweep_does_not_fail_for_want_of_workers(
    backend: Backend, scheduler: Scheduler, watched_steps: Watched, cluster: Cluster
) -> None:
    pause_sweep(backend.catalog, scheduler.id)
    cluster.shows(unschedulable())
    watched_steps.launch()
    for _ in range(4):
        assert watched_steps.look(LIMIT).is_healthy
    assert cluster.terminated == []


def test_a_slot_that_waits_when_the_search_is_over_is_let_go_and_that_is_no_crash(
    backend: Backend, scheduler: Scheduler, watched_steps: Watched, cluster: Cluster
) -> None:
    with backend.catalog.write() as session:
        backend.catalog.sweep(session, scheduler.id).status = "evaluating"
    cluster.shows(unschedulable())
    let_go = watched_steps.look(5)
    assert "it is released; this does not count as a crash" in str(let_go.unhealthy_reason)


def test_a_worker_that_was_deleted_and_still_saves_tells_its_end_itself(
    watched_steps: Watched, cluster: Cluster
) -> None:
    deleted = running()
    deleted.metadata.deletion_timestamp = datetime.now(UTC) + timedelta(seconds=60)
    cluster.shows(deleted)
    assert watched_steps.look(5).is_healthy
    deleted.status.phase = "Failed"
    assert not watched_steps.look(5).is_healthy


def test_a_pod_on_a_node_that_does_not_confirm_its_end_is_given_up(
    watched_steps: Watched, cluster: Cluster
) -> None:
    deleted = running()
    cluster.shows(deleted)
    deleted.metadata.deletion_timestamp = datetime.now(UTC) - timedelta(seconds=10)
    assert watched_steps.look(5).is_healthy
    deleted.metadata.deletion_timestamp = datetime.now(UTC) - timedelta(seconds=40)
    lost = watched_steps.look(5)
    assert "pod pod-1 is lost with its node node1" in str(lost.unhealthy_reason)
    assert cluster.terminated == [f"job-{WORKERS}[0]"]


def test_a_step_that_cannot_be_looked_at_is_taken_for_healthy(
    watched_steps: Watched, cluster: Cluster
) -> None:
    def unavailable(labels: dict[str, str]) -> list[V1Pod]:
        raise ApiException(status=503, reason="the API restarts")

    cluster.find_pods = unavailable  # type: ignore[method-assign]
    assert watched_steps.look(5).is_healthy


@pytest.mark.parametrize("status", [409, 403])
def test_a_resumed_run_goes_on_with_a_job_that_is_there_already(
    watched_steps: Watched, cluster: Cluster, status: int
) -> None:
    def refuse(context: StepHandlerContext) -> Iterator[DagsterEvent]:
        raise DagsterK8sUnrecoverableAPIError(
            "", k8s_api_exception=ApiException(status=status), original_exc_info=(Exception, None, None)
        )
        yield

    cluster.launch = refuse
    if status == 409:
        watched_steps.launch()
    else:
        with pytest.raises(DagsterK8sUnrecoverableAPIError):
            watched_steps.launch()


def test_a_reason_is_logged_once_however_its_numbers_change(watched_steps: Watched, cluster: Cluster) -> None:
    for nodes in (1, 2, 3):
        cluster.shows(unschedulable(nodes))
        watched_steps.look(5)
    assert cluster.logged == [
        f"{WORKERS}[0] waits for its pod to start: Unschedulable: 0/1 nodes are available"
    ]


_IN_USE: list[Any] = []  # the backend and the cluster of the job below


@dg.executor(name="jobs", requirements=multiple_process_executor_requirements())
def jobs(_context: dg.InitExecutorContext) -> StepDelegatingExecutor:
    backend, cluster = _IN_USE
    watched = WatchedSteps(backend, Jobs(cluster), Jobs(cluster))
    return StepDelegatingExecutor(
        watched, RetryMode.ENABLED, sleep_seconds=0.0, check_step_health_interval_seconds=0
    )


@dg.op(name=WORKERS, retry_policy=dg.RetryPolicy(max_retries=10_000))
def one_worker() -> None: ...


@dg.job(executor_def=jobs)
def one_slot() -> None:
    one_worker()


@pytest.mark.parametrize(
    ("reclaimed", "crashed", "success"), [(2 * MAX_CRASHES, MAX_CRASHES, True), (3, MAX_CRASHES + 1, False)]
)
def test_a_worker_may_be_reclaimed_as_often_as_it_likes_and_crash_ten_times(
    backend: Backend,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    reclaimed: int,
    crashed: int,
    success: bool,
) -> None:
    monkeypatch.setattr(worker_pods, "_CHECK_SECONDS", 0)
    deaths = [pod("Failed", reason="Evicted") for _ in range(reclaimed)]
    deaths += [
        pod("Failed", containers=[{"terminated": {"reason": "Error", "exitCode": 1}}]) for _ in range(crashed)
    ]

    def launch(context: StepHandlerContext) -> Iterator[DagsterEvent]:
        cluster.pods = []
        if deaths:
            cluster.shows(deaths.pop(), step=WORKERS)
        else:
            yield DagsterEvent.step_success_event(
                context.get_step_context(WORKERS), StepSuccessData(duration_ms=0.0)
            )  # type: ignore[arg-type]

    cluster.launch = launch
    _IN_USE[:] = [backend, cluster]
    with dg.instance_for_test() as instance:
        done = dg.execute_job(dg.reconstructable(one_slot), instance=instance, raise_on_error=False)
        failures = [event.step_failure_data.error for event in done.all_events if event.is_step_failure]
    assert done.success is success
    if success:
        assert len(cluster.launched) == reclaimed + crashed + 1
    else:
        assert f"{WORKERS} crashed {crashed} times and is not started again" in str(failures[-1])


def test_the_executor_looks_at_the_sweep_in_the_lab_of_its_code_location(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, "
        "user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    config_of_executor = {
        "load_incluster_config": False,
        "kubeconfig_file": str(config),
        "retries": {"enabled": {}},
    }

    @dg.op(required_resource_keys={"backend"})
    def using() -> None: ...

    @dg.job(executor_def=worker_pods.worker_pods)
    def of_a_backend() -> None:
        using()

    location = dg.Definitions(
        jobs=[of_a_backend], resources={"backend": Backend(root=str(tmp_path / "backend"))}
    )
    context = dg.InitExecutorContext(
        job=InMemoryJob(location.resolve_job_def("of_a_backend")),
        executor_def=worker_pods.worker_pods,
        executor_config=config_of_executor,
        instance=dg.DagsterInstance.ephemeral(),
    )
    executor = worker_pods.worker_pods.executor_creation_fn(context)  # type: ignore[misc]
    assert executor._step_handler._backend.root == str(tmp_path / "backend")  # type: ignore[attr-defined]
