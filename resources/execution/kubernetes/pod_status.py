"""What a pod's state means for the trial in it, as pure functions of the API's answers."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from resources.scheduling.termination import Termination

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Event, V1ContainerState, V1Pod

_STARTING = ("ContainerCreating", "PodInitializing")
LOST_SECONDS = 30.0
"""How long after its grace period a deleted pod may stay; after that its node counts as lost."""
_ONE_KIND = {"ErrImagePull": "ImagePullBackOff"}  # The two alternate while an image cannot be pulled.
_WITHOUT_IMAGE = ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_OUT_OF_MEMORY = "OOMKilled"
_SIGKILL = 137
_SIGTERM = 143


def waiting_reason(pod: "V1Pod", events: "Sequence[CoreV1Event]" = ()) -> str | None:
    """Why a pod has not started, in the cluster's words; None if it has, or is about to.

    Args:
        pod: as the API gives it.
        events: of this pod; only events report that a volume cannot be mounted.
    """
    if pod.status.phase != "Pending":
        return None
    for status in [*(pod.status.init_container_statuses or []), *(pod.status.container_statuses or [])]:
        waiting = None
        if status.state:
            waiting = status.state.waiting
        if waiting and waiting.reason not in _STARTING:
            return _join(waiting.reason, waiting.message)
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return _join(condition.reason, condition.message)
    return newest_warning(events)


def newest_warning(events: "Sequence[CoreV1Event]") -> str | None:
    """The reason and message of the newest warning; None if there is none.

    The API does not guarantee an order of events.
    """
    newest = max((event for event in events if event.type == "Warning"), key=_time_of, default=None)
    if newest is None:
        return None
    return _join(newest.reason, newest.message)


def reason_kind(reason: str) -> str:
    """The first word of a reason, as ``Unschedulable``; the details after it change all the time."""
    word = reason.partition(":")[0]
    return _ONE_KIND.get(word, word)


def is_about_image(reason: str) -> bool:
    """Whether a pod that waits for this reason waits for its image."""
    return reason_kind(reason) in _WITHOUT_IMAGE


def is_image_gone(reason: str) -> bool:
    """Whether a pod that waits for this reason gets no image: its node has tried, or does not try."""
    return reason.partition(":")[0] in _WITHOUT_IMAGE


def is_queued(pod: "V1Pod") -> bool:
    """Whether the pod waits in a queue (Kueue's), where waiting has no time limit."""
    conditions = pod.status.conditions or []
    return pod.status.phase == "Pending" and any(
        condition.reason == "SchedulingGated" for condition in conditions
    )


def has_started(pod: "V1Pod") -> bool:
    """Whether its containers run, or have run."""
    return pod.status.phase not in ("Pending", None)


def image_digest_of(pod: "V1Pod") -> str | None:
    """The image of the pod's first container with its digest, as ``registry/train@sha256:…``.

    The container's status need not be the first: a service mesh adds containers of its own, and the API does
    not guarantee an order.
    """
    first = pod.spec.containers[0].name
    named = next(
        (status.image_id for status in pod.status.container_statuses or [] if status.name == first), None
    )
    return str(named or "").removeprefix("docker-pullable://") or None


def is_lost(pod: "V1Pod", now: datetime) -> bool:
    """Whether a deleted pod should be gone by now.

    Then its node does not answer, and its status never changes again.
    """
    gone_by: datetime | None = pod.metadata.deletion_timestamp  # It includes the grace period.
    ended = pod.status.phase in ("Succeeded", "Failed")
    return gone_by is not None and not ended and (now - gone_by).total_seconds() > LOST_SECONDS


def termination_of(pod: "V1Pod") -> Termination | None:
    """Why the work in a pod ended; None while it goes on, or if it succeeded.

    Running out of memory would happen again, so it is the trial's own fault. So is an exit code of a
    container that no signal caused. A pod that was deleted, evicted or lost with its node is not at fault.
    """
    status = pod.status
    name = pod.metadata.name
    for container in status.container_statuses or []:
        limit = _memory_limit(pod, container.name)
        for state in (container.state, container.last_state):
            if state and state.terminated and state.terminated.reason == _OUT_OF_MEMORY:
                return Termination(f"pod {name} was OOMKilled: it ran out of memory{limit}", own_fault=True)
    if status.phase == "Failed" and status.reason:  # Evicted, NodeShutdown, Preempting, NodeLost …
        return Termination(f"pod {name}: {_join(status.reason, status.message)}", own_fault=False)
    disrupted = next(
        (
            condition
            for condition in status.conditions or []
            if (condition.type, condition.status) == ("DisruptionTarget", "True")
        ),
        None,
    )
    if status.phase == "Failed" and disrupted:
        # It was reclaimed, or is gone with its node, so it does not matter how its containers ended.
        return Termination(f"pod {name}: {_join(disrupted.reason, disrupted.message)}", own_fault=False)
    if pod.metadata.deletion_timestamp is not None:
        return Termination(f"pod {name} was deleted", own_fault=False)
    if status.phase == "Unknown":
        return Termination(
            (
                f"pod {name} is lost with its node {pod.spec.node_name}: "
                f"{_join(status.reason, status.message)}"
            ),
            own_fault=False,
        )
    for container in status.container_statuses or []:
        if container.state and container.state.terminated and container.state.terminated.exit_code:
            return _termination_by_exit(name, container.state)
    return None


def _termination_by_exit(name: str, state: "V1ContainerState") -> Termination:
    code = state.terminated.exit_code
    if code == _SIGTERM:
        return Termination(f"pod {name} was ended by SIGTERM", own_fault=False)
    how = f"ended with exit code {code}"
    if code == _SIGKILL:
        how = "was killed by SIGKILL"
    if state.terminated.message:
        how += f": {state.terminated.message.strip()}"
    return Termination(f"pod {name} {how}", own_fault=code != _SIGKILL)


def _memory_limit(pod: "V1Pod", container: str) -> str:
    for spec in pod.spec.containers:
        limit = None
        if spec.resources:
            limit = (spec.resources.limits or {}).get("memory")
        if spec.name == container and limit:
            return f" (resources.memory = {limit})"
    return ""


def _time_of(event: "CoreV1Event") -> float:
    time: datetime | None = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    return time.timestamp() if time else 0.0


def _join(reason: str | None, message: str | None) -> str:
    return ": ".join(part.strip() for part in (reason, message) if part)
