"""The resources that this process may use of its machine, and how many trials of a spec fit into them."""

import os
import subprocess
from functools import cache

from halving.errors import InvalidInput
from halving.records.hardware import usable_cpus, usable_memory
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.requirements import quantity_bytes


def local_concurrency(spec: SweepSpec) -> int:
    """How many trials run here at a time: as many as the spec asks for and as there is room for.

    Raises:
        InvalidInput: a single trial needs more than this process may use, or an image of its own.
    """
    if spec.image is not None:
        raise needs_cluster(spec.image)
    wanted = spec.resources.largest  # Trials may be at any rung.
    needs = [("cpus", f"{wanted.cpus:g}", wanted.cpus, usable_cpus())]
    if wanted.gpus:
        needs.append(("gpus", str(spec.resources.gpus), wanted.gpus, len(visible_gpus())))
    if wanted.memory:
        needs.append(("memory", wanted.memory, quantity_bytes(wanted.memory), usable_memory()))
    for name, value, needed, available in needs:
        if needed > available:
            if name == "memory":
                raise too_few(name, value, f"{available >> 20}Mi")
            raise too_few(name, value, str(available))
    room = min(int(available // needed) for _, _, needed, available in needs)
    if not spec.concurrency:
        return room
    return min(spec.concurrency, room)


def too_few(name: str, value: str, available: str) -> InvalidInput:
    """The error for a trial that needs more of a resource than this machine has."""
    return InvalidInput(
        f"resources.{name} = {value} is not accepted here: this machine has {available} for this process"
    )


def needs_cluster(image: str) -> InvalidInput:
    """The error for a trial with an image of its own, which cannot run on this machine."""
    return InvalidInput(
        f"image = {image!r} is not accepted here: a trial runs in an image of its own on a cluster only, "
        "and HALVING_CLUSTER is not set; leave image out, and the trainable runs in this environment"
    )


def visible_gpus() -> list[str]:
    """Ids of the GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    try:
        return list(_listed_gpus())
    except (OSError, subprocess.SubprocessError):
        return []


@cache
def _listed_gpus() -> tuple[str, ...]:
    """The machine's own list of GPUs, read once.

    Reading may take a second, and it happens while a decision about places waits for it.
    """
    listing = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    return tuple(subprocess.run(listing, capture_output=True, check=True, timeout=10).stdout.decode().split())
