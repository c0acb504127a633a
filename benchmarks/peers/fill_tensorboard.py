"""Filling TensorBoard's event files with runs, by the writer that PyTorch ships."""

import importlib.metadata
import json
import random
import sys
from typing import Any

from torch.utils.tensorboard import SummaryWriter


def fill(folder: str, runs: int, metrics: int, points: int) -> dict[str, Any]:
    """Write noisy decaying losses; return the runs' names."""
    source = random.Random(0)
    names = [f"run-{place:05d}" for place in range(runs)]
    for name in names:
        with SummaryWriter(f"{folder}/{name}") as writer:
            for step in range(points):
                for metric in range(metrics):
                    writer.add_scalar(
                        f"metric_{metric}", (0.1 + 2.3 / (1 + 0.001 * step)) * source.uniform(0.8, 1.2), step
                    )
    return {"runs": names, "version": importlib.metadata.version("tensorboard")}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(
        json.dumps(fill(arguments["data"], arguments["runs"], arguments["metrics"], arguments["points"])),
        flush=True,
    )
