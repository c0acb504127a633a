"""The work that every tracker does, and its measurement.

It runs in each tracker's environment: standard library only. A script ``use_NAME.py`` hands :func:`main` a
function that opens a run; everything else is the same for all.
"""

import gc
import hashlib
import importlib.metadata
import json
import random
import sys
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = 10
NAMES = [f"train/metric_{place}" for place in range(METRICS)]


@dataclass
class Opened:
    """One tracker's open run.

    Attributes:
        log: called as ``log(values, step=step)`` with a dict of ten floats.
        close: returns once the points are in files, as durable as the tracker makes them.
        count: how many of the points can be read back after ``close``; not timed.
    """

    log: Callable[..., Any]
    close: Callable[[], Any]
    count: Callable[[], int]


def main(package: str, start: Callable[[Path, Mapping[str, Any]], Opened]) -> None:
    """Do the work that ``sys.argv[1]`` describes as JSON and print what was measured as the last line."""
    arguments = json.loads(sys.argv[1])
    folder = Path(arguments["folder"])
    with redirect_stdout(sys.stderr):  # some trackers talk
        began = time.perf_counter()
        opened = start(folder, arguments)
        result = {"version": importlib.metadata.version(package), "start_s": time.perf_counter() - began}
        result |= work(opened, arguments["calls"], arguments["work_ms"])
        result |= {"bytes": size(folder), "read_back": opened.count()}
    print(json.dumps(result), flush=True)


def work(opened: Opened, calls: int, work_ms: float) -> dict[str, Any]:
    """Log ``calls`` times ten noisy losses, with ``work_ms`` of computing before each call, and close.

    Returns:
        Percentiles of one call in µs, the seconds of the loop, of ``close``, and of both, all without the
        computing.
    """
    data = losses(calls)
    compute = worker(work_ms)
    clock = time.perf_counter_ns
    log = opened.log
    spent = array("q", bytes(8 * calls))
    gc.collect()
    gc.freeze()  # what was made before is the benchmark's, no collection should walk it
    computed = 0
    began = clock()
    for step in range(calls):
        started = clock()
        if compute is not None:
            compute()
        # made now, as training code makes it
        row = dict(zip(NAMES, data[step * METRICS : (step + 1) * METRICS], strict=True))
        before = clock()
        log(row, step=step)
        spent[step] = clock() - before
        computed += before - started
    logged = clock()
    opened.close()
    closed = clock()
    gc.unfreeze()
    return {
        "calls": calls,
        "points": calls * METRICS,
        "latency_us": percentiles(spent),
        "log_s": (logged - began - computed) / 1e9,
        "close_s": (closed - logged) / 1e9,
        "total_s": (closed - began - computed) / 1e9,
    }


def losses(calls: int, seed: int = 0) -> "array[float]":
    """Noisy decaying losses as they come out of a float32 computation: ten for each call."""
    source = random.Random(seed)
    values = array("f")
    for step in range(calls):
        level = 0.1 + 2.3 / (1 + 0.001 * step)
        values.extend(level * source.uniform(0.8, 1.2) for _ in NAMES)
    return array("d", values)


def worker(milliseconds: float) -> Callable[[], object] | None:
    """A function that computes for about so long; other threads run meanwhile, as in a training step."""
    if not milliseconds:
        return None
    # hashlib releases the GIL for anything longer than 2 KiB.
    block = bytes(1 << 20)
    each = min(_time_of(lambda: hashlib.sha256(block)) for _ in range(5)) / len(block)
    data = bytes(max(4096, int(milliseconds / 1e3 / each)))
    return lambda: hashlib.sha256(data)


def percentiles(spent: "array[int]") -> dict[str, float]:
    """p50, p99, p99.9 and the maximum of nanoseconds, in µs, less what reading the clock costs."""
    clock = time.perf_counter_ns
    idle = array("q", bytes(8 * 20_000))
    for place in range(len(idle)):
        before = clock()
        idle[place] = clock() - before
    timer = sorted(idle)[len(idle) // 2]
    ordered = sorted(spent)
    at = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {
        name: max(0, ordered[min(len(ordered) - 1, int(share * len(ordered)))] - timer) / 1e3
        for name, share in at.items()
    }


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _time_of(function: Callable[[], object]) -> float:
    before = time.perf_counter()
    function()
    return time.perf_counter() - before
