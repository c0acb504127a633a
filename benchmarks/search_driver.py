"""What a trial costs beside its training: the one-job driver with a trainable that does nothing."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

from benchmarks.machine import CHECKOUT, ChildFailed, Setting, last_words
from benchmarks.results import Part, Table, Target, spread
from benchmarks.search_scale import spec_of

FEW = 20
MANY = 220
ROUNDS = 3
WORKERS = 2
_TEXT = f"""
`dagster job execute -m pipelines.definitions -j sweep` with a trainable that reports once, saves a checkpoint
and returns, {WORKERS} workers on SQLite, a new store and a new `DAGSTER_HOME` each time. Each trial is a
process of its own and leaves its run record, metric files, checkpoint, catalog rows and a materialisation in
Dagster's event log. *A trial* is the whole job's wall time with {MANY} trials less that with {FEW}, for each
trial more: whatever grows with the trials is in it, the evaluation report among it. *While searching* is the
wall time from the first trial's start to the last one's end, for each trial.
"""


def measure(setting: Setting) -> Part:
    """Measure the wall time for each trial more, in ms."""
    part = Part("driver", "A trial's overhead in one job", _TEXT)
    few = setting.choose(1, FEW)
    many = setting.choose(2, MANY)
    pairs = []
    for turn in range(setting.choose(1, ROUNDS)):
        # A job takes some twenty seconds of CPU; a quick run, whose figures mean nothing, is content with one
        # of the two.
        smaller = None
        if not setting.quick:
            smaller = _job(setting, few, turn)
        larger = _job(setting, many, turn)
        pairs.append((smaller or larger, larger))
    each = [1000 * (larger["seconds"] - smaller["seconds"]) / (many - few) for smaller, larger in pairs]
    searching = [1000 * larger["searching"] / many for _, larger in pairs]
    header = [
        "strategy",
        "workers",
        "trials",
        "a trial, ms",
        "while searching, ms",
        f"job of {few} trials, s",
        f"job of {many} trials, s",
    ]
    jobs = [spread([result[place]["seconds"] for result in pairs]) for place in (0, 1)]
    part.tables.append(
        Table(header, [["random", str(WORKERS), f"{few} and {many}", spread(each), spread(searching), *jobs]])
    )
    part.targets.append(Target(f"overhead of a trial in one job, {WORKERS} workers", "ms", each, 60.0))
    return part


def _job(setting: Setting, trials: int, turn: int) -> dict[str, float]:
    folder = setting.work / f"{trials}-{turn}"
    (folder / "dagster").mkdir(parents=True)
    (folder / "dagster" / "dagster.yaml").write_text((CHECKOUT / "dagster.yaml").read_text())
    spec = spec_of({"random": {"budget": 1}}, max_trials=trials, concurrency=WORKERS)
    config = folder / "sweep.yaml"
    config.write_text(json.dumps(spec))
    variables = {
        "DAGSTER_HOME": str(folder / "dagster"),
        "HALVING_ROOT": str(folder / "root"),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    command = [
        sys.executable,
        "-m",
        "dagster",
        "job",
        "execute",
        "-m",
        "pipelines.definitions",
        "-j",
        "sweep",
        "-c",
        str(config),
    ]
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=CHECKOUT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise ChildFailed(
            f"the job of {trials} trials ended with {done.returncode}: {last_words(done.stderr)}"
        )
    return {"seconds": seconds, "searching": _searching(folder / "root" / "catalog.db", trials)}


def _searching(catalog: Path, trials: int) -> float:
    """Seconds from the first attempt's start to the last one's end.

    Raises:
        ChildFailed: not every trial was completed.
    """
    with closing(sqlite3.connect(catalog)) as connection:
        first, last = connection.execute("SELECT min(started_at), max(ended_at) FROM attempts").fetchone()
        (completed,) = connection.execute("SELECT count(*) FROM trials WHERE status = 'completed'").fetchone()
    if completed != trials:
        raise ChildFailed(f"{completed} of {trials} trials were completed")
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
