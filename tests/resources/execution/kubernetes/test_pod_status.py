"""What a pod's state means, in the cluster's own words."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from resources.execution.kubernetes.pending_pods import why_no_pod
from resources.execution.kubernetes.pod_status import (
    has_started,
    image_digest_of,
    is_lost,
    is_queued,
    reason_kind,
    termination_of,
    waiting_reason,
)
from tests.resources.execution.kubernetes.pod_json import container, event, pod

NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
NO_NODE = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (
            pod(
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_GPU}
                ]
            ),
            f"Unschedulable: {NO_GPU}",
        ),
        (
            pod(
                containers=[
                    {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}
                ]
            ),
            'ImagePullBackOff: Back-off pulling image "x"',
        ),
        (
            pod(
                containers=[
                    {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s3" not found'}}
                ]
            ),
            'CreateContainerConfigError: secret "s3" not found',
        ),
        (pod(containers=[{"waiting": {"reason": "ContainerCreating"}}]), None),
        (pod("Running", containers=[{"running": {}}]), None),
    ],
)
def test_a_pod_that_does_not_start_says_why(waiting, reason):
    assert waiting_reason(waiting) == reason


def test_the_reason_of_a_volume_that_cannot_be_mounted_is_the_newest_warning():
    creating = pod(containers=[{"waiting": {"reason": "ContainerCreating"}}])
    events = [
        event("Warning", "FailedMount", 'secret "new" not found', "2026-01-01T00:01:00Z"),
        event("Warning", "FailedMount", 'secret "old" not found', "2026-01-01T00:00:00Z"),
        event("Normal", "Scheduled", "assigned", "2026-01-01T00:02:00Z"),
    ]
    assert waiting_reason(creating, events) == 'FailedMount: secret "new" not found'


def test_the_reason_of_a_job_without_a_pod_is_the_newest_warning_in_any_order(monkeypatch):
    events = [
        event("Warning", "FailedCreate", "exceeded quota: new", "2026-01-01T00:01:00Z"),
        event("Warning", "FailedCreate", "exceeded quota: old", "2026-01-01T00:00:00Z"),
    ]
    monkeypatch.setattr("resources.execution.kubernetes.pending_pods.events_of", lambda job: events)
    assert (
        why_no_pod(SimpleNamespace(spec=SimpleNamespace(suspend=False)))
        == "FailedCreate: exceeded quota: new"
    )


def test_the_image_of_a_pod_is_that_of_its_first_container_in_any_order_of_status():
    mesh = container({"running": {}})
    own = container({"running": {}})
    mesh |= {"name": "istio-proxy", "imageID": "docker.io/istio@sha256:aa"}
    assert (
        image_digest_of(
            pod("Running", containerStatuses=[mesh, own | {"imageID": "docker-pullable://train@sha256:12"}])
        )
        == "train@sha256:12"
    )
    assert image_digest_of(pod("Running", containerStatuses=[mesh, own])) is None


def test_a_pod_that_a_queue_holds_back_is_known_as_such():
    gated = pod(
        conditions=[
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}
        ]
    )
    assert is_queued(gated)
    assert waiting_reason(gated) == "SchedulingGated: blocked"
    assert not is_queued(
        pod(
            conditions=[
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_GPU}
            ]
        )
    )


def test_a_pod_that_was_created_just_now_has_not_started():
    assert not has_started(pod("Pending"))
    assert has_started(pod("Running"))
    assert has_started(pod("Failed"))


def test_out_of_memory_is_the_trials_own_fault_and_named_with_the_limit():
    termination = termination_of(
        pod("Failed", containers=[{"terminated": {"reason": "OOMKilled", "exitCode": 137}}])
    )
    assert termination is not None
    assert termination.own_fault
    assert termination.reason == "pod pod-1 was OOMKilled: it ran out of memory (resources.memory = 2Gi)"


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (
            pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
            "Evicted: The node was low on resource",
        ),
        (
            pod("Failed", reason="NodeShutdown", message="Pod was terminated"),
            "NodeShutdown: Pod was terminated",
        ),
        (
            pod("Failed", containers=[{"running": {}}], conditions=[NO_NODE]),
            "DeletionByPodGC: PodGC: node no longer exists",
        ),
        (pod("Unknown", reason="NodeLost"), "lost with its node node1"),
        (
            pod("Failed", containers=[{"terminated": {"reason": "Error", "exitCode": 143}}]),
            "was ended by SIGTERM",
        ),
        (
            pod("Failed", containers=[{"terminated": {"reason": "Error", "exitCode": 137}}]),
            "killed by SIGKILL",
        ),
    ],
)
def test_a_pod_that_was_reclaimed_is_not_the_trials_fault(ended, said):
    termination = termination_of(ended)
    assert termination is not None
    assert not termination.own_fault
    assert said in termination.reason


def test_a_deleted_pod_ended_by_its_deletion():
    dying = pod("Running", containers=[{"running": {}}])
    dying.metadata.deletion_timestamp = datetime.now(UTC)
    termination = termination_of(dying)
    assert termination is not None
    assert not termination.own_fault
    assert "deleted" in termination.reason


@pytest.mark.parametrize(
    ("phase", "late", "lost"),
    [("Running", 31, True), ("Running", 29, False), ("Running", None, False), ("Succeeded", 31, False)],
)
def test_a_deleted_pod_that_is_still_there_long_after_its_grace_period_is_lost(phase, late, lost):
    now = datetime.now(UTC)
    dying = pod(phase)
    dying.metadata.deletion_timestamp = late and now - timedelta(seconds=late)
    assert is_lost(dying, now) is lost


def test_reasons_that_differ_in_numbers_or_take_turns_are_of_one_kind():
    assert (
        reason_kind(f"Unschedulable: {NO_GPU}")
        == reason_kind("Unschedulable: 0/9 nodes are available")
        == "Unschedulable"
    )
    assert reason_kind("ErrImagePull: not found") == reason_kind(
        'ImagePullBackOff: Back-off pulling image "x"'
    )


def test_an_exit_code_is_the_trials_own_fault_and_comes_with_the_last_lines():
    state = {
        "terminated": {
            "reason": "Error",
            "exitCode": 1,
            "message": "ModuleNotFoundError: No module named 'halving'\n",
        }
    }
    termination = termination_of(pod("Failed", containers=[state]))
    assert termination is not None
    assert termination.own_fault
    assert termination.reason.endswith("exit code 1: ModuleNotFoundError: No module named 'halving'")


@pytest.mark.parametrize(
    "living", [pod("Running", containers=[{"running": {}}]), pod("Pending"), pod("Succeeded")]
)
def test_a_pod_that_lives_or_ended_well_has_no_termination(living):
    assert termination_of(living) is None
