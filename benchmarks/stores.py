"""Making stores full of points fast: segments are encoded as the SDK does, without a run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PROJECT = "bench"
_START = 1_780_000_000_000  # ms since 1970
Make = Callable[[Any, int], Any]  # of a random generator and a count: that many values


def write_run(
    root: Path,
    run: str,
    metrics: Mapping[str, Make],
    points: int,
    segments: int,
    *,
    first: int = 0,
    every_ms: int = 50,
    jitter_ms: int = 3,
    seed: int = 0,
) -> None:
    """Write one run's record and segments, with ``points`` points of each metric, logged together.

    Args:
        every_ms, jitter_ms: between two calls, and by how much that varies at most, evenly spread.
        first: number of the first segment, to add metrics to a run that has some.
    """
    import numpy as np

    from halving.metrics.segments import encode, live_folder, points_table, segment_name

    source = np.random.default_rng(seed)
    times = _START + np.cumsum(every_ms + source.integers(-jitter_ms, jitter_ms + 1, points))
    names = sorted(metrics)
    values = np.stack([metrics[name](source, points) for name in names])
    folder = root / live_folder(PROJECT, run)
    folder.mkdir(parents=True, exist_ok=True)
    for number, place in enumerate(np.array_split(np.arange(points), segments), first):
        codes = np.repeat(np.arange(len(names), dtype=np.int32), len(place))
        table = points_table(
            run,
            1,
            names,
            codes,
            np.tile(place, len(names)),
            np.tile(times[place], len(names)),
            values[:, place].ravel(),
        )
        (folder / segment_name(1, number)).write_bytes(encode(table))
    _write_record(root, run, len(names) * points, dict(zip(names, values[:, -1].tolist(), strict=True)))


def write_runs(root: str, runs: int, metrics: int, points: int, segments: int, first: int = 0) -> list[str]:
    """Write several runs of noisy losses, with ``segments`` segments each.

    To be called in a process of its own.
    """
    losses: dict[str, Make] = {f"metric_{place}": loss for place in range(metrics)}
    names = [f"run-{first + place:05d}" for place in range(runs)]
    for place, name in enumerate(names):
        write_run(Path(root), name, losses, points, segments, seed=first + place)
    return names


def loss(source: Any, points: int) -> Any:
    """A noisy decaying loss as it comes out of a float32 computation."""
    import numpy as np

    level = 0.1 + 2.3 / (1 + 0.001 * np.arange(points))
    return (level * source.uniform(0.8, 1.2, points)).astype(np.float32).astype(np.float64)


def gauge(low: float, high: float, unit: float, moves: float) -> Make:
    """A gauge that is read in whole ``unit`` and moves by one or two of them now and then.

    ``moves`` is the probability of a move in a sample.
    """

    def make(source: Any, points: int) -> Any:
        import numpy as np

        steps = (
            source.integers(1, 3, points) * source.choice([-1, 1], points) * (source.random(points) < moves)
        )
        width = round((high - low) / unit)
        walk = (int(source.integers(0, width)) + np.cumsum(steps)) % (2 * width)
        return np.round((low / unit + np.minimum(walk, 2 * width - walk)) * unit, 6)  # reflected at both ends

    return make


def compact(root: str, runs: list[str]) -> dict[str, float]:
    """Compact runs and return the seconds that it took. To be called in a process of its own."""
    import time

    from halving.maintenance import compaction
    from halving.store.store import Store

    began = time.perf_counter()
    for run in runs:
        compaction.compact(Store(root), PROJECT, run)
    return {"seconds": time.perf_counter() - began}


def metric_bytes(root: Path, run: str) -> dict[str, int]:
    """Bytes of a run's files by kind: ``live``, ``full``, ``rollup`` and ``manifest``."""
    from halving.metrics.manifest import run_folder

    sizes = {"live": 0, "full": 0, "rollup": 0, "manifest": 0}
    for path in (root / run_folder(PROJECT, run)).rglob("*.*"):
        kind = "live"
        if path.parent.name != "live":
            kind = path.name.partition("-")[0]
        sizes[kind] += path.stat().st_size
    return sizes


def _write_record(root: Path, run: str, points: int, last: dict[str, float]) -> None:
    """Write what ``halving.init`` and ``finish`` leave, without looking at the checkout for each run.

    Args:
        last: values by metric, beside those of metrics that the run has already.
    """
    from halving.store.json_files import now

    folder = root / "runs" / f"project={PROJECT}" / run
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "project": PROJECT,
        "run": run,
        "params": {"lr": 0.1},
        "parent": {},
        "attempt": 1,
        "started": now(),
        "seed": None,
    }
    record |= {"provenance": {}, "determinism": {}, "token": run}
    end = folder / "end-0001.json"
    summary = (json.loads(end.read_text())["summary"] if end.exists() else {}) | last
    ended = {
        "time": now(),
        "status": "finished",
        "epoch": 0,
        "dropped_points": 0,
        "points": points,
        "summary": summary,
    }
    (folder / "record.json").write_text(json.dumps(record))
    end.write_text(json.dumps(ended))
