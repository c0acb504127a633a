"""The work through trackio into its local database, without hardware metrics."""

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trackio

from benchmarks.peers.harness import NAMES, Opened, main


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    run = trackio.init(
        "bench", name="run", config={"lr": 0.1}, embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    return Opened(run.log, trackio.finish, lambda: _count(folder))


def _count(folder: Path) -> int:
    points = 0
    for path in folder.rglob("*.db"):
        with sqlite3.connect(path) as database:
            rows = database.execute("SELECT metrics FROM metrics").fetchall()
        points += sum(sum(name in json.loads(text) for name in NAMES) for (text,) in rows)
    return points


if __name__ == "__main__":
    main("trackio", start)
