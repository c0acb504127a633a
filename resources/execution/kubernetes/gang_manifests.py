"""What the pods of a gang have beside those of other trials: a common label, a queue's group, and a network
of their own.

Pure.
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
    """Labels of a gang's pods; with a queue (Kueue's) those of its pod group, which is admitted as a
    whole.
    """
    return {GANG_LABEL: gang} | ({_GROUP: gang} if queue else {})


def gang_annotations(nodes: int, queue: str | None) -> dict[str, str]:
    """Annotations of a gang's pods: how many its group has, and that Kueue waits for no replacement of one
    that fails: the next attempt is a group of its own.
    """
    return (
        {_GROUP_ANNOTATIONS["total"]: str(nodes), _GROUP_ANNOTATIONS["retriable"]: "false"} if queue else {}
    )


def gang_policies(
    gang: str,
    port: int,
    owner: Mapping[str, Any] | None,
    worker_labels: Mapping[str, str] | None,
    *,
    host_network: bool = False,
) -> list[dict[str, Any]]:
    """The network policies that a gang needs where the deployment's own let nothing in: its pods reach each
    other, and its worker's store.

    Args:
        gang: its name, the value of :data:`GANG_LABEL`.
        port: of the rendezvous store.
        owner: the worker's pod, with which the policies go.
        worker_labels: of that pod; None where the worker runs in none.
        host_network: whether the gang's pods are in their nodes' networks: no policy applies to them, and
            none can tell them from others.
    """
    own = {"podSelector": {"matchLabels": {GANG_LABEL: gang}}}
    policies = [] if host_network else [_policy(gang, owner, {GANG_LABEL: gang}, [{"from": [own]}])]
    if worker_labels:
        store = {**({} if host_network else {"from": [own]}), "ports": [{"protocol": "TCP", "port": port}]}
        policies.append(_policy(f"{gang}-store", owner, worker_labels, [store]))
    return policies


def _policy(
    name: str, owner: Mapping[str, Any] | None, selected: Mapping[str, str], ingress: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "halving"},
            **({"ownerReferences": [dict(owner)]} if owner else {}),
        },
        "spec": {
            "podSelector": {"matchLabels": dict(selected)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
