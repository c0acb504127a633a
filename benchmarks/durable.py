"""How many points a second one process brings from ``log()`` into closed files."""

import gc
import time
from pathlib import Path
from typing import Any

from benchmarks.log import open_run, rows
from benchmarks.machine import Setting, in_child
from benchmarks.peers.harness import METRICS, NAMES, losses, size
from benchmarks.results import Part, Table, Target, spread

_TEXT = """
One process logs ten scalars a call in a tight loop and calls `finish()`. The clock runs from the first call
until `finish()` has returned: every segment is then written and synced. The points are counted in the files.
The dicts are made beforehand.
"""


def measure(setting: Setting) -> Part:
    """Measure durable points a second, and the bytes of a point in segments."""
    rounds = setting.choose(1, 5)
    calls = setting.choose(2_000, 500_000)
    results = []
    for turn in range(rounds):
        setting.settle()
        results.append(
            in_child("benchmarks.durable:run_round", folder=str(setting.work / str(turn)), calls=calls)
        )
    part = Part("durable", "Durable points a second", _TEXT)
    rates = [result["points"] / result["total_s"] / 1e6 for result in results]
    part.targets.append(
        Target("durable points a second, one process", "M points/s", rates, 2.0, at_most=False)
    )
    row = [
        f"{calls * METRICS:,}",
        spread(rates),
        *(spread([result[name] for result in results]) for name in ("log_s", "finish_s")),
    ]
    row += [
        spread([result["bytes"] / result["points"] for result in results]),
        spread([result["segments"] for result in results]),
    ]
    row.append(spread([result["logged"] - result["points"] for result in results]))
    header = [
        "points logged",
        "M points/s",
        "logging, s",
        "`finish()`, s",
        "B/point in segments",
        "segments",
        "points lost",
    ]
    part.tables.append(Table(header, [row]))
    return part


def run_round(folder: str, calls: int) -> dict[str, Any]:
    """Run one round, in a process of its own."""
    import pyarrow.parquet as pq

    run = open_run(folder)
    prepared = rows(losses(calls), NAMES)
    log = run.log
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    for step, row in enumerate(prepared):
        log(row, step=step)
    logged = time.perf_counter()
    run.finish()
    closed = time.perf_counter()
    segments = list(Path(folder).glob("metrics/*/*/live/*.parquet"))
    return {
        "logged": calls * METRICS,
        "points": sum(pq.read_metadata(path).num_rows for path in segments),
        "total_s": closed - began,
        "log_s": logged - began,
        "finish_s": closed - logged,
        "bytes": size(Path(folder) / "metrics"),
        "segments": len(segments),
    }
