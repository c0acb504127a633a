"""What this process may use of its machine, and how many trials of a spec run here at a time."""

import os
import subprocess

from halving.errors import InvalidInput
from halving.records.hardware import usable_cpus, usable_memory
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.requirements import quantity_bytes


def local_concurrency(spec: SweepSpec) -> int:
    """How many trials run here at a time: what the spec asks for, within the cores, memory and GPUs that this process may use.

    Raises:
        InvalidInput: one trial alone needs more than that, or an image of its own.
    """
    if spec.image is not None:
        raise needs_cluster(spec.image)
    wanted = spec.resources
    needs = [("cpus", f"{wanted.cpus:g}", wanted.cpus, usable_cpus())]
    if wanted.gpus:
        needs.append(("gpus", str(wanted.gpus), wanted.gpus, len(visible_gpus())))
    if wanted.memory:
        needs.append(("memory", wanted.memory, quantity_bytes(wanted.memory), usable_memory()))
    for name, asked, needed, there in needs:
        if needed > there:
            has = f"{there >> 20}Mi" if name == "memory" else there
            raise InvalidInput(f"resources.{name} = {asked} is not accepted here: this machine has {has} for this process")
    room = min(int(there // needed) for _, _, needed, there in needs)
    return min(spec.concurrency, room) if spec.concurrency else room


def needs_cluster(image: str) -> InvalidInput:
    """Why a trial with an image of its own cannot run on this machine."""
    return InvalidInput(
        f"image = {image!r} is not accepted here: a trial runs in an image of its own on a cluster only, and HALVING_CLUSTER is not set; "
        "leave image out, and the trainable runs in this environment"
    )


def visible_gpus() -> list[str]:
    """Ids of the GPUs that this process may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode().split() if done.returncode == 0 else []
