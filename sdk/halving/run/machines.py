"""The machines of a run's ranks, for its record, which rank 0 writes."""

import os
import socket
from typing import Any

from halving.distributed.ranks import Ranks


def machines_of(ranks: Ranks) -> dict[str, Any]:
    """Collect the number of ranks, of nodes, and the visible GPUs; empty for a training in one process.

    The visible GPUs are the different values of ``CUDA_VISIBLE_DEVICES`` (None: not set) among the ranks on
    rank 0's machine. This is a collective.
    """
    if ranks.world_size == 1:
        return {}
    everywhere = ranks.gather(
        "the run's machines", [socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES")]
    )
    first = everywhere[0][0]
    visible = dict.fromkeys(setting for host, setting in everywhere if host == first)
    return {
        "ranks": {
            "size": ranks.world_size,
            "nodes": len({host for host, _ in everywhere}),
            "visible_gpus": list(visible),
        }
    }
