"""The cluster's settings for pods of trials with an image of their own.

They must not set variables, annotations, devices and volumes that the platform sets by itself.
"""

import posixpath
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from resources.sweep_spec.base import Strict
from resources.sweep_spec.requirements import LABEL, NAME, Name, quantity_bytes

OWN_VOLUMES = {"scratch": "/tmp", "shared-memory": "/dev/shm"}
"""The platform's volumes of each trial's pod, with their mount paths."""

_OF_THE_SPEC = ("cpu", "memory")
_QUALIFIED = re.compile(
    r"(?!kubernetes\.io/)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_COUNT = re.compile(r"[1-9]\d{0,8}")
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
# Variables that the platform sets in pods of trials, and those that torchrun's agent sets for their ranks.
_OWN_VARIABLES = (
    "HALVING_ROOT",
    "HALVING_MAILBOX",
    "HALVING_GANG",
    "HOME",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
)
_OWN_VARIABLE_PREFIX = "TORCHELASTIC_"
_CATALOG = "HALVING_CATALOG"  # An image is not trusted with the database.
_OWN_ANNOTATIONS = ("cluster-autoscaler.kubernetes.io/safe-to-evict",)
_OWN_PREFIXES = (
    "halving",
    "kueue.x-k8s.io",
    # These would loosen the profiles that confine a pod.
    "container.apparmor.security.beta.kubernetes.io",
    "seccomp.security.alpha.kubernetes.io",
    "container.seccomp.security.alpha.kubernetes.io",
)


def _parse_device(name: str, amount: Any) -> str:
    """The quantity of an extended resource or of huge pages, as the API takes it.

    Raises:
        ValueError: it is neither, or it is a resource that a sweep's spec asks for.
    """
    if name in _OF_THE_SPEC:
        raise ValueError(f"{name} is what a sweep's spec asks for: give it there, under resources")
    in_bytes = name.startswith("hugepages-") or name == "ephemeral-storage"
    if not in_bytes and not _QUALIFIED.fullmatch(name):
        raise ValueError(
            f"{name!r:.80} is no resource of a device: give for example rdma/hca_shared_devices_a or "
            "hugepages-2Mi"
        )
    quantity = str(amount)
    is_valid = _COUNT.fullmatch(quantity) is not None
    if in_bytes:
        is_valid = _is_bytes(quantity)
    if isinstance(amount, bool) or not is_valid:
        accepted = "a whole number from 1 on"
        if in_bytes:
            accepted = "bytes, for example 5Gi"
        raise ValueError(f"{name} cannot be {amount!r:.80}: give {accepted}")
    return quantity


def _is_bytes(quantity: str) -> bool:
    """Whether a quantity is a number of bytes above zero."""
    try:
        return quantity_bytes(quantity) > 0
    except ValueError:
        return False


def _parse_devices(devices: Any) -> Any:
    if not isinstance(devices, dict):
        return devices
    return {name: _parse_device(str(name), quantity) for name, quantity in devices.items()}


def _check_annotations(annotations: dict[str, str]) -> dict[str, str]:
    for name in annotations:
        prefix, slash, short = name.rpartition("/")
        if not LABEL.fullmatch(short) or (slash and not NAME.fullmatch(prefix)):
            raise ValueError(
                f"{name!r:.80} is no annotation's name: give for example k8s.v1.cni.cncf.io/networks"
            )
        if name in _OWN_ANNOTATIONS or prefix in _OWN_PREFIXES:
            raise ValueError(f"{name} is set by the platform: leave it out")
    return annotations


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(
                f"{name!r:.80} is no variable's name: give letters, digits and '_', for example "
                "NCCL_SOCKET_IFNAME"
            )
        if name in _OWN_VARIABLES or name.startswith(_OWN_VARIABLE_PREFIX):
            raise ValueError(f"{name} is set by the platform: leave it out")
        if name == _CATALOG:
            raise ValueError(
                f"{name} is not for pods of trials: what their image does is not trusted with the database"
            )
    return variables


def _check_volumes(volumes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for volume in volumes:
        if volume.get("name") in OWN_VOLUMES:
            raise ValueError(
                f"the volume {volume['name']!r} is each pod's own, at {OWN_VOLUMES[volume['name']]}: give "
                "yours another name"
            )
    return volumes


def _check_mounts(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for mount in mounts:
        if posixpath.normpath(str(mount.get("mountPath", ""))) in OWN_VOLUMES.values():
            raise ValueError(f"{mount['mountPath']} is a volume of each pod already: mount yours elsewhere")
    return mounts


Annotations = Annotated[dict[str, str], AfterValidator(_check_annotations)]
Variables = Annotated[dict[str, str], AfterValidator(_check_variables)]


class GangPods(Strict):
    """Additions to the pods of trials on several nodes, such as the fast network between these nodes."""

    host_network: bool = Field(
        default=False, description="The node's own network instead of the pod's; policies do not apply to it."
    )
    annotations: Annotations = Field(
        default={}, description="Annotations, for example of a second network (Multus, GKE)."
    )
    resources: Annotated[dict[str, str], BeforeValidator(_parse_devices)] = Field(
        default={},
        description="Devices of each pod, for example {vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5Gi}.",
    )
    env: Variables = Field(
        default={}, description="Environment variables, for example {NCCL_SOCKET_IFNAME: net1}."
    )


class TrialPods(Strict):
    """Additions to the pods of trials with an image of their own, beside what their spec asks for.

    Put no secret of the catalog here.
    """

    service_account: Name = Field(default="default", description="Service account; its token is not mounted.")
    env: Variables = Field(default={}, description="Environment variables.")
    env_config_maps: list[Name] = Field(
        default=[], description="ConfigMaps whose entries become environment variables."
    )
    env_secrets: list[Name] = Field(
        default=[], description="Secrets whose entries become environment variables: the store's credentials."
    )
    image_pull_secrets: list[Name] = Field(default=[], description="Secrets for the images' registries.")
    annotations: Annotations = Field(default={}, description="Annotations.")
    volumes: Annotated[list[dict[str, Any]], AfterValidator(_check_volumes)] = Field(
        default=[], description="Volumes, as in a pod's spec."
    )
    volume_mounts: Annotated[list[dict[str, Any]], AfterValidator(_check_mounts)] = Field(
        default=[], description="Where they are mounted, as in a container's spec."
    )
    run_as_user: int = Field(default=1000, ge=1, description="User id, not root.")
    read_only_root: bool = Field(
        default=True, description="Mount the image read-only; /tmp, which is HOME too, is writable."
    )
    gangs: GangPods = Field(default=GangPods(), description="Pods of trials on several nodes.")
