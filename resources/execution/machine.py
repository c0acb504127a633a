"""What this process may use of its machine, and how many trials of a spec run here at a time."""

import os
import subprocess
from functools import cache

from halving.errors import InvalidInput
from halving.records.hardware import usable_cpus, usable_memory
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.requirements import quantity_bytes


def local_concurrency(spec: SweepSpec) -> int:
    """How many trials run here at a time: what the spec asks for, within the cores, memory and GPUs that this
    process may use.

    Raises:
        InvalidInput: one trial alone needs more than that, or an image of its own.
    """
    if spec.image is not None:
        raise needs_cluster(spec.image)
    wanted = spec.resources.largest  # whichever rung its trials are at
    needs = [("cpus", f"{wanted.cpus:g}", wanted.cpus, usable_cpus())]
    if wanted.gpus:
        needs.append(("gpus", str(spec.resources.gpus), wanted.gpus, len(visible_gpus())))
    if wanted.memory:
        needs.append(("memory", wanted.memory, quantity_bytes(wanted.memory), usable_memory()))
    for name, value, needed, available in needs:
        if needed > available:
            has = f"{available >> 20}Mi" if name == "memory" else available
            raise too_few(name, value, str(has))
    room = min(int(available // needed) for _, _, needed, available in needs)
    return min(spec.concurrency, room) if spec.concurrency else room


def too_few(name: str, value: str, available: str) -> InvalidInput:
    """Why a trial cannot run on this machine that needs more of one of ``resources`` than there is."""
    return InvalidInput(
        f"resources.{name} = {value} is not accepted here: this machine has {available} for this process"
    )


def needs_cluster(image: str) -> InvalidInput:
    """Why a trial with an image of its own cannot run on this machine."""
    return InvalidInput(
        f"image = {image!r} is not accepted here: a trial runs in an image of its own on a cluster only, "
        "and HALVING_CLUSTER is not set; "
        "leave image out, and the trainable runs in this environment"
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
    """The machine's own list, asked for once: while it is, which may take a second, the decision whose turn
    it is waits.
    """
    listing = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    return tuple(subprocess.run(listing, capture_output=True, check=True, timeout=10).stdout.decode().split())
