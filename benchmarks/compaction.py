"""How many ended attempts workers compact on an object store with slow answers, and its requests."""

import os
import time
from typing import Any

from benchmarks.assumptions import S3_ANSWER
from benchmarks.machine import Setting, in_child
from benchmarks.object_server import CREDENTIALS, ObjectServer, object_server
from benchmarks.results import Part, Table, Target, number

WORKERS = 4
SEGMENTS = 64
ATTEMPTS = 400
PROMISED = 10_000  # attempts an hour
# of a segment, each
SERIES = 10
POINTS = 10
_TEXT = f"""
Ended attempts of {SEGMENTS} segments ({SERIES} metrics of {POINTS} points each) in an object store that
answers each request after {1000 * S3_ANSWER:.0f} ms (one of the benchmark's own, in memory, on the same
cores), and {WORKERS} workers of `compact_metrics`, each a process. *Compacted*: until each attempt is one
file and its rollup. *Cleaned*: until the segments are deleted, ten minutes later. The rate is of both, one
after the other. *Writes* are what S3 charges as such (PUT, POST, LIST), *reads* are GET and HEAD.
"""
_WRITES = ("PUT", "POST", "LIST")
_READS = ("GET", "HEAD")


def measure(setting: Setting) -> Part:
    """Attempts a second, and requests of each."""
    part = Part("compaction", "Compaction on an object store", _TEXT)
    workers = setting.choose(2, WORKERS)
    figures = in_child(
        "benchmarks.compaction:compact_and_clean",
        folder=str(setting.work),
        runs=setting.choose(4, ATTEMPTS),
        workers=workers,
    )
    runs = figures["runs"]
    rows = []
    for phase in ("compacted", "cleaned"):
        each = figures[phase]
        counts = [
            sum(each["counts"].get(kind, 0) for kind in kinds) / runs
            for kinds in (_WRITES, _READS, ("DELETE",))
        ]
        rows.append(
            [
                phase,
                number(each["seconds"] / runs * workers),
                *map(number, counts),
                number(each["cpu"] / runs),
            ]
        )
    rate = runs / sum(figures[phase]["seconds"] for phase in ("compacted", "cleaned"))
    header = ["what", "s an attempt and worker", "writes", "reads", "deletes", "s of CPU"]
    part.tables.append(Table(header, rows, f"{runs} attempts, {workers} workers"))
    part.tables.append(
        Table(["attempts/s", "attempts an hour"], [[number(rate), f"{3600 * rate:,.0f}"]], "Both")
    )
    part.targets.append(
        Target("an attempt, compacted and cleaned, by all workers", "s", [1 / rate], 3600 / PROMISED)
    )
    return part


def compact_and_clean(folder: str, runs: int, workers: int) -> dict[str, Any]:
    """Measure seconds of both phases, with requests and the workers' CPU.

    In a process of its own, which is the store's server.
    """
    os.environ |= CREDENTIALS
    os.environ["HALVING_JOURNAL"] = folder
    url = f"sqlite:///{folder}/compaction.db"
    figures: dict[str, Any] = {"runs": runs}
    with object_server() as server:
        root = fill(server, url, runs)
        for phase, grace in (("compacted", 600.0), ("cleaned", 0.0)):
            server.counts.clear()
            server.wait = S3_ANSWER
            cpu, seconds, done = work(root, url, grace, workers)
            server.wait = 0.0
            if done != runs:
                raise RuntimeError(f"{done} of {runs} attempts were {phase}")
            figures[phase] = {"seconds": seconds, "cpu": cpu, "counts": dict(server.counts)}
            make_due(url)
        left = [path for path in server.objects if "/live/" in path and not path.endswith("/")]
        if left:
            raise RuntimeError(f"{len(left)} segments are left, such as {left[0]}")
    return figures


def fill(server: ObjectServer, url: str, runs: int) -> str:
    """Write ended attempts and what the index has of them; return the store's address.

    Every attempt has the same points.
    """
    from sqlalchemy import insert

    from halving.metrics.segments import live_folder, segment_name
    from resources.catalog import Catalog, RunRow

    contents = [_segment(number) for number in range(SEGMENTS)]
    common = {
        "project": "p",
        "status": "finished",
        "started": 0.0,
        "attempt": 1,
        "revision": 1,
        "look_again": 1e12,
        "signature": "",
    }
    catalog = Catalog(url)
    names = [f"r{number:06d}" for number in range(runs)]
    with catalog.engine.connect().execution_options(write=True) as connection, connection.begin():
        connection.execute(insert(RunRow), [{**common, "run": name, "segments": SEGMENTS} for name in names])
    catalog.close()
    for name in names:
        for sequence, content in enumerate(contents):
            server.put(f"bench/experiments/{live_folder('p', name)}/{segment_name(1, sequence)}", content)
    return server.root("bench")


def _segment(number: int) -> bytes:
    import numpy as np

    from halving.metrics.segments import encode, points_table

    steps = np.tile(np.arange(number * POINTS, (number + 1) * POINTS), SERIES)
    codes = np.repeat(np.arange(SERIES, dtype=np.int32), POINTS)
    values = np.random.default_rng(number).random(len(steps))
    return encode(
        points_table(
            "run", 1, [f"train/loss_{place}" for place in range(SERIES)], codes, steps, 1000 * steps, values
        )
    )


def work(root: str, url: str, grace: float, workers: int) -> tuple[float, float, int]:
    """CPU seconds of all workers, the seconds that they took together, and how many attempts they had."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(_ready) for _ in range(4 * workers)]:
            # what a process imports is not what is measured
            future.result()
        began = time.perf_counter()
        done = [future.result() for future in [pool.submit(_work, root, url, grace) for _ in range(workers)]]
        seconds = time.perf_counter() - began
    return sum(cpu for cpu, _ in done), seconds, sum(runs for _, runs in done)


def _ready() -> None:
    import boto3  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import resources.upkeep.compaction  # noqa: F401

    time.sleep(0.05)


def _work(root: str, url: str, grace: float) -> tuple[float, int]:
    from halving import Store
    from halving.maintenance import compaction
    from resources.catalog import Catalog
    from resources.upkeep.compaction import compact_waiting

    compaction.GRACE_SECONDS = grace
    catalog = Catalog(url)
    began = time.process_time()
    done = compact_waiting(Store(root), catalog)
    catalog.close()
    return time.process_time() - began, done.runs + done.cleaned


def make_due(url: str) -> None:
    """Let runs whose segments are compacted be looked at again now."""
    from sqlalchemy import update

    from resources.catalog import Catalog, RunRow

    catalog = Catalog(url)
    with catalog.write() as session:
        session.execute(update(RunRow).values(compact_at=0.0))
    catalog.close()
