"""Taking the cluster's GPUs away from trials."""

import contextlib
from collections.abc import Iterator

import kubernetes

from tests.waiting import wait_for

GPU = "nvidia.com/gpu"
_ANSWER_SECONDS = 600.0  # on a machine with much to do


@contextlib.contextmanager
def leave_one_gpu(core: kubernetes.client.CoreV1Api, namespace: str, image: str) -> Iterator[None]:
    """Have pods of a namespace hold every GPU of the cluster but one.

    Raises:
        TimeoutError: a pod from before still holds one.
        RuntimeError: the cluster gives none, with what its nodes say.
    """
    try:
        wait_for(lambda: not _pods_with_gpus(core), 60, "all GPUs to be free", every=0.5)
    except TimeoutError as error:
        error.add_note(f"held by {_pods_with_gpus(core)}")
        raise
    nodes = core.list_node().items
    count = sum(int(node.status.allocatable.get(GPU, 0)) for node in nodes)
    names = [f"holder-{number}" for number in range(count)]
    try:
        for name in names:
            container = {
                "name": "holder",
                "image": image,
                "command": ["sleep", "3600"],
                "resources": {"limits": {GPU: "1"}},
            }
            pod = {
                "metadata": {"name": name},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            }
            core.create_namespaced_pod(namespace, pod)
        running, refused = wait_for(
            lambda: _running_and_refused(core, namespace, names),
            _ANSWER_SECONDS,
            "an answer to pods that want a GPU",
            every=0.5,
        )
        if not running:
            raise RuntimeError(f"no GPU is given: {[node.status.allocatable for node in nodes]}")
        for name in [*refused, running[0]]:  # Pods that still wait would take a GPU that is freed.
            core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        yield
    finally:
        for name in names:
            with contextlib.suppress(kubernetes.client.ApiException):  # It was deleted.
                core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def _pods_with_gpus(core: kubernetes.client.CoreV1Api) -> list[str]:
    """Pods of any namespace that a node gave GPUs, and that are not over."""
    names = []
    for pod in core.list_pod_for_all_namespaces().items:
        limits = [container.resources.limits or {} for container in pod.spec.containers]
        if (
            pod.spec.node_name
            and pod.status.phase in ("Pending", "Running")
            and any(GPU in limit for limit in limits)
        ):
            names.append(f"{pod.metadata.namespace}/{pod.metadata.name} ({pod.status.phase})")
    return names


def _running_and_refused(
    core: kubernetes.client.CoreV1Api, namespace: str, names: list[str]
) -> tuple[list[str], list[str]] | None:
    """The pods that run, and those for which there is no place; None while that is not known of each."""
    running = []
    refused = []
    for name in names:
        status = core.read_namespaced_pod(name, namespace).status
        if status.phase == "Running":
            running.append(name)
        elif status.phase == "Failed" or any(
            condition.reason == "Unschedulable" for condition in status.conditions or []
        ):
            refused.append(name)
        else:
            return None
    return running, refused
