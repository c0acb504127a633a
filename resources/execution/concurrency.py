"""How many trials of a sweep run at a time: on this machine, or on the cluster."""

from resources.execution.kubernetes.cluster_config import load_cluster
from resources.execution.kubernetes.pod_manifests import check_resources
from resources.execution.machine import local_concurrency
from resources.sweep_spec import SweepSpec


def concurrency_of(spec: SweepSpec) -> int:
    """Trials at a time: as the spec says; if it does not, as the machine has room for, or as the cluster's
    settings say.

    Raises:
        InvalidInput: a trial asks for what this machine, or the cluster's settings, do not have.
    """
    cluster = load_cluster()
    if cluster is None:
        return local_concurrency(spec)
    check_resources(spec.resources, cluster)
    return spec.concurrency or cluster.concurrency
