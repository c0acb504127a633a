"""How long a cold process takes to answer for curves, on small and large stores."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, last_words
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.stores import PROJECT

_PROGRAM = f"""
import json, resource, sys
from halving.query.api import curves
table = curves(json.loads(sys.argv[1]), ["metric_0"], project="{PROJECT}", max_points=1000)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
points = sum(table["count"].to_pylist()) if sys.argv[2] == "count" else None
runs = len(table["run"].unique())
print(json.dumps({{"rows": len(table), "runs": runs, "kibibytes": memory, "points": points}}))
"""
_TEXT = """
The wall time of `python -c "from halving import curves; curves(…)"` in a new process from its start to its
exit, the interpreter and all imports included, for at most 1,000 points of one metric of each run. The
store's files are in the page cache. Memory is the process's largest resident set. Before the rounds it is
checked that the rows stand for every point of each run. Stores are of noisy losses; the segments are as the
SDK encodes them.
"""
METRICS = 10


@dataclass
class Answer:
    """The rounds of one query: seconds and MiB, and the rows that came back."""

    seconds: list[float]
    mebibytes: list[float]
    rows: int

    def cells(self) -> list[str]:
        return [f"{self.rows:,}", spread(self.seconds), spread(self.mebibytes)]


def measure(setting: Setting) -> Part:
    """Measure the promised queries, then what they grow with."""
    part = Part("queries", "Curves in a cold process", _TEXT)
    answers = Table(["store", "state", "rows", "s", "memory, MiB"], [], "Promised queries")
    builds = Table(
        ["store", "points", "segments", "compaction, s", "M points/s"], [], "Compaction of these stores"
    )
    count = setting.choose(3, 100)
    _small(setting, count, part, answers, builds)
    _large(setting, count, part, answers, builds)
    part.tables = [answers, _by_length(setting), _by_count(setting), builds]
    return part


def _small(setting: Setting, count: int, part: Part, answers: Table, builds: Table) -> None:
    root = setting.work / "small"
    points = 1_000
    runs = _build(setting, root, count, points, 1)
    name = f"{count} runs x {METRICS} metrics x {points:,} points"
    answers.rows.append([name, f"{count} segments", *_ask(setting, root, runs, points).cells()])
    builds.rows.append(_compact(setting, root, runs, name, points, count))
    answer = _ask(setting, root, runs, points)
    answers.rows.append([name, "compacted", *answer.cells()])
    part.targets.append(
        Target(f"{count} runs x 1 metric x 1,000 points out of 1 M", "s", answer.seconds, 0.25)
    )


def _large(setting: Setting, count: int, part: Part, answers: Table, builds: Table) -> None:
    root = setting.work / "large"
    points = setting.choose(5_000, 100_000)
    segments = setting.choose(5, 50)
    runs = _build(setting, root, count, points, segments)
    name = f"{count} runs x {METRICS} metrics x {points:,} points"
    live = _ask(setting, root, runs, points)
    answers.rows.append([name, f"{count * segments:,} segments", *live.cells()])
    builds.rows.append(_compact(setting, root, runs, name, points, count * segments))
    compacted = _ask(setting, root, runs, points)
    answers.rows.append([name, "compacted", *compacted.cells()])
    part.targets.append(
        Target(f"{count} runs x 1 metric out of 100 M points, compacted", "s", compacted.seconds, 0.4)
    )
    part.targets.append(
        Target(f"the same on {count * segments:,} uncompacted segments", "s", live.seconds, 1.5)
    )


def _by_length(setting: Setting) -> Table:
    table = Table(
        ["points of a curve", "rows", "s", "memory, MiB"],
        [],
        "Growth with the length of a run (10 runs, 2 metrics, compacted)",
    )
    for points in setting.choose((1_000, 10_000), (1_000, 10_000, 100_000, 1_000_000)):
        root = setting.work / f"length-{points}"
        runs = _build(setting, root, 10, points, max(1, points // 20_000), metrics=2)
        in_child("benchmarks.stores:compact", root=str(root), runs=runs)
        table.rows.append([f"{points:,}", *_ask(setting, root, runs, points).cells()])
    return table


def _by_count(setting: Setting) -> Table:
    table = Table(
        ["runs asked for", "rows", "s", "memory, MiB"],
        [],
        "Growth with the number of runs (1,000 points a curve, compacted)",
    )
    counts = setting.choose((1, 10), (1, 10, 100, 1_000))
    root = setting.work / "count"
    runs = _build(setting, root, counts[-1], 1_000, 1)
    in_child("benchmarks.stores:compact", root=str(root), runs=runs)
    table.note = f"All out of one store of {counts[-1]:,} runs x {METRICS} metrics."
    for count in counts:
        table.rows.append([f"{count:,}", *_ask(setting, root, runs[:count], 1_000).cells()])
    return table


def _build(
    setting: Setting, root: Path, runs: int, points: int, segments: int, metrics: int = METRICS
) -> list[str]:
    names: list[str] = in_child(
        "benchmarks.stores:write_runs",
        root=str(root),
        runs=runs,
        metrics=metrics,
        points=points,
        segments=segments,
    )
    setting.settle()
    return names


def _compact(
    setting: Setting, root: Path, runs: list[str], name: str, points: int, segments: int
) -> list[str]:
    seconds = in_child("benchmarks.stores:compact", root=str(root), runs=runs)["seconds"]
    setting.settle()
    total = len(runs) * METRICS * points
    return [name, f"{total:,}", f"{segments:,}", number(seconds), number(total / seconds / 1e6)]


def _ask(setting: Setting, root: Path, runs: list[str], points: int) -> Answer:
    # The first also brings the files into the page cache.
    first = _ask_cold(root, runs, "count")
    if (counted := first["points"]) != len(runs) * points:
        raise ChildFailed(
            f"the curves of {len(runs)} runs stand for {counted} points, {len(runs) * points} were written"
        )
    results = [first]
    if not setting.quick:
        results = [_ask_cold(root, runs) for _ in range(7)]
    return Answer(
        [result["seconds"] for result in results],
        [result["mebibytes"] for result in results],
        results[0]["rows"],
    )


def _ask_cold(root: Path, runs: list[str], check: str = "") -> dict[str, Any]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(runs), check]
    environment = os.environ | {"HALVING_ROOT": str(root)}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said, complaint = process.communicate()
    seconds = time.perf_counter() - began
    if process.returncode:
        raise ChildFailed(last_words(complaint))
    result = json.loads(said.splitlines()[-1])
    if result["runs"] != len(runs):
        raise ChildFailed(f"{result['runs']} of {len(runs)} runs came back")
    return {
        "seconds": seconds,
        "mebibytes": result["kibibytes"] / 1024,
        "rows": result["rows"],
        "points": result["points"],
    }
