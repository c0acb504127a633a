"""The work through Halving, without system metrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import halving
from benchmarks.peers.harness import Opened, main


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    run = halving.init("bench", {"lr": 0.1}, root=folder, system_metrics=None)
    return Opened(run.log, run.finish, lambda: _count(folder))


def _count(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in folder.glob("metrics/*/*/live/*.parquet"))


if __name__ == "__main__":
    main("halving", start)
