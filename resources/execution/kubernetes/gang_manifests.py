"""Parts of the manifests of a gang's pods: a common label, a queue's group, and network policies.

All functions are pure.
"""

from collections.abc import Mapping
from typing import Any

GANG_LABEL = "halving/gang"
_GROUP = "kueue.x-k8s.io/pod-group-name"
_GROUP_ANNOTATIONS = {
    "total": "kueue.x-k8s.io/pod-group-total-count",
    "retriable": "kueue.x-k8s.io/retriable-in-group",
}


def gang_labels(gang: str, queue: str | None) -> dict[str, str]:
    """Labels of a gang's pods; with a queue (Kueue's) they make a pod group, which is admitted as a whole."""
    labels = {GANG_LABEL: gang}
    if queue:
        labels[_GROUP] = gang
    return labels


def gang_annotations(nodes: int, queue: str | None) -> dict[str, str]:
    """Annotations of a gang's pods for Kueue; empty without a queue.

    They say how many pods the group has, and that Kueue waits for no replacement of a failed one, because the
    next attempt is a group of its own.
    """
    if not queue:
        return {}
    return {_GROUP_ANNOTATIONS["total"]: str(nodes), _GROUP_ANNOTATIONS["retriable"]: "false"}


def gang_policies(
    gang: str,
    port: int,
    owner: Mapping[str, Any] | None,
    worker_labels: Mapping[str, str] | None,
    *,
    host_network: bool = False,
) -> list[dict[str, Any]]:
    """Network policies that let a gang's pods reach each other, and the store in their worker.

    The policies of the deployment let nothing in.

    Args:
        gang: its name, the value of :data:`GANG_LABEL`.
        port: of the rendezvous store.
        owner: the worker's pod, with which the policies are deleted.
        worker_labels: of that pod; None if the worker runs in none.
        host_network: whether the gang's pods are in their nodes' networks. Then no policy applies to them,
            and none can tell them from others.
    """
    own = {"podSelector": {"matchLabels": {GANG_LABEL: gang}}}
    store: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": port}]}
    policies = []
    if not host_network:
        policies.append(_policy(gang, owner, {GANG_LABEL: gang}, [{"from": [own]}]))
        store = {"from": [own], **store}
    if worker_labels:
        policies.append(_policy(f"{gang}-store", owner, worker_labels, [store]))
    return policies


def _policy(
    name: str, owner: Mapping[str, Any] | None, selected: Mapping[str, str], ingress: list[dict[str, Any]]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/part-of": "halving"}}
    if owner:
        metadata["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": dict(selected)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
