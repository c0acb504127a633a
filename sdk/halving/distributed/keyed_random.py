"""Random numbers of a step that depend on nothing before it: torch's generators are seeded for each step.

The key is the seed, the step and the micro-batch. So a resumed training draws the same dropout masks,
whatever the checkpoint knows of generators, and ranks draw different ones. With the micro-batches numbered
across all ranks the masks are the same on any number of ranks. Around a step the generators are left as they
were.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextmanager
def generators_kept(device: "torch.device") -> Iterator[None]:
    """Restore torch's generators afterwards, of the CPU and of a device, without waiting for the device."""
    import torch

    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        yield


def key_generators(device: "torch.device", *key: int) -> None:
    """Seed torch's generators, of the CPU and of a device, with numbers."""
    import torch

    seed = int.from_bytes(blake2b(",".join(map(str, key)).encode(), digest_size=8).digest(), "little")
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
