"""What one trial needs (cores, memory, GPUs), and what kind of pod a cluster gives it."""

import re
from decimal import Decimal
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from resources.sweep_spec.base import Strict, must

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")  # a DNS subdomain, RFC 1123
_IMAGE = re.compile(r"[a-z0-9][\w.:/@-]*", re.ASCII)


def quantity_bytes(quantity: str) -> int:
    """Bytes of a Kubernetes quantity: ``512Mi``, ``32Gi``, ``1.5G``.

    Raises:
        ValueError: it is not one.
    """
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ValueError("give bytes with a unit, for example 512Mi or 32Gi")
    return int(Decimal(found[1]) * _UNITS[found[2]])


def _memory(given: str) -> str:
    if quantity_bytes(given) < 2**20:
        raise ValueError(f"{given} is {quantity_bytes(given)} bytes, less than 1Mi; give for example 512Mi or 32Gi")
    if quantity_bytes(given) > 2**50:
        raise ValueError(f"{given} is more than 1024Ti; give for example 512Mi or 32Gi")
    return given


# YAML reads 512 without quotes as a number.
Memory = Annotated[str, BeforeValidator(lambda given: str(given) if isinstance(given, int) else given), AfterValidator(_memory)]
Label = Annotated[str, must(_LABEL.fullmatch, "give a Kubernetes name: letters, digits, '-', '_' and '.', at most 63")]
Name = Annotated[
    str, must(_NAME.fullmatch, "give the name of an object in Kubernetes: lowercase letters, digits, '-' and '.', at most 253")
]
# It becomes a label's value.
Queue = Annotated[Name, must(lambda given: len(given) <= 63, "give a queue's name of at most 63 characters")]
Image = Annotated[
    str,
    must(_IMAGE.fullmatch, "give an image's name as container runtimes accept it, for example registry.example/team/train@sha256:…"),
]


class Resources(Strict):
    """What one trial needs. On one machine it limits how many run at a time; on a cluster it defines the trial's pod."""

    cpus: float = Field(default=1, ge=0.001, le=100_000, description="CPU cores for each trial; fractions are possible.")
    gpus: int = Field(default=0, ge=0, le=100_000, description="GPUs for each trial; they are not shared.")
    gpu_type: Label | None = Field(default=None, description="Cluster: type of GPU, a name under gpu_types in the cluster's settings.")
    memory: Memory | None = Field(
        default=None, description="Memory for each trial, for example 32Gi; on a cluster a trial that uses more is killed."
    )
    spot: bool = Field(default=False, description="Cluster: run on nodes that may be reclaimed at any time; trials resume elsewhere.")
    nodes: int = Field(default=1, ge=1, description="Nodes for each trial; only 1 so far.")
    priority_class: Name | None = Field(default=None, description="Cluster: priority class of the trials' pods.")
    queue: Queue | None = Field(default=None, description="Cluster: the Kueue queue that admits the trials' pods.")
    grace_seconds: float = Field(default=30.0, ge=0, description="Seconds from SIGTERM to SIGKILL, in which a trial saves a checkpoint.")
    start_timeout_seconds: float = Field(
        default=1800.0,
        gt=0,
        description="Cluster: seconds that a trial's pod may take to start; after that the attempt counts as crashed.",
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.gpu_type and not self.gpus:
            raise ValueError(f"gpu_type = {self.gpu_type!r} needs gpus of 1 or more; this trial asks for none")
        if self.nodes > 1:
            raise ValueError(f"nodes = {self.nodes} is not accepted: a trial runs in one pod, on one node; ask for more gpus there")
        return self

    @property
    def threads(self) -> int:
        """How many threads a trial computes with."""
        return max(1, int(self.cpus))
