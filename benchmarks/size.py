"""Bytes a point after compaction, on two mixes of metrics."""

from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, spread
from benchmarks.stores import Make, compact, gauge, loss, metric_bytes, write_run

_TEXT = """
A run's segments are compacted; the bytes of the compacted file are counted with its keys and footer, the
rollup apart. *Losses*: a decaying level times uniform noise of ±20 %, computed in float32, logged every 50 ±
3 ms; in one row the steps are less regular, 50 ± 20 ms. *Slow gauges*, sampled every 30 s ± 3 ms:
temperatures in degrees (move in 20 % of the samples), utilisation in % (in 50 %), memory in steps of 2 MiB
(in 5 %), power in W (in 50 %), shares in 0.1 % (in 20 %). The mix has as many points of each gauge as of each
loss. *Raw gauges* are the worst that sensors give: power in mW that never rests, rates as quotients. Rounds
differ in their random numbers.
"""
GAUGES: dict[str, Make] = {
    "temperature": gauge(35, 80, 1, 0.2),
    "utilization": gauge(60, 100, 1, 0.5),
    "memory_used": gauge(30e9, 70e9, 2 << 20, 0.05),
    "power": gauge(250, 400, 1, 0.5),
    "percent": gauge(10, 90, 0.1, 0.2),
}


def raw_power(source: Any, points: int) -> Any:
    """Watts with three decimals that all move."""
    import numpy as np

    return np.round(320 + np.cumsum(source.normal(0, 1, points)) % 60 + source.normal(0, 3, points), 3)


def raw_rate(source: Any, points: int) -> Any:
    """Bytes a second: a whole number over a measured time."""
    return source.integers(0, 1 << 28, points) / (30 + source.normal(0, 0.005, points))


_IRREGULAR = "10 noisy losses at irregular times"
MIXES: dict[str, dict[str, Make]] = {
    "10 noisy losses": {f"train/loss_{place}": loss for place in range(10)},
    "30 noisy losses and 80 slow gauges": {
        **{f"train/loss_{place}": loss for place in range(30)},
        **{f"system/gpu.{place}/{name}": make for place in range(16) for name, make in GAUGES.items()},
    },
    _IRREGULAR: {f"train/loss_{place}": loss for place in range(10)},
    "80 slow gauges alone": {
        f"system/gpu.{place}/{name}": make for place in range(16) for name, make in GAUGES.items()
    },
    "10 raw gauges: power": {f"system/gpu.{place}/power": raw_power for place in range(10)},
    "10 raw gauges: rates": {f"system/disk.{place}/read": raw_rate for place in range(10)},
}
BOUNDS = {"10 noisy losses": 3.8, "30 noisy losses and 80 slow gauges": 2.0}


def measure(setting: Setting) -> Part:
    """Bytes a point of each mix."""
    part = Part("size", "Bytes a point", _TEXT)
    table = Table(["mix", "points", "segments, B/point", "compacted, B/point", "rollup, B/point"], [])
    points = setting.choose(2_000, 100_000)
    rounds = setting.choose(1, 3)
    for place, (name, metrics) in enumerate(MIXES.items()):
        each = points if len(metrics) <= 10 else points // 5
        results = [
            in_child(
                "benchmarks.size:write_mix",
                root=str(setting.work / f"{place}-{turn}"),
                mix=name,
                points=each,
                seed=turn,
            )
            for turn in range(rounds)
        ]
        total = each * len(metrics)
        sizes = {
            kind: [result[kind] / total for result in results] for kind in ("segments", "full", "rollup")
        }
        table.rows.append([name, f"{total:,}", *(spread(values) for values in sizes.values())])
        if name in BOUNDS:
            part.targets.append(Target(f"compacted size, {name}", "B/point", sizes["full"], BOUNDS[name]))
    part.tables.append(table)
    return part


def write_mix(root: str, mix: str, points: int, seed: int) -> dict[str, int]:
    """Write one run of a mix; return its bytes before and after compaction.

    To be called in a process of its own.
    """
    folder = Path(root)
    metrics = MIXES[mix]
    gauges = {name: make for name, make in metrics.items() if name.startswith("system/")}
    losses = {name: make for name, make in metrics.items() if name not in gauges}
    first = 0
    if losses:
        first = 10
        jitter_ms = 3
        if mix == _IRREGULAR:
            jitter_ms = 20
        write_run(folder, "run", losses, points, 10, every_ms=50, jitter_ms=jitter_ms, seed=seed)
    if gauges:
        write_run(folder, "run", gauges, points, 10, first=first, every_ms=30_000, seed=seed)
    before = metric_bytes(folder, "run")
    compact(root, ["run"])
    after = metric_bytes(folder, "run")
    return {"segments": before["live"], "full": after["full"], "rollup": after["rollup"]}
