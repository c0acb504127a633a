"""Checks of the cluster that trials run on, where one is configured."""

from collections.abc import Iterator

from halving import InvalidInput
from halving.doctor.checks import ERROR, OK, Finding
from resources.execution.kubernetes.api import ask_api, core_api, namespace
from resources.execution.kubernetes.cluster_config import VARIABLE, load_cluster

_TIMEOUT_SECONDS = (3.0, 10.0)  # to connect, and for an answer
_NEEDED = {"pods": ("get", "list", "delete"), "events": ("list",)}


def check_cluster() -> Iterator[Finding]:
    """Check that the cluster's settings are accepted, its API answers, and the account may run pods."""
    try:
        if load_cluster() is None:
            yield Finding(OK, f"no cluster is configured ({VARIABLE}): trials run on their workers' machines")
            return
        api = core_api()
        where = namespace()
    except InvalidInput as error:
        yield Finding(
            ERROR, str(error), "no trial can get a pod", f"correct the file, or {VARIABLE} and KUBECONFIG"
        )
        return
    refused: list[str] = []
    ask_api(
        lambda: api.list_namespaced_pod(where, limit=1, _request_timeout=_TIMEOUT_SECONDS), refused.append
    )
    if refused and "does not answer" in refused[0]:
        means = "no trial can get a pod, and nobody hears of those that run; those go on"
        yield Finding(ERROR, refused[0], means, "look at the network and KUBECONFIG: kubectl cluster-info")
        return
    missing = [
        f"{verb} {kind}" for kind, verbs in _NEEDED.items() for verb in verbs if not _may(where, verb, kind)
    ]
    if missing:
        means = "pods of trials cannot be watched or ended"
        yield Finding(
            ERROR,
            f"this account may not {', '.join(missing)} in {where}",
            means,
            "give it the role of deploy/kubernetes/base/accounts.yaml",
        )
    else:
        yield Finding(OK, f"the cluster's API answers, and this account may do what it needs in {where}")


def _may(where: str, verb: str, kind: str) -> bool:
    """Whether this account may do something with pods or events in a namespace."""
    from kubernetes import client

    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(namespace=where, verb=verb, resource=kind)
        )
    )
    answer = client.AuthorizationV1Api().create_self_subject_access_review(
        review, _request_timeout=_TIMEOUT_SECONDS
    )
    return bool(answer.status.allowed)
