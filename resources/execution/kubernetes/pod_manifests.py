"""Manifests of pods for trials and workers, as pure functions of the spec and the cluster's settings."""

import math
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from halving.errors import InvalidInput
from halving.text import did_you_mean
from resources.execution.kubernetes.cluster_config import ClusterConfig, Nodes
from resources.execution.kubernetes.trial_pod_settings import OWN_VOLUMES, GangPods
from resources.scheduling.assignment import Assignment
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.requirements import AttemptResources, Needs

SWEEP_LABEL = "halving/sweep"
TRIAL_LABEL = "halving/trial"
ATTEMPT_LABEL = "halving/attempt"
# Only pods of trials with an image have this label. Pods of workers have the labels of their trial, too.
POD_OF_TRIAL = {"halving/pod": "trial"}
# A rerun's pod also has the label of its trial, so that what keeps trials from the webserver applies to it.
# It is not taken for an attempt of its sweep.
POD_OF_RERUN = {"halving/pod": "rerun"}
_REPORT_SECONDS = 15  # for a worker to report how its trial ended, after the trial's own grace period
_WORKER_REQUESTS = {"cpu": "250m", "memory": "512Mi"}  # of a worker whose trials run in pods of their own
# A pod is given up when its node has not answered for so long. The default is five minutes.
_LOST_NODE = [
    {
        "key": f"node.kubernetes.io/{condition}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    }
    for condition in ("not-ready", "unreachable")
]
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# Data loaders pass batches through shared memory, of which a container has 64 MiB by default.
_SHARED_MEMORY = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
_SHARED_MEMORY_MOUNT = {"name": "shared-memory", "mountPath": OWN_VOLUMES["shared-memory"]}


def check_resources(resources: Needs, cluster: ClusterConfig) -> None:
    """Check that this cluster has what a trial asks for, before anything runs.

    Raises:
        InvalidInput: it does not; the message names the field, the value and what is accepted.
    """
    kind = resources.gpu_type
    if kind is not None and kind not in cluster.gpu_types:
        gpu_types = sorted(cluster.gpu_types)
        raise InvalidInput(
            f"resources.gpu_type = {kind!r} is not accepted: the cluster's settings have no such kind "
            f"under gpu_types{did_you_mean(kind, gpu_types)}; there are {gpu_types}"
        )
    if resources.spot and cluster.spot is None:
        raise InvalidInput(
            "resources.spot = True is not accepted: the cluster's settings have no spot; leave it out, or "
            "name the nodes there that may be reclaimed"
        )


def worker_config(
    spec: SweepSpec, cluster: ClusterConfig, labels: dict[str, str], budget: int | None = None
) -> dict[str, Any]:
    """The configuration of a worker's pod for Dagster's ``dagster-k8s/config`` tag and ``k8s_job_executor``.

    The trial runs in that pod, so it gets what the trial needs. A trial with an image of its own runs in
    another pod, so its worker needs very little.

    Args:
        cluster: the settings for the spec's project.
        budget: epochs up to which the worker's only attempt trains; None for a worker of all rungs.
    """
    resources = spec.resources.largest
    if budget is not None:
        resources = spec.resources.at(budget)
    pod_spec: dict[str, Any] = {"tolerations": _LOST_NODE}
    container: dict[str, Any] = {"resources": {"requests": _WORKER_REQUESTS}}
    if spec.image is None:
        pod_spec = {**_placement(resources, cluster), "volumes": [_SHARED_MEMORY]}
        container = {"resources": _requirements(resources, cluster), "volumeMounts": [_SHARED_MEMORY_MOUNT]}
        labels = {**labels, **_queue(resources, cluster)}
    pod_spec["terminationGracePeriodSeconds"] = math.ceil(resources.grace_seconds) + _REPORT_SECONDS
    # Kueue reads the Job's labels with its integration of Jobs, and the pod's with that of plain pods.
    labelled = {"pod_template_spec_metadata": {"labels": labels}, "job_metadata": {"labels": labels}}
    return {"container_config": container, "pod_spec_config": pod_spec, **labelled}


def trial_manifest(
    image: str,
    resources: AttemptResources,
    cluster: ClusterConfig,
    *,
    name: str,
    labels: dict[str, str],
    command: list[str],
    env: dict[str, str],
    annotations: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The manifest of a pod for one attempt at a trial with an image of its own.

    Args:
        image: the image's name.
        resources: of the attempt.
        cluster: the cluster's settings.
        name: the pod's name.
        labels: of the pod.
        command: what the pod runs.
        env: environment variables, beside those of the settings.
        annotations: of the pod.
        owner: a reference to the pod that starts it; Kubernetes deletes this pod together with its owner.
    """
    pods = cluster.trial_pods
    gang = GangPods()
    if resources.nodes > 1:
        gang = pods.gangs
    container = {
        "name": "trial",
        "image": image,
        "command": command,
        "env": [
            {"name": key, "value": value}
            for key, value in {"HOME": "/tmp", **pods.env, **gang.env, **env}.items()
        ],
        "envFrom": [
            *({"configMapRef": {"name": name}} for name in pods.env_config_maps),
            *({"secretRef": {"name": name}} for name in pods.env_secrets),
        ],
        "resources": _requirements(resources, cluster, gang.resources),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": pods.run_as_user,
            "runAsGroup": pods.run_as_user,
            "readOnlyRootFilesystem": pods.read_only_root,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",  # The last lines of a crash become its reason.
        "volumeMounts": [
            {"name": "scratch", "mountPath": OWN_VOLUMES["scratch"]},
            _SHARED_MEMORY_MOUNT,
            *pods.volume_mounts,
        ],
    }
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {"app.kubernetes.io/part-of": "halving", **labels, **_queue(resources, cluster)},
        # A cluster that repacks its nodes must not move a training.
        "annotations": {
            **pods.annotations,
            **gang.annotations,
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            **(annotations or {}),
        },
    }
    if owner:
        metadata["ownerReferences"] = [owner]
    network: dict[str, Any] = {}
    if gang.host_network:
        # Otherwise a pod in its node's network would ask the node's name server, which knows no services.
        network = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": pods.service_account,
            "automountServiceAccountToken": False,
            "imagePullSecrets": [{"name": secret} for secret in pods.image_pull_secrets],
            "securityContext": {
                "fsGroup": pods.run_as_user,
                # Otherwise each pod makes all that is on a volume writable for the group, and a journal must
                # not be.
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": math.ceil(resources.grace_seconds),
            "volumes": [{"name": "scratch", "emptyDir": {}}, _SHARED_MEMORY, *pods.volumes],
            "containers": [container],
            **network,
            **_placement(resources, cluster),
        },
    }


def _requirements(
    resources: AttemptResources, cluster: ClusterConfig, devices: Mapping[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """Requests and limits of the trial's container.

    Cores are requested and not limited, because a limit would throttle data loaders while cores are idle.
    """
    limits: dict[str, str] = {}
    if resources.memory:
        limits["memory"] = resources.memory
    if resources.gpus:
        limits[cluster.gpu_resource] = str(resources.gpus)
    limits |= devices or {}
    requirements = {"requests": {"cpu": f"{resources.cpus:g}", **limits}}
    if limits:
        requirements["limits"] = limits
    return requirements


def _placement(resources: AttemptResources, cluster: ClusterConfig) -> dict[str, Any]:
    """Node selector, tolerations and priority class of a trial's pod."""
    chosen: list[Nodes] = []
    if resources.gpus:
        chosen.append(
            Nodes(tolerations=[{"key": cluster.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}])
        )
    if resources.gpu_type:
        chosen.append(cluster.gpu_types[resources.gpu_type])
    if resources.spot and cluster.spot:
        chosen.append(cluster.spot)
    placed = {
        "nodeSelector": {label: value for nodes in chosen for label, value in nodes.node_selector.items()},
        "tolerations": [*(toleration for nodes in chosen for toleration in nodes.tolerations), *_LOST_NODE],
        "priorityClassName": resources.priority_class or cluster.priority_class,
    }
    return {name: value for name, value in placed.items() if value}


def labels_of(assignment: Assignment) -> dict[str, str]:
    """Labels by which the pods of an attempt, and their Job, are found."""
    return {
        SWEEP_LABEL: label_value(assignment.sweep),
        TRIAL_LABEL: label_value(assignment.key),
        ATTEMPT_LABEL: str(assignment.attempt),
    }


def label_value(text: str) -> str:
    """A label's value for a name: the name if Kubernetes accepts it, else a part of it and its hash."""
    if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", text):
        return text
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', text)[:50]}-{sha256(text.encode()).hexdigest()[:12]}"


def queue_of(resources: Needs, cluster: ClusterConfig) -> str | None:
    """The queue (Kueue's) that admits a trial's pods."""
    return resources.queue or cluster.queue


def _queue(resources: Needs, cluster: ClusterConfig) -> dict[str, str]:
    queue = queue_of(resources, cluster)
    if not queue:
        return {}
    return {QUEUE_LABEL: queue}
