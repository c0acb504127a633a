"""Calls to the cluster's API: pods by name and label, their events, and why a worker's pod ended."""

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from halving.errors import InvalidInput
from resources.execution.kubernetes.cluster_config import VARIABLE
from resources.execution.kubernetes.pod_status import termination_of
from resources.scheduling.termination import Termination

if TYPE_CHECKING:
    from kubernetes.client import (
        ApiException,
        BatchV1Api,
        CoreV1Api,
        CoreV1Event,
        NetworkingV1Api,
        V1Job,
        V1Pod,
    )

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_SECONDS = (3.0, 10.0)  # to connect, and for an answer
_NOT_FOUND = 404
_CONFLICT = 409

_Answer = TypeVar("_Answer")


@cache
def core_api() -> "CoreV1Api":
    """The cluster's API, with this pod's service account, or outside of a cluster with ``KUBECONFIG``.

    Raises:
        InvalidInput: that configuration does not exist or is not valid.
    """
    from kubernetes import client, config

    if _NAMESPACE_FILE.exists():
        config.load_incluster_config()
    else:
        _of_kube_config(config.load_kube_config)
    return client.CoreV1Api()


@cache
def namespace() -> str:
    """The namespace that this pod is in, or the one of ``KUBECONFIG``'s context.

    Raises:
        InvalidInput: as :func:`core_api`.
    """
    from kubernetes import config

    if _NAMESPACE_FILE.exists():
        return _NAMESPACE_FILE.read_text().strip()
    _, active = _of_kube_config(config.list_kube_config_contexts)
    return str(active["context"].get("namespace") or "default")


def find_pods(labels: dict[str, str]) -> "list[V1Pod]":
    """Pods of this namespace that have these labels."""
    return (
        core_api()
        .list_namespaced_pod(namespace(), label_selector=_selector(labels), _request_timeout=_TIMEOUT_SECONDS)
        .items
    )


def find_jobs(labels: dict[str, str]) -> "list[V1Job]":
    """Jobs of this namespace that have these labels."""
    return (
        _batch_api()
        .list_namespaced_job(namespace(), label_selector=_selector(labels), _request_timeout=_TIMEOUT_SECONDS)
        .items
    )


def events_of(subject: "V1Pod | V1Job") -> "list[CoreV1Event]":
    """The events of a pod or a job."""
    selector = _selector({"involvedObject.uid": subject.metadata.uid})
    return (
        core_api()
        .list_namespaced_event(namespace(), field_selector=selector, _request_timeout=_TIMEOUT_SECONDS)
        .items
    )


def own_pod() -> "V1Pod | None":
    """The pod that this process runs in; None outside of a cluster."""
    if not _NAMESPACE_FILE.exists():
        return None
    return read_pod(os.environ.get("HOSTNAME", ""))


def own_reference() -> dict[str, Any] | None:
    """A reference to this process's pod as an owner; None outside of a cluster.

    Kubernetes deletes what a pod owns together with the pod.
    """
    pod = own_pod()
    return pod and {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}


def read_pod(name: str) -> "V1Pod | None":
    """A pod by its name; None if there is none."""
    return _unless(
        _NOT_FOUND,
        lambda: core_api().read_namespaced_pod(name, namespace(), _request_timeout=_TIMEOUT_SECONDS),
    )


def read_job(name: str) -> "V1Job | None":
    """A job by its name; None if there is none."""
    return _unless(
        _NOT_FOUND,
        lambda: _batch_api().read_namespaced_job(name, namespace(), _request_timeout=_TIMEOUT_SECONDS),
    )


def create_pod(manifest: dict[str, Any]) -> None:
    """Create a pod.

    It is no error if there is one of this name: an earlier try has made it, and the answer was lost.
    """
    _unless(
        _CONFLICT,
        lambda: core_api().create_namespaced_pod(namespace(), manifest, _request_timeout=_TIMEOUT_SECONDS),
    )


def delete_pod(name: str, grace_seconds: int | None) -> bool:
    """Delete a pod; return False if there was none.

    Args:
        grace_seconds: None is the pod's own grace period.
    """
    options = {}
    if grace_seconds is not None:
        options = {"grace_period_seconds": grace_seconds}
    deleted = _unless(
        _NOT_FOUND,
        lambda: core_api().delete_namespaced_pod(
            name, namespace(), _request_timeout=_TIMEOUT_SECONDS, **options
        ),
    )
    return deleted is not None


def create_policy(manifest: dict[str, Any]) -> None:
    """Create a network policy; it is no error if there is one of this name."""
    _unless(
        _CONFLICT,
        lambda: _networking_api().create_namespaced_network_policy(
            namespace(), manifest, _request_timeout=_TIMEOUT_SECONDS
        ),
    )


def delete_policy(name: str) -> None:
    """Delete a network policy; it is no error if there is none."""
    _unless(
        _NOT_FOUND,
        lambda: _networking_api().delete_namespaced_network_policy(
            name, namespace(), _request_timeout=_TIMEOUT_SECONDS
        ),
    )


def delete_job(name: str) -> None:
    """Delete a job and its pods, each with its own grace period; it is no error if there is none."""
    options = {"propagation_policy": "Background", "_request_timeout": _TIMEOUT_SECONDS}
    _unless(_NOT_FOUND, lambda: _batch_api().delete_namespaced_job(name, namespace(), **options))


def ask_api(question: Callable[[], _Answer], refused: Callable[[str], object]) -> _Answer | None:
    """Ask the API; None if it does not answer or refuses.

    Args:
        refused: called with the reason in that case.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return question()
    except ApiException as error:
        refused(f"the cluster's API answers {error.status}: {message_of(error)}")
    except (HTTPError, OSError) as error:
        refused(f"the cluster's API does not answer: {error}")
    return None


def message_of(error: "ApiException") -> str:
    """The API's reason for a refusal, out of its answer in JSON."""
    match = re.search(r'"message":"((?:[^"\\]|\\.)*)"', str(error.body or ""))
    if match is None:
        return str(error.reason)
    return match[1].replace('\\"', '"')


def termination_lookup(worker: str) -> Termination | None:
    """Find out why a worker whose heartbeats have stopped has ended; None if its pod seems to run.

    Args:
        worker: its name, ``POD:PROCESS``.
    """
    name = worker.rpartition(":")[0]
    pod = read_pod(name)
    if pod is None:
        return Termination(f"pod {name} is gone", own_fault=False)
    return termination_of(pod)


@cache
def _batch_api() -> "BatchV1Api":
    from kubernetes.client import BatchV1Api

    return BatchV1Api(core_api().api_client)


@cache
def _networking_api() -> "NetworkingV1Api":
    from kubernetes.client import NetworkingV1Api

    return NetworkingV1Api(core_api().api_client)


def _selector(wanted: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in wanted.items())


def _unless(status: int, ask: Callable[[], Any]) -> Any:
    """Ask the API; None if it answers with this status."""
    from kubernetes.client import ApiException

    try:
        return ask()
    except ApiException as error:
        if error.status == status:
            return None
        raise


def _of_kube_config(load: Callable[..., Any]) -> Any:
    from kubernetes.config import ConfigException

    try:
        # Without the argument it would be the variable's value at the time when kubernetes was imported.
        return load(os.environ.get("KUBECONFIG"))
    except ConfigException as error:
        raise InvalidInput(
            f"KUBECONFIG = {os.environ.get('KUBECONFIG')!r} is not accepted: {error}; give the "
            f"configuration of the cluster that {VARIABLE} describes, or unset {VARIABLE}, and trials run on "
            "this machine"
        ) from None
