"""An attempt's pod while the cluster's API fails, and when its image sends what it may not."""

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from halving import Store
from halving.errors import InvalidInput, StoreError, StoreUnavailable
from halving.records.run_record import RunRecords
from halving.trial.mailbox import Mailbox
from halving.trial.messages import (
    Granted,
    Interrupted,
    Message,
    Raised,
    ReachedRung,
    Ready,
    ReturnedEarly,
    Stopped,
)
from resources.execution import waiting_note
from resources.execution.kubernetes import api
from resources.execution.kubernetes.image_note import ImageNote
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL, TRIAL_LABEL
from resources.execution.kubernetes.trial_pod import PodProcess
from resources.scheduling.assignment import Superseded
from resources.sweep_spec import SweepSpec
from tests.resources.execution.kubernetes.cluster import IMAGE_ID, Cluster
from tests.s3 import S3, Gate
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
DIGEST = f"sha256:{'0' * 64}"
NO_ANSWER = HTTPError("connection refused")


def manifest(attempt: int) -> dict[str, Any]:
    labels = {TRIAL_LABEL: "s.0001", ATTEMPT_LABEL: str(attempt), "halving/pod": "trial"}
    return {"metadata": {"name": f"pod-{attempt}", "labels": labels}}


class Trial:
    """Attempt 2 at a trial with 3 epochs granted, as its worker has it, and the mailbox's end in its pod."""

    def __init__(
        self,
        store: Store,
        spec: SweepSpec,
        *,
        post_task: Callable[[], None] = lambda: None,
        notes_that_fail: int = 0,
    ) -> None:
        self.noted: list[str | None] = []
        self._failing = notes_that_fail
        mailbox = Mailbox(store, "mail", sends="worker", reads="trial")
        self.image = ImageNote(RunRecords(store, "p", "s.0001"), 2, "train:1")
        self.pod = PodProcess(
            manifest(2),
            spec,
            mailbox,
            granted=3,
            image=self.image,
            post_task=post_task,
            on_waiting=self._note,
        )
        self.says = Mailbox(store, "mail", sends="trial", reads="worker")
        self.pod.start()

    def until_it_ends(self) -> Message | None:
        until = time.monotonic() + 20
        while self.pod.alive and time.monotonic() < until:
            if message := self.pod.receive(0.01):
                return message
        return None

    def _note(self, reason: str | None) -> None:
        self._failing -= 1
        if self._failing >= 0:
            raise ConnectionError("the database is unavailable")
        self.noted.append(reason)


def test_why_a_pod_could_never_be_created_is_the_reason_of_its_trial(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    refusal = ApiException(403, "Forbidden")
    refusal.body = '{"message":"exceeded quota: gpus"}'
    cluster.fails["create"] = [refusal] * 1000
    trial = Trial(store, small_spec(resources={"start_timeout_seconds": 1}))
    assert trial.until_it_ends() is None
    assert trial.pod.termination().reason == (
        "the trial's pod did not start within resources.start_timeout_seconds = 1: the cluster's API "
        "answers 403: exceeded quota: gpus"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailable("no answer"), "the store is unavailable: no answer"),
        (StoreError("access denied"), "the store refuses what the trial's pod is to read: access denied"),
    ],
)
def test_a_store_that_refuses_is_not_called_unavailable(
    cluster: Cluster, store: Store, small_spec: Spec, error: OSError, said: str
) -> None:
    def post_task() -> None:
        raise error

    trial = Trial(store, small_spec(), post_task=post_task)
    trial.pod.receive(0.0)
    assert trial.noted == [said]


def test_an_attempt_gets_no_pod_once_a_later_one_has(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    cluster.create_namespaced_pod("n", manifest(3))
    trial = Trial(store, small_spec())
    with pytest.raises(Superseded, match="attempt 2 gets no pod: pod-3 is of attempt 3"):
        trial.pod.receive(0.0)
    trial.pod.close()
    assert list(cluster.pods) == ["pod-3"]


def test_an_attempt_ends_the_pod_of_an_earlier_one_before_it_has_its_own(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    cluster.create_namespaced_pod("n", manifest(1))
    trial = Trial(store, small_spec())
    trial.pod.receive(0.0)
    assert cluster.pods == {}
    trial.pod.receive(0.0)
    assert list(cluster.pods) == ["pod-2"]


@pytest.mark.parametrize("answer_lost", [False, True])
def test_an_ended_attempt_leaves_no_pod_although_the_api_is_silent_at_first(
    cluster: Cluster, store: Store, small_spec: Spec, answer_lost: bool
) -> None:
    cluster.loses_answers = answer_lost
    trial = Trial(store, small_spec())
    trial.pod.receive(0.0)
    assert list(cluster.pods) == ["pod-2"]
    cluster.fails["delete"] = [NO_ANSWER]
    trial.pod.close()
    assert cluster.pods == {}


def test_a_pod_is_deleted_again_if_the_api_did_not_answer_the_first_time(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    cluster.loses_answers = True
    trial = Trial(store, small_spec())
    trial.pod.receive(0.0)
    cluster.fails["delete"] = [NO_ANSWER]
    trial.pod.terminate()
    assert list(cluster.pods) == ["pod-2"]
    trial.until_it_ends()
    assert cluster.pods == {}
    assert trial.pod.termination().reason == "pod pod-2 was deleted"


def test_an_attempt_that_is_to_end_before_it_has_a_pod_gets_none(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    trial = Trial(store, small_spec())
    trial.pod.terminate()
    assert trial.until_it_ends() is None
    assert cluster.pods == {}


def test_a_trial_that_has_begun_is_asked_back_and_keeps_its_pod(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    cluster.status = {"phase": "Running"}
    trial = Trial(store, small_spec())
    wait_for(lambda: trial.pod.receive(0.0) or trial.pod.started, 20, "its pod's begin", every=0.01)
    for _ in range(2):
        trial.pod.ask_back()
    assert trial.says.is_asked_back()
    assert list(cluster.pods) == ["pod-2"]
    trial.says.send(Interrupted("it has saved"))
    assert trial.until_it_ends() == Interrupted("it has saved")


def test_a_trial_that_began_after_the_last_look_is_asked_back_and_not_deleted(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    trial = Trial(store, small_spec())
    trial.pod.receive(0.0)
    trial.pod.receive(0.0)
    assert not trial.pod.started
    cluster.status = {"phase": "Running"}
    trial.pod.ask_back()
    assert trial.says.is_asked_back()
    assert list(cluster.pods) == ["pod-2"]


@pytest.mark.parametrize("created", [False, True])
def test_a_trial_that_has_not_begun_has_nothing_to_save_and_gets_no_pod(
    cluster: Cluster, store: Store, small_spec: Spec, created: bool
) -> None:
    trial = Trial(store, small_spec())
    if created:
        trial.pod.receive(0.0)
    trial.pod.ask_back()
    trial.pod.ask_back()
    assert trial.until_it_ends() is None
    assert cluster.pods == {}
    assert not trial.pod.alive


def test_a_trial_is_asked_back_once_the_store_is_there_again(
    cluster: Cluster, s3: S3, small_spec: Spec
) -> None:
    gate = Gate((s3.host, s3.port))
    prefix = secrets.token_hex(6)
    trial = Trial(Store(s3.root(prefix, endpoint=gate.endpoint)), small_spec())
    cluster.status = {"phase": "Running"}
    wait_for(lambda: trial.pod.receive(0.0) or trial.pod.started, 20, "its pod's begin", every=0.01)
    with gate.outage():
        trial.pod.ask_back()
    assert not trial.says.is_asked_back()
    trial.pod.ask_back()
    assert trial.says.is_asked_back()
    assert list(cluster.pods) == ["pod-2"]
    gate.shut()


def test_a_reason_that_could_not_be_recorded_is_recorded_later(
    cluster: Cluster, store: Store, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_note, "_AGAIN_SECONDS", 0.0)
    cluster.fails["create"] = [NO_ANSWER] * 3
    trial = Trial(store, small_spec(), notes_that_fail=1)
    trial.pod.receive(0.0)
    assert trial.noted == []
    trial.pod.receive(0.0)
    trial.pod.receive(0.0)
    assert trial.noted == ["the cluster's API does not answer: connection refused"]


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (
            ReachedRung(10**6, {"score": 0.5}, DIGEST),
            "ReachedRung.epoch = 1000000 is not accepted: give 3, as granted",
        ),
        (ReachedRung(2, {"score": 0.5}, DIGEST), "ReachedRung.epoch = 2 is not accepted: give 3, as granted"),
        (
            ReturnedEarly(3, {"score": 0.5}, DIGEST),
            "ReturnedEarly.epoch = 3 is not accepted: give less than the 3 granted",
        ),
        (ReachedRung(3, {"loss": 0.5}, DIGEST), "without values of ['score'] is not accepted"),
        (Granted(9, complete=False), "is not accepted: only the platform grants epochs"),
        (Ready({}, None), "is not accepted: only the process of a rerun sends it"),
    ],
)
def test_a_message_that_a_trial_may_not_send_fails_that_trial_alone(
    cluster: Cluster, store: Store, small_spec: Spec, sent: Message | Granted | Ready, error: str
) -> None:
    trial = Trial(store, small_spec())
    trial.says.send(sent)
    heard = trial.until_it_ends()
    assert isinstance(heard, Raised)
    assert heard.final
    assert error in heard.error


def test_a_rung_is_the_one_that_was_granted_last(cluster: Cluster, store: Store, small_spec: Spec) -> None:
    trial = Trial(store, small_spec())
    trial.says.send(ReachedRung(3, {"score": 1, "more": 2.0}, DIGEST))
    assert trial.until_it_ends() == ReachedRung(3, {"score": 1.0}, DIGEST)
    assert trial.pod.started
    trial.pod.answer(Granted(9, complete=False))
    for message in (
        ReturnedEarly(8, {"score": 0.5}, DIGEST),
        ReachedRung(9, {"score": 0.5}, DIGEST),
        Stopped(),
    ):
        trial.says.send(message)
        assert trial.until_it_ends() == message


def test_a_cluster_without_its_configuration_is_an_error_that_names_the_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", "/nowhere/config")
    for ask in (api.core_api, api.namespace):
        with pytest.raises(
            InvalidInput, match=r"KUBECONFIG = '/nowhere/config' is not accepted: .*or unset HALVING_CLUSTER"
        ):
            ask.__wrapped__()


def test_a_trial_that_ends_at_once_still_has_its_image_digest_written_down(
    cluster: Cluster, store: Store, small_spec: Spec
) -> None:
    cluster.status = {"phase": "Running"}
    trial = Trial(store, small_spec())
    cluster.created = lambda _: trial.says.send(Stopped())
    assert trial.until_it_ends() == Stopped()
    assert store.names("runs/project=p") == []
    trial.pod.close()
    digest = json.loads(store.read("runs/project=p/s.0001/image-0002.json"))["digest"]
    assert IMAGE_ID.endswith(f"@{digest}")
    assert cluster.pods == {}
