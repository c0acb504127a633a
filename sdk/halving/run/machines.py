"""What a run's record says of the machines on which its ranks are: the record itself is rank 0's, which sees
its own alone.
"""

import os
import socket
from typing import Any

from halving.distributed.ranks import Ranks


def machines_of(ranks: Ranks) -> dict[str, Any]:
    """A collective: ``ranks`` with their number, ``nodes`` and, of rank 0's machine, ``CUDA_VISIBLE_DEVICES``
    of each rank as far as these differ (None: not set).

    Nothing of a training in one process.
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
