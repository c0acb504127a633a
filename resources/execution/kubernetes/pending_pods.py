"""Finds attempts whose runs' pods have not started, with the reason and how long they have waited."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from resources.execution.kubernetes.api import events_of, find_jobs, find_pods
from resources.execution.kubernetes.pod_manifests import (
    ATTEMPT_LABEL,
    QUEUE_LABEL,
    SWEEP_LABEL,
    TRIAL_LABEL,
    label_value,
    labels_of,
)
from resources.execution.kubernetes.pod_status import has_started, is_queued, newest_warning, waiting_reason
from resources.scheduling.assignment import Assignment

if TYPE_CHECKING:
    from kubernetes.client import V1Job, V1Pod


@dataclass(frozen=True)
class Starting:
    """An attempt whose pod has not started.

    Attributes:
        reason: in the cluster's words; None while nothing is wrong.
        seconds: since the pod, or the job that cannot make one, was created; 0 while a queue (Kueue's) holds
            it back.
    """

    assignment: Assignment
    reason: str | None
    seconds: float


def starting(sweep: str, handed_out: Iterable[Assignment]) -> list[Starting]:
    """The attempts whose pod or job exists and has not started; those in Dagster's queue are left out."""
    waiting = {_key(labels_of(assignment)): assignment for assignment in handed_out}
    if not waiting:
        return []
    of_sweep = {SWEEP_LABEL: label_value(sweep)}
    attempts = []
    for pod in find_pods(of_sweep):
        assignment = waiting.pop(_key(pod.metadata.labels), None)
        if assignment is not None and not has_started(pod):
            seconds = 0.0
            if not is_queued(pod):
                seconds = _age(pod)
            attempts.append(Starting(assignment, why_not_started(pod), seconds))
    if not waiting:
        return attempts
    # What is left are jobs without a pod, which a quota or an admission rule prevents.
    for job in find_jobs(of_sweep):
        assignment = waiting.get(_key(job.metadata.labels))
        if assignment is not None:
            seconds = 0.0
            if not job.spec.suspend:
                seconds = _age(job)
            attempts.append(Starting(assignment, why_no_pod(job), seconds))
    return attempts


def why_not_started(pod: "V1Pod") -> str | None:
    """Why a pod has not started, by its status or else by its events; None if neither gives a reason."""
    return waiting_reason(pod) or waiting_reason(pod, events_of(pod))


def why_no_pod(job: "V1Job") -> str | None:
    """Why a job has made no pod; None if the cluster gives no reason."""
    if job.spec.suspend:
        return f"Suspended: the queue {job.metadata.labels.get(QUEUE_LABEL, '')} has not admitted it yet"
    return newest_warning(events_of(job))


def _age(subject: "V1Pod | V1Job") -> float:
    return float((datetime.now(UTC) - subject.metadata.creation_timestamp).total_seconds())


def _key(labels: dict[str, str]) -> tuple[str | None, str | None]:
    return labels.get(TRIAL_LABEL), labels.get(ATTEMPT_LABEL)
