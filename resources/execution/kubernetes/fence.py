"""Keeps two attempts at a trial apart: pods of earlier attempts are ended first."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from resources.execution.kubernetes import api
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL, POD_OF_TRIAL, TRIAL_LABEL
from resources.scheduling.assignment import Superseded

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

_FENCE_SECONDS = 60.0  # after its grace period, for the pod of an older attempt to be gone

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class Ask(Protocol):
    def __call__(self, question: Callable[[], _Answer], /) -> _Answer | None:
        """The API's answer; None if it does not answer or refuses."""


class Fence:
    """Makes sure that no other attempt at a trial has pods.

    Args:
        labels: of the attempt's own pods.
        grace_seconds: how long older pods may take to end.
    """

    def __init__(self, labels: Mapping[str, str], grace_seconds: float) -> None:
        self._trial = labels[TRIAL_LABEL]
        self._attempt = int(labels[ATTEMPT_LABEL])
        self._grace_seconds = grace_seconds
        self._since: float | None = None  # when it first looked for other pods

    def is_alone(self, ask: Ask, note: Callable[[str], Any]) -> bool:
        """End the pods of earlier attempts; return whether no other attempt has a pod.

        Raises:
            Superseded: a later attempt has one.
        """
        self._since = self._since or time.monotonic()
        others = ask(self._other_pods)
        if others is None:
            return False
        if newer := [pod for pod in others if _attempt_of(pod) > self._attempt]:
            raise Superseded(
                f"attempt {self._attempt} gets no pod: {newer[0].metadata.name} is of attempt "
                f"{_attempt_of(newer[0])}"
            )
        for pod in others:
            self._end(pod, ask)
        if others:
            note(f"pod {others[0].metadata.name} of an earlier attempt has not ended yet")
        return not others

    def _end(self, pod: "V1Pod", ask: Ask) -> None:
        if pod.metadata.deletion_timestamp is None:
            ask(partial(api.delete_pod, pod.metadata.name, None))
        elif self._since and time.monotonic() - self._since > self._grace_seconds + _FENCE_SECONDS:
            _log.warning(
                "node %s does not confirm that pod %s has ended; the pod counts as lost",
                pod.spec.node_name,
                pod.metadata.name,
            )
            ask(partial(api.delete_pod, pod.metadata.name, 0))

    def _other_pods(self) -> "list[V1Pod]":
        pods = api.find_pods({TRIAL_LABEL: self._trial, **POD_OF_TRIAL})
        return [pod for pod in pods if _attempt_of(pod) != self._attempt]


def _attempt_of(pod: "V1Pod") -> int:
    return int(pod.metadata.labels[ATTEMPT_LABEL])
