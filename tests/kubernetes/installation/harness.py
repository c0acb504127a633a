"""Halving on a real cluster: deployed once for a session into a namespace of its own, and what tests do to
it.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes
import urllib3

from resources.backend import Backend
from tests.kubernetes.installation.gpus import leave_one_gpu
from tests.kubernetes.overlay import Image, write_overlay
from tests.kubernetes.services import SESSION, ObjectStore, address_for_pods
from tests.postgres import Postgres
from tests.waiting import wait_for

RETRY_SECONDS = 600.0  # for anything that has to happen, on a machine with much to do: after that it hangs
KINDS_OF_GPU = {"a100": {}, "nowhere": {"node_selector": {"halving.test/gpu": "nowhere"}}}
_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PythonError { message stack }
    ... on PipelineNotFoundError { message }
  }
}"""

_KILL_NEWEST = """
import os, pathlib, signal, sys
processes = [
    int(at.parent.name)
    for at in pathlib.Path("/proc").glob("[0-9]*/cmdline")
    if sys.argv[1].encode() in at.read_bytes()
]
os.kill(max(number for number in processes if number != os.getpid()), signal.SIGKILL)
"""


class Installation:
    """The deployment's real base on the cluster, its Postgres and S3 on this machine, and the backend that
    both see.

    Attributes:
        namespace: where everything is.
        core, batch, apps: the cluster's API (``kubernetes.client``).
        backend: catalog and store, from this machine.
        instance: Dagster's instance, from this machine: runs and events.
        postgres: the server; ``stop()`` and ``start()`` end it and bring it back.
        s3: the object store; ``with s3.gate.outage():`` makes it unreachable for a while.
        secrets: the values that may appear in no run, log, event or record.
    """

    def __init__(self) -> None:
        kubernetes.config.load_kube_config(os.environ["KUBECONFIG"])
        self.core = kubernetes.client.CoreV1Api()
        self.batch = kubernetes.client.BatchV1Api()
        self.apps = kubernetes.client.AppsV1Api()
        self.namespace = f"halving-test-{secrets.token_hex(3)}"
        self.image = Image()
        address = address_for_pods(self.core)
        self.secrets = {
            "database": f"planted-{secrets.token_hex(12)}",
            "store": f"planted-{secrets.token_hex(12)}",
        }
        with contextlib.ExitStack() as closing:
            self._folder = Path(tempfile.mkdtemp(prefix="halving-cluster-"))
            closing.callback(shutil.rmtree, self._folder)
            self.postgres = Postgres(
                self._folder, durable=True, address=address, password=self.secrets["database"]
            )
            closing.callback(self.postgres.stop)
            self.s3 = ObjectStore(address)
            closing.callback(self.s3.stop)
            self.s3.make_bucket()
            catalog = self.postgres.database("catalog")
            dagster = self.postgres.database("dagster").replace("+psycopg", "+psycopg2")
            keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": self.secrets["store"]}
            self.settings = {
                "HALVING_ROOT": f"s3://{self.s3.bucket}/experiments",
                "HALVING_LOGS_BUCKET": self.s3.bucket,
                "HALVING_LOGS_PREFIX": "logs",
                "AWS_ENDPOINT_URL": self.s3.url,
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            # This process uses the same store, and finds it as a pod does.
            closing.enter_context(_environment(keys | self.settings | {"HALVING_CATALOG": catalog}))
            self.backend = Backend(root=self.settings["HALVING_ROOT"], catalog_url=catalog)
            closing.callback(lambda: self.backend.catalog.close())
            home = self._folder / "dagster"
            home.mkdir()
            storage = {"storage": {"postgres": {"postgres_url": dagster}}, "telemetry": {"enabled": False}}
            (home / "dagster.yaml").write_text(json.dumps(storage))
            self.instance = dg.DagsterInstance.from_config(str(home))
            closing.callback(self.instance.dispose)
            closing.callback(self._delete_namespace)
            try:
                self._deploy({"DAGSTER_POSTGRES_URL": dagster, "HALVING_CATALOG": catalog}, keys)
            except (RuntimeError, TimeoutError) as error:
                error.add_note(self.story())
                raise
            self._closing = closing.pop_all()

    # What tests do

    def submit(
        self, job: str, spec: dict[str, Any] | None = None, *, tags: dict[str, str] | None = None
    ) -> str:
        """Launch a job as the webserver's launchpad does; gives the run's id.

        Raises:
            RuntimeError: it was not accepted, with Dagster's own words.
        """
        params = {
            "selector": {
                "repositoryLocationName": "halving",
                "repositoryName": "__repository__",
                "jobName": job,
            },
            "runConfigData": json.dumps(spec or {}),
            "executionMetadata": {
                "tags": [{"key": key, "value": value} for key, value in (tags or {}).items()]
            },
        }
        answer = self.wait_for(lambda: self._launch(params), f"an answer to the launch of {job}")
        if answer["__typename"] != "LaunchRunSuccess":
            raise RuntimeError(f"{job} was not launched: {json.dumps(answer)[:4000]}")
        return answer["run"]["runId"]

    def graphql(self, query: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the webserver, through the API server: it needs no address of the webserver's that is seen from
        here.
        """
        body = {"query": query, "variables": variables or {}}
        try:
            answer = self._ask(body)
        except kubernetes.client.ApiException as error:
            # The webserver closes a connection that rests for 5 s, perhaps in the moment in which it is used
            # again: nothing was read then.
            if "use of closed network connection" not in str(error.body):
                raise
            answer = self._ask(body)
        if answer.get("errors"):
            raise RuntimeError(f"the webserver refused: {json.dumps(answer['errors'])[:4000]}")
        return answer["data"]

    def wait_for(
        self, condition: Callable[[], Any], what: str, *, seconds: float = RETRY_SECONDS, every: float = 0.5
    ) -> Any:
        """See :func:`tests.waiting.wait_for`; ``seconds`` where there is a promise."""
        return wait_for(condition, seconds, what, every=every)

    def log_of(self, run_id: str) -> str:
        """All that a run of Dagster's says in its event log, with the errors."""
        events = self.instance.all_logs(run_id)
        details = [
            getattr(event.dagster_event and event.dagster_event.event_specific_data, "error", None)
            for event in events
        ]
        messages = [event.user_message or event.message or "" for event in events]
        return "\n".join(messages + [error.to_string() for error in details if error])

    def wait_for_run(self, run_id: str, *, status: str = "SUCCESS") -> None:
        """Until a run of Dagster's is over.

        Raises:
            RuntimeError: it ended otherwise, with its failures.
            TimeoutError: it is not over.
        """
        self.wait_for(lambda: self.instance.get_run_by_id(run_id).is_finished, f"the end of run {run_id}")
        ended = self.instance.get_run_by_id(run_id).status.value
        if ended != status:
            raise RuntimeError(f"run {run_id} ended as {ended}, not {status}:\n{self.log_of(run_id)[-8000:]}")

    def pods(self, selector: str = "", *, phase: str | None = None) -> list[Any]:
        """Pods by label, for example ``halving/trial=…`` or ``app.kubernetes.io/component=step_worker``."""
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=selector).items
        return [pod for pod in pods if phase is None or pod.status.phase == phase]

    def delete_pod(self, name: str, *, grace_seconds: int | None = None) -> None:
        """As ``kubectl delete pod`` and as a reclaimed node does: SIGTERM, the grace period, SIGKILL."""
        options = {}
        if grace_seconds is not None:
            options["grace_period_seconds"] = grace_seconds
        self.core.delete_namespaced_pod(name, self.namespace, **options)

    def kill_newest(self, pod: str, command: str) -> None:
        """SIGKILL to the newest process in a pod whose command line has ``command`` in it."""
        self.execute(pod, "python3", "-c", _KILL_NEWEST, command)

    @contextlib.contextmanager
    def one_gpu_left(self) -> Iterator[None]:
        """Leave one GPU; see :func:`tests.kubernetes.installation.gpus.leave_one_gpu`."""
        with leave_one_gpu(self.core, self.namespace, self.image.name):
            yield

    def execute(self, pod: str, *command: str) -> str:
        """The output of a command in a pod."""
        return self.kubectl("exec", pod, "--", *command)

    def restart(self, *deployments: str) -> None:
        """Delete the deployments' pods at once, without a grace period, and wait for those that replace
        them.
        """
        for name in deployments:
            for pod in self.pods(f"app.kubernetes.io/component={name}"):
                self.delete_pod(pod.metadata.name, grace_seconds=0)
        for name in deployments:
            self.wait_until_ready(name)
        self.wait_until_served()

    def wait_until_served(self) -> None:
        self.wait_for(self._is_served, "the webserver to have the code location")

    def wait_until_ready(self, deployment: str) -> None:
        """
        Raises:
            RuntimeError: its pod crashes again and again.
            TimeoutError: it is not ready.
        """

        def ready() -> bool:
            pods = self.pods(f"app.kubernetes.io/component={deployment}")
            for pod in pods:
                if any(
                    container.restart_count > 1 and not container.ready
                    for container in pod.status.container_statuses or []
                ):
                    raise RuntimeError(
                        f"{pod.metadata.name} crashes: "
                        + self.kubectl("logs", pod.metadata.name, "--tail=20", check=False)
                    )
            status = self.apps.read_namespaced_deployment(deployment, self.namespace)
            wanted = (status.metadata.generation, status.spec.replicas, status.spec.replicas)
            if (
                status.status.observed_generation,
                status.status.ready_replicas,
                status.status.replicas,
            ) != wanted:
                return False
            # Just after its pods were deleted a Deployment's status still counts them.
            living = [
                pod
                for pod in pods
                if pod.status.phase in ("Pending", "Running") and not pod.metadata.deletion_timestamp
            ]
            states = [pod.status.container_statuses or [] for pod in living]
            up = [
                containers
                for containers in states
                if containers and all(container.ready for container in containers)
            ]
            return len(up) == len(states) == status.spec.replicas

        self.wait_for(ready, f"deployment {deployment} ready")

    @contextlib.contextmanager
    def awake(self, deployment: str, *, replicas: int) -> Iterator[None]:
        """A deployment that is asleep (``tests/kubernetes/overlay.py``), ready for the length of the ``with``
        block.
        """
        self.kubectl("scale", "deployment", deployment, f"--replicas={replicas}")
        try:
            self.wait_until_ready(deployment)
            yield
        finally:
            self.kubectl("scale", "deployment", deployment, "--replicas=0")

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """``kubectl …`` in the namespace; gives its output.

        Raises:
            RuntimeError: it failed, with what it said.
        """
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, input=stdin)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def story(self) -> str:
        """What the cluster has to say: nodes, pods, the latest warnings, the ends of all logs.

        For a test that failed.
        """
        warnings = self.kubectl(
            "get", "events", "--sort-by=.lastTimestamp", "--field-selector=type=Warning", check=False
        ).splitlines()
        parts = [
            self.kubectl("describe", "nodes", check=False).partition("Capacity:")[2],
            self.kubectl("get", "pods,jobs", "-o", "wide", check=False),
            *[warning for warning in warnings if "MissingClusterDNS" not in warning][-30:],
        ]
        for pod in self.pods():
            name = pod.metadata.name
            parts.append(
                f"--- {name} ({pod.status.phase})\n" + self.kubectl("logs", name, "--tail=30", check=False)
            )
        return "\n".join(parts)

    def close(self) -> None:
        """Take everything down. ``HALVING_TEST_KEEP`` leaves the namespace, for a look at it."""
        self._closing.close()

    # How it comes to be

    def _deploy(self, database: dict[str, str], store: dict[str, str]) -> None:
        self.core.create_namespace({"metadata": {"name": self.namespace, "labels": SESSION}})
        for name, entries in {"halving-database": database, "halving-store": store}.items():
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
        self.image.prepare()
        self._write({"concurrency": 4, "gpu_types": KINDS_OF_GPU})
        self.kubectl("apply", "-k", str(self._folder / "overlay"))
        for name in ("code-location", "webserver", "daemon"):
            self.wait_until_ready(name)
        self.wait_until_served()

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.core.api_client.call_api(
            f"/api/v1/namespaces/{self.namespace}/services/webserver:http/proxy/graphql",
            "POST",
            header_params={"Content-Type": "application/json", "Accept": "application/json"},
            body=body,
            response_types_map={200: "object"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _request_timeout=120,
        )
        return answer

    def _launch(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None where the webserver took a connection from before Postgres was unavailable, which
        it finds out by taking it.
        """
        try:
            return self.graphql(_LAUNCH, {"params": params})["launchRun"]
        except kubernetes.client.ApiException as error:
            if "OperationalError" in str(error.body):
                return None
            raise

    def _is_served(self) -> bool:
        try:
            answer = self.graphql(
                "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }"
            )
        except (RuntimeError, kubernetes.client.ApiException, urllib3.exceptions.HTTPError):
            return False
        return bool(answer["repositoriesOrError"].get("nodes"))

    def _delete_namespace(self) -> None:
        if not os.environ.get("HALVING_TEST_KEEP"):
            self.kubectl(
                "delete",
                "deployments,jobs,pods",
                "--all",
                "--grace-period=0",
                "--force",
                "--wait=false",
                check=False,
            )
            self.kubectl("delete", "namespace", self.namespace, "--wait=false", check=False)

    def _write(self, cluster: dict[str, Any]) -> None:
        overlay = self._folder / "overlay"
        overlay.mkdir(exist_ok=True)
        write_overlay(
            overlay, namespace=self.namespace, settings=self.settings, cluster=cluster, image=self.image
        )


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
