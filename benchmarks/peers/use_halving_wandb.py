"""The work through Halving by W&B's names, without system metrics."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import halving.wandb as wandb
from benchmarks.peers.harness import Opened, main


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    os.environ["HALVING_ROOT"] = str(folder)
    run = wandb.init(project="bench", config={"lr": 0.1}, settings={"x_disable_stats": True})
    return Opened(run.log, run.finish, lambda: _count(folder))


def _count(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in folder.glob("metrics/*/*/live/*.parquet"))


if __name__ == "__main__":
    main("halving", start)
