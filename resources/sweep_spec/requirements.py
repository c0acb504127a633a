"""What one trial needs (nodes, processes, cores, memory, GPUs), also by rung, and its kind of pod."""

import re
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from resources.sweep_spec.base import MAX_COUNT, Strict, must

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_UNITS = {
    None: 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
# A DNS subdomain, RFC 1123.
NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_IMAGE = re.compile(r"[a-z0-9][\w.:/@-]*", re.ASCII)


def quantity_bytes(quantity: str) -> int:
    """Bytes of a Kubernetes quantity: ``512Mi``, ``32Gi``, ``1.5G``.

    Raises:
        ValueError: it is not one.
    """
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError("give bytes with a unit, for example 512Mi or 32Gi")
    return int(Decimal(match[1]) * _UNITS[match[2]])


def _check_memory(quantity: str) -> str:
    if quantity_bytes(quantity) < 2**20:
        raise ValueError(
            f"{quantity} is {quantity_bytes(quantity)} bytes, less than 1Mi; give for example 512Mi or 32Gi"
        )
    if quantity_bytes(quantity) > 2**50:
        raise ValueError(f"{quantity} is more than 1024Ti; give for example 512Mi or 32Gi")
    return quantity


def _as_text(value: Any) -> Any:
    """The text of a whole number, as which YAML reads 512 without quotes."""
    if isinstance(value, int):
        return str(value)
    return value


Memory = Annotated[str, BeforeValidator(_as_text), AfterValidator(_check_memory)]
Label = Annotated[
    str, must(LABEL.fullmatch, "give a Kubernetes name: letters, digits, '-', '_' and '.', at most 63")
]
Name = Annotated[
    str,
    must(
        NAME.fullmatch,
        "give the name of an object in Kubernetes: lowercase letters, digits, '-' and '.', at most 253",
    ),
]
# Its name becomes the value of a label.
Queue = Annotated[Name, must(lambda value: len(value) <= 63, "give a queue's name of at most 63 characters")]
Image = Annotated[
    str,
    must(
        _IMAGE.fullmatch,
        (
            "give an image's name as container runtimes accept it, for example "
            "registry.example/team/train@sha256:…"
        ),
    ),
]


_MAX_SLOTS = 100_000  # most nodes of one trial, and most processes and GPUs of a node


def _check_counts(minimum: int) -> BeforeValidator:
    """A validator of a number, or of one for each rung, ``{budget: number}``.

    The rungs are sorted, because JSON keeps no order of numbers.
    """
    remedy = (
        f"give a whole number from {minimum} to {_MAX_SLOTS}, "
        "or one for each rung, for example {1: 1, 9: 8}"
    )

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            return _whole(value, minimum, _MAX_SLOTS, remedy)
        if not value:
            raise ValueError(f"it is empty; {remedy}")
        counts: dict[int, int] = {}
        for written, number in value.items():
            budget = _whole(
                written, 1, MAX_COUNT, f"the rung {written!r:.80} is not a number of epochs; {remedy}"
            )
            if budget in counts:
                raise ValueError(f"the rung of {budget} is given twice; {remedy}")
            counts[budget] = _whole(
                number,
                minimum,
                _MAX_SLOTS,
                f"{number!r:.80} at the rung of {budget} is no such number; {remedy}",
            )
        return dict(sorted(counts.items()))

    return BeforeValidator(check)


def _whole(value: Any, minimum: int, maximum: int, remedy: str) -> int:
    """Convert to a whole number, as pydantic would; JSON has the keys of an object as texts."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(maximum)):
        value = int(value)
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not minimum <= value <= maximum:
        raise ValueError(remedy)
    return int(value)


# They are checked as a whole, because pydantic reports a wrong value of a union once for each of its members.
Positive = Annotated[int | dict[int, int], _check_counts(1)]
Natural = Annotated[int | dict[int, int], _check_counts(0)]


class Needs(Strict):
    """The needs that are the same in all attempts at a trial."""

    cpus: float = Field(
        default=1,
        ge=0.001,
        le=100_000,
        description="CPU cores for each trial, of many nodes for each node; fractions are possible.",
    )
    gpu_type: Label | None = Field(
        default=None, description="Cluster: type of GPU, a name under gpu_types in the cluster's settings."
    )
    memory: Memory | None = Field(
        default=None,
        description=(
            "Memory for each trial, of many nodes for each node, for example 32Gi; on a cluster a trial "
            "that uses more is killed."
        ),
    )
    spot: bool = Field(
        default=False,
        description="Cluster: run on nodes that may be reclaimed at any time; trials resume elsewhere.",
    )
    priority_class: Name | None = Field(
        default=None, description="Cluster: priority class of the trials' pods."
    )
    queue: Queue | None = Field(
        default=None, description="Cluster: the Kueue queue that admits the trials' pods."
    )
    grace_seconds: float = Field(
        default=30.0,
        ge=0,
        description="Seconds from SIGTERM to SIGKILL, in which a trial saves a checkpoint.",
    )
    start_timeout_seconds: float = Field(
        default=1800.0,
        gt=0,
        description=(
            "Cluster: seconds that a trial's pod may take to start; after that the attempt counts as crashed."
        ),
    )
    collective_timeout_seconds: float | None = Field(
        default=None,  # None keeps the digest of a spec that does not name it.
        ge=1,
        le=86_400,
        description=(
            "Seconds for which a rank of a trial in several processes waits in a collective for the others "
            "(default: 600)."
        ),
    )


class AttemptResources(Needs):
    """What one attempt at a trial is given, as the run's record keeps it.

    It is what :class:`Resources` says for its rung. A record from before there were gangs has no
    ``processes``: such a trial was one process, whatever its GPUs.
    """

    processes: int = Field(default=1, ge=1, le=_MAX_SLOTS, description="Processes (ranks) on each node.")
    gpus: int = Field(default=0, ge=0, le=_MAX_SLOTS, description="GPUs of each node.")
    nodes: int = Field(default=1, ge=1, le=_MAX_SLOTS, description="Nodes.")

    @property
    def world_size(self) -> int:
        """How many ranks the attempt's gang has when it is whole."""
        return self.nodes * self.processes

    @property
    def all_gpus(self) -> int:
        """The GPUs of all nodes."""
        return self.nodes * self.gpus

    @property
    def threads(self) -> int:
        """How many threads each rank computes with."""
        return max(1, int(self.cpus / self.processes))


class Resources(Needs):
    """What one trial needs.

    On one machine it limits how many trials run at a time; on a cluster it defines the trial's pods.
    ``processes``, ``gpus`` and ``nodes`` may be a number for each rung: ``{1: 1, 9: 8}`` is 8 for an attempt
    that trains towards the rung of 9 epochs or a later one.
    """

    processes: Positive | None = Field(
        default=None,
        description=(
            "Processes (ranks) of each trial on each node (default: one for each GPU, at least one); by "
            "rung as gpus."
        ),
    )
    gpus: Natural = Field(
        default=0,
        description=(
            "GPUs for each trial on each node, which are not shared; or by rung, {1: 1, 9: 8}: 8 from the "
            "rung of 9 epochs on."
        ),
    )
    nodes: Positive = Field(
        default=1,
        description=(
            "Nodes for each trial, each with a pod of its own; more than 1 need an image; by rung as gpus."
        ),
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        attempts = self.by_rung
        if self.gpu_type and not any(attempt.gpus for attempt in attempts.values()):
            raise ValueError(
                f"gpu_type = {self.gpu_type!r} needs gpus of 1 or more; this trial asks for none"
            )
        for budget, attempt in attempts.items():
            if attempt.gpus % attempt.processes:
                from_rung = ""
                if len(attempts) > 1:
                    from_rung = f" from the rung of {budget} on"
                raise ValueError(
                    f"processes = {attempt.processes} is not accepted with gpus = {attempt.gpus}{from_rung}: "
                    "each process has GPUs of its own, and all have as many; "
                    f"give a number that divides {attempt.gpus}, or leave processes out, for one on each GPU"
                )
        return self

    def at(self, budget: int) -> AttemptResources:
        """What an attempt is given that trains up to ``budget`` epochs."""
        gpus = _from_rung(self.gpus, budget)
        processes = max(1, gpus)
        if self.processes is not None:
            processes = _from_rung(self.processes, budget)
        shared = {name: getattr(self, name) for name in Needs.model_fields}
        return AttemptResources(
            **shared, gpus=gpus, processes=processes, nodes=_from_rung(self.nodes, budget)
        )

    @property
    def largest(self) -> AttemptResources:
        """The most that any attempt is given, field by field."""
        attempts = self.by_rung.values()
        counts = {
            name: max(getattr(attempt, name) for attempt in attempts)
            for name in ("processes", "gpus", "nodes")
        }
        return next(iter(attempts)).model_copy(update=counts)

    @property
    def by_rung(self) -> dict[int, AttemptResources]:
        """What attempts are given, by the budget from which on they are, ascending from 1.

        There is one entry if all are given the same.
        """
        counts = (self.processes, self.gpus, self.nodes)
        budgets = {1, *(budget for count in counts if isinstance(count, dict) for budget in count)}
        return {budget: self.at(budget) for budget in sorted(budgets)}


class Elastic(Strict):
    """How far a gang of many nodes may shrink."""

    min_nodes: int = Field(
        default=1,
        ge=1,
        le=_MAX_SLOTS,
        description="A trial goes on with so many nodes while others are lost or not to be had.",
    )


def _from_rung(count: int | dict[int, int], budget: int) -> int:
    if isinstance(count, int):
        return count
    reached = [first for first in count if first <= budget]
    return count[max(reached, default=min(count))]
