"""How long it takes to recover a killed process's points, and whether any is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.log import open_run, rows
from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, last_words
from benchmarks.peers.harness import METRICS, NAMES, losses
from benchmarks.results import Part, Table, spread

_TEXT = """
A process logs ten scalars a call in a tight loop and sends itself SIGKILL after the last call, without
`flush()` or `finish()`. Another process then calls `halving.ingest.recovery.recover`, which is what
`halving recover` and the next open of the run do; its start and imports are apart. The points are counted in
the files before and after: each key and step must be there once.
"""
_VICTIM = (
    "import sys; from benchmarks.recovery import log_and_die; log_and_die(sys.argv[1], int(sys.argv[2]))"
)


def measure(setting: Setting) -> Part:
    """Measure the seconds of a recovery, the points recovered, and points lost."""
    rounds = setting.choose(1, 5)
    calls = setting.choose(1_000, 100_000)
    results = []
    for turn in range(rounds):
        setting.settle()
        folder = str(setting.work / str(turn))
        done = subprocess.run(
            [sys.executable, "-c", _VICTIM, folder, str(calls)],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != -signal.SIGKILL:
            raise ChildFailed(
                f"the process to be killed ended with {done.returncode}: {last_words(done.stderr)}"
            )
        began = time.perf_counter()
        result = in_child("benchmarks.recovery:bring_back", folder=folder, calls=calls)
        results.append(result | {"whole_s": time.perf_counter() - began})
    part = Part("recovery", "Recovery after SIGKILL", _TEXT)
    header = [
        "points logged",
        "in files at the kill",
        "recovery, s",
        "the whole process, s",
        "M points/s",
        "points lost",
        "points twice",
    ]
    row = [
        f"{calls * METRICS:,}",
        *(spread([result[name] for result in results]) for name in ("before", "recover_s", "whole_s")),
    ]
    row.append(
        spread([(result["after"] - result["before"]) / result["recover_s"] / 1e6 for result in results])
    )
    row += [spread([result[name] for result in results]) for name in ("lost", "twice")]
    part.tables.append(Table(header, [row]))
    return part


def log_and_die(folder: str, calls: int) -> None:
    """Log, and be killed."""
    run = open_run(folder)
    for step, row in enumerate(rows(losses(calls), NAMES)):
        run.log(row, step=step)
    os.kill(os.getpid(), signal.SIGKILL)


def bring_back(folder: str, calls: int) -> dict[str, Any]:
    """Recover, and compare what is in the files with what was logged."""
    from halving.ingest.recovery import recover
    from halving.store.store import Store

    before = len(_points(folder))
    began = time.perf_counter()
    recover(Store(folder))
    seconds = time.perf_counter() - began
    points = _points(folder)
    different = len(set(points))
    return {
        "before": before,
        "recover_s": seconds,
        "after": len(points),
        "lost": calls * METRICS - different,
        "twice": len(points) - different,
    }


def _points(folder: str) -> list[tuple[str, int]]:
    import pyarrow.parquet as pq

    points: list[tuple[str, int]] = []
    for path in Path(folder).glob("metrics/*/*/live/*.parquet"):
        table = pq.ParquetFile(path).read(["key", "step"])
        points += zip(table["key"].to_pylist(), table["step"].to_pylist(), strict=True)
    return points
