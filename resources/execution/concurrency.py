"""How many trials of a sweep run at a time: on this machine, or on the cluster."""

from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pod_manifests import check_resources
from resources.execution.machine import local_concurrency
from resources.sweep_spec import SweepSpec


def concurrency_of(spec: SweepSpec) -> int:
    """How many trials of a spec run at a time here.

    If the spec does not say, the room on this machine or the cluster's settings decide.

    Raises:
        InvalidInput: a trial asks for something that this machine, or the cluster, does not have.
    """
    cluster = load_cluster()
    if cluster is None:
        return local_concurrency(spec)
    check_resources(spec.resources, cluster)
    return spec.concurrency or cluster.concurrency
