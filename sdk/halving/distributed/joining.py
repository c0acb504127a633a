"""How a process joins the ranks that train with it, in a gang's trial or in a user's own script."""

import atexit
import os
import sys
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

from halving.distributed import flight
from halving.distributed.ranks import ALONE, Gang, Ranks
from halving.errors import InvalidInput
from halving.store.retry import warn

if TYPE_CHECKING:
    import torch

TIMEOUT_SECONDS = 600.0
"""How long a rank waits in a collective, unless the spec says otherwise; NCCL's own default."""

_WARN_SECONDS = 30.0  # Then a rank in halving.init names the ranks that it waits for.
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets
_CALLS = count(1)
# The default process group of this process, and the ranks that were made of it.
_joined: tuple[Any, Gang] | None = None


def join(timeout: float) -> Gang:
    """Join the gang that the environment names, as torchrun's agent sets it.

    The variables are RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. Afterwards
    ``torch.distributed`` has a default process group (NCCL for tensors on GPUs, gloo for those on the CPU),
    which Accelerate and Lightning Fabric find and use.

    Raises:
        torch.distributed.DistError: the other ranks did not come within ``timeout`` seconds.
    """
    rank, world_size, local_rank = _begin(timeout)
    return Gang(rank, world_size, local_rank, timeout=timeout)


def ranks_of_process() -> Ranks:
    """Return the ranks of a user's own script; a collective where it has several processes.

    They are the ranks of ``torch.distributed``'s default process group. Where there is none yet and the
    environment is torchrun's, it is made, as :func:`join` does it.

    Raises:
        InvalidInput: another rank did not come within ``TIMEOUT_SECONDS``; it is named.
    """
    global _joined
    dist: Any = sys.modules.get("torch.distributed")
    launched = all(os.environ.get(name) for name in _LAUNCHED) and os.environ["WORLD_SIZE"] != "1"
    if dist is not None and dist.is_available() and dist.is_initialized():
        if dist.get_world_size() == 1:
            return ALONE
    elif launched:
        import torch.distributed as dist

        _begin(TIMEOUT_SECONDS)
        atexit.register(leave)  # NCCL complains of a process that ends in its group
    else:
        return ALONE
    _wait_for_all(dist, f"halving.init/{next(_CALLS)}")
    group = dist.group.WORLD
    if _joined is None or _joined[0] is not group:
        rank = dist.get_rank()
        _joined = (
            group,
            Gang(
                rank, dist.get_world_size(), int(os.environ.get("LOCAL_RANK", rank)), timeout=TIMEOUT_SECONDS
            ),
        )
    return _joined[1]


def leave() -> None:
    """Leave the gang if it was joined."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def device_of(local_rank: int) -> "torch.device":
    """The device that a rank computes on: its first GPU, else the CPU."""
    import torch

    gpus = 0
    if torch.cuda.is_available():
        gpus = torch.cuda.device_count()
    gpus_per_rank = max(1, gpus // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    first = local_rank * gpus_per_rank
    if first >= gpus:
        return torch.device("cpu")
    return torch.device("cuda", first)


def _begin(timeout: float) -> tuple[int, int, int]:
    """Make the default process group from torchrun's variables; return rank, world size and local rank."""
    import torch
    import torch.distributed as dist

    rank, world_size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    flight.switch_on()
    device = device_of(local_rank)
    gpu = None
    backend = "gloo"
    if device.type == "cuda":
        gpu = device
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(gpu)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), device_id=gpu)
    return rank, world_size, local_rank


def _wait_for_all(dist: Any, name: str) -> None:
    """Wait until every rank is here.

    A script may call this on rank 0 only, as it may with other trackers; the error explains that.
    """
    store = dist.distributed_c10d._get_default_store()
    rank = dist.get_rank()
    keys = [f"{name}/{each}" for each in range(dist.get_world_size())]
    store.set(keys[rank], "")
    for seconds in (_WARN_SECONDS, max(0.0, TIMEOUT_SECONDS - _WARN_SECONDS)):
        try:
            store.wait(keys, timedelta(seconds=seconds))
            return
        except dist.DistStoreError:
            away = ", ".join(str(each) for each, key in enumerate(keys) if not store.check([key]))
        if seconds == _WARN_SECONDS:
            warn(
                (
                    f"halving.init on rank {rank} waits for rank {away}: every rank must call it, for it is "
                    "one run of all of them"
                ),
                stacklevel=4,
            )
    raise InvalidInput(
        f"halving.init was called by rank {rank}, and within {TIMEOUT_SECONDS:.0f} s not by rank {away}: "
        "call it on every rank, outside of "
        "`if rank == 0`, or give distributed=False for a run of this process alone"
    )
