"""The pod of a rerun: what it is given, and that none is left, whatever ends it before its training has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from halving import Store
from halving.errors import InvalidInput, NotFound
from halving.rerun.execution import TrialRequest
from halving.rerun.pods import PodRerun, RerunFailed
from halving.trial.mailbox import Mailbox, read_task
from halving.trial.messages import Granted, Interrupted, Message, Raised, ReachedRung, Ready, Stopped
from resources.execution.kubernetes import rerun_pod
from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.execution.kubernetes.rerun_pod import RerunPods, rerun_pods
from tests.resources.execution.kubernetes.cluster import Cluster

IMAGE = "registry.example/train:1"
READY = Ready({"python": {}}, None)
RUNNING = {
    "phase": "Running",
    "containerStatuses": [{"name": "trial", "image": IMAGE, "imageID": "docker-pullable://t@sha256:12"}],
}
for _status in RUNNING["containerStatuses"]:
    _status |= {"ready": True, "restartCount": 0, "state": {"running": {}}}  # type: ignore[operator]


class Rerun:
    """A rerun on a cluster whose pods say what a test gives them."""

    def __init__(self, cluster: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rerun_pod, "_RECEIVE_SECONDS", 0.0)
        self.cluster = cluster
        self.store = store
        self.lines: list[str] = []
        self.manifest: dict[str, Any] = {}
        self.folder = "runs/project=p/s.0007-rerun-1/mail/0001"

    def train(
        self,
        *messages: Message | Ready | Granted | bytes,
        ready: Callable[..., None] = lambda *_: None,
        **resources: Any,
    ) -> None:
        self.cluster.created = lambda manifest: self._say(manifest, messages)
        request = TrialRequest(
            recorded={}, context={"root": "s3://b/p"}, trainable="m:train", epochs=9, threads=1, image=IMAGE
        )
        rerun = PodRerun(
            rerun_of="p/s.0007",
            project="p",
            run="s.0007-rerun-1",
            image=IMAGE,
            resources={"cpus": 2, "start_timeout_seconds": 2, **resources},
            variables={"OMP_NUM_THREADS": "2"},
            request=request,
        )
        pods = {
            "env": {"AWS_DEFAULT_REGION": "x"},
            "env_secrets": ["halving-store"],
            "service_account": "halving-trial",
        }
        RerunPods(ClusterConfig.model_validate({"trial_pods": pods})).train(
            self.store, rerun, ready, self.lines.append
        )

    def _say(self, manifest: dict[str, Any], messages: tuple[Message | Ready | Granted | bytes, ...]) -> None:
        self.manifest = manifest
        assert b'"epochs": 9' in read_task(self.store, self.folder), "it finds its request"
        mailbox = Mailbox(self.store, self.folder, sends="trial", reads="worker")
        for message in messages:
            if isinstance(message, bytes):
                self.store.create(f"{self.folder}/trial-000001.json", message)
            else:
                mailbox.send(message)


@pytest.fixture
def rerun(cluster: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch) -> Rerun:
    return Rerun(cluster, store, monkeypatch)


def test_a_reruns_pod_gets_what_a_trials_pod_gets_and_the_recorded_variables(rerun: Rerun) -> None:
    rerun.cluster.status = RUNNING
    pods: list[Any] = []
    rerun.train(READY, Stopped(), ready=lambda *said: pods.append(said))
    assert pods == [(READY, "t@sha256:12")]
    (container,) = rerun.manifest["spec"]["containers"]
    assert (container["image"], container["command"]) == (
        IMAGE,
        ["python3", "-m", "halving.rerun.trial_process"],
    )
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {
        "HOME": "/tmp",
        "AWS_DEFAULT_REGION": "x",
        "OMP_NUM_THREADS": "2",
        "HALVING_ROOT": "s3://b/p",
        "HALVING_MAILBOX": "runs/project=p/s.0007-rerun-1/mail/0001",
    }
    assert container["envFrom"] == [{"secretRef": {"name": "halving-store"}}]
    assert container["resources"]["requests"] == {"cpu": "2"}
    assert rerun.manifest["spec"]["serviceAccountName"] == "halving-trial"
    # Kept from the webserver as trials are, and not taken for one of the sweep's attempts.
    labels = rerun.manifest["metadata"]["labels"]
    assert (labels["halving/trial"], labels["halving/pod"]) == ("s.0007", "rerun")
    assert "halving/attempt" not in labels
    assert (rerun.cluster.pods, rerun.store.names("runs/project=p/s.0007-rerun-1/mail/0001")) == ({}, [])


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    status = {
        "name": "trial",
        "image": IMAGE,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    return {"phase": "Pending", "containerStatuses": [status]}


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"])
def test_an_image_that_is_gone_is_one_error_that_names_it(rerun: Rerun, reason: str) -> None:
    rerun.cluster.status = waiting(reason, "no such manifest")
    with pytest.raises(
        NotFound,
        match=rf"the image {IMAGE} of run p/s.0007 cannot be had by this cluster any more: {reason}: no such",
    ):
        rerun.train(start_timeout_seconds=60)
    assert rerun.cluster.pods == {}


def test_a_pod_that_does_not_start_in_time_is_given_up_with_the_clusters_reason(rerun: Rerun) -> None:
    rerun.cluster.status = waiting("ErrImagePull", "connection reset")  # once is no reason to give up
    with pytest.raises(
        RerunFailed,
        match=r"did not start within resources.start_timeout_seconds = 2: ErrImagePull: connection reset",
    ):
        rerun.train()
    assert rerun.lines == ["the pod waits to start: ErrImagePull: connection reset"]
    assert rerun.cluster.pods == {}


@pytest.mark.parametrize(
    ("status", "messages", "said"),
    [
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            (READY,),
            "Evicted: low on memory",
        ),
        ({"phase": "Succeeded"}, (), "ended without a message"),
        (
            RUNNING,
            (READY, Raised("ValueError: no", final=True, checkpoint=None)),
            "it raised:\nValueError: no",
        ),
        (RUNNING, (ReachedRung(3, {"score": 1.0}, f"sha256:{'0' * 64}"),), "ReachedRung came from it"),
        (RUNNING, (Stopped(),), "Stopped came from it"),
        (
            RUNNING,
            (b'{"kind": "Ready", "environment": [], "trainable_sha256": null}',),
            "Ready.environment = ",
        ),
        (RUNNING, (READY, READY), "Ready came from it"),
        (RUNNING, (READY, Interrupted("SIGTERM")), "Interrupted came from it"),
    ],
)
def test_a_pod_that_ends_before_its_training_is_an_error_with_its_reason(
    rerun: Rerun, status: dict[str, Any], messages: tuple[Any, ...], said: str
) -> None:
    rerun.cluster.status = status
    with pytest.raises(
        RerunFailed, match=f"the rerun of p/s.0007 in a pod of the image {IMAGE} came to no end .*{said}"
    ):
        rerun.train(*messages)
    assert rerun.cluster.pods == {}


@pytest.mark.parametrize("error", [InvalidInput("it differs"), KeyboardInterrupt()])
def test_a_refusal_or_ctrl_c_leaves_no_pod_and_grants_it_nothing(rerun: Rerun, error: BaseException) -> None:
    rerun.cluster.status = RUNNING

    def refuse(*_: Any) -> None:
        assert len(rerun.cluster.pods) == 1
        raise error

    with pytest.raises(type(error)):
        rerun.train(READY, Stopped(), ready=refuse)
    assert rerun.cluster.pods == {}


def test_one_pod_with_its_own_mailbox_looks_around_before_a_rerun_has_a_gang(
    rerun: Rerun,
) -> None:
    rerun.cluster.status = RUNNING
    rerun.folder = "runs/project=p/s.0007-rerun-1/mail/0000"

    def refuse(*said: Any) -> None:
        assert said == (READY, "t@sha256:12")
        raise InvalidInput("it differs")

    with pytest.raises(InvalidInput, match="it differs"):
        rerun.train(READY, ready=refuse, nodes=2)
    assert (rerun.cluster.pods, rerun.store.names(rerun.folder)) == ({}, [])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HTTPError("connection refused"), "does not answer: connection refused"),
        (ApiException(403, "Forbidden"), "answers 403: Forbidden"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_an_error_before_anything_is_written(
    rerun: Rerun, error: Exception, said: str
) -> None:
    rerun.cluster.fails["read"] = [error]
    with pytest.raises(
        InvalidInput, match=f"a rerun in an image needs a cluster, and its API {said}. KUBECONFIG = "
    ):
        rerun.train()
    assert rerun.store.names("runs/project=p") == []


def test_an_account_that_may_not_create_pods_is_told_so_at_once(rerun: Rerun) -> None:
    refusal = ApiException(403, "Forbidden")
    refusal.body = (
        r'{"message":"pods is forbidden: User \"code\" cannot create resource \"pods\" in API group"}'
    )
    rerun.cluster.fails["create"] = [refusal]
    with pytest.raises(
        InvalidInput,
        match=r'needs the right to create pods: .*User "code" cannot create .*Start the job rerun',
    ):
        rerun.train(start_timeout_seconds=60)
    assert rerun.cluster.pods == {}


def test_a_record_that_asks_for_what_this_cluster_does_not_have_is_refused(rerun: Rerun) -> None:
    with pytest.raises(InvalidInput, match="gpu_type = 'h900' is not accepted"):
        rerun.train(gpus=1, gpu_type="h900")
    with pytest.raises(InvalidInput, match=r"the resources in the record of p/s.0007 are not accepted"):
        rerun.train(cores=1)


def test_without_the_clusters_settings_no_cluster_is_at_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HALVING_CLUSTER", raising=False)
    assert rerun_pods() is None
    (tmp_path / "cluster.yaml").write_text("{}")
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    assert isinstance(rerun_pods(), RerunPods)
