"""How long the index of runs takes to be made from an object store with slow answers, and its requests."""

import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.assumptions import S3_ANSWER
from benchmarks.machine import Setting, in_child
from benchmarks.object_server import CREDENTIALS, ObjectServer, object_server
from benchmarks.results import Part, Table, Target, number
from benchmarks.run_index import REBUILT, rebuild_index
from benchmarks.stores import PROJECT, compact, write_runs

METRICS = 10
POINTS = 1_000
_BOUND = 60.0  # seconds
_WRITTEN = 300  # runs whose files all others share
_TEXT = f"""
Ended runs ({METRICS} metrics of {POINTS:,} points) in an object store that answers each request after
{1000 * S3_ANSWER:.0f} ms (one of the benchmark's own, in memory, on the same cores), and an empty catalog on
SQLite that `halving index` fills. *A segment each* is what a run leaves that nobody has compacted,
*compacted* what most runs of a store are: a file of points and its rollup. The server's CPU is what the store
itself takes of the same cores.
"""
_KINDS = ("LIST", "HEAD", "GET")


def measure(setting: Setting) -> Part:
    """Seconds until the catalog has all runs, and requests of each."""
    part = Part("index", "The index of runs from an object store", _TEXT)
    rows = []
    for what in ("a segment each", "compacted"):
        folder = setting.work / what.replace(" ", "-")
        folder.mkdir()
        made = in_child(
            "benchmarks.index_on_s3:make_index",
            folder=str(folder),
            runs=setting.choose(20, REBUILT),
            compacted=what == "compacted",
        )
        runs = made["runs"]
        cpu = made["cpu"]
        counts = [number(made["counts"].get(kind, 0) / runs) for kind in _KINDS]
        shares = [number(1e3 * cpu[whose] / runs) for whose in ("readers", "writer", "server")]
        rows.append(
            [
                what,
                f"{runs:,}",
                f"{made['processes']:.0f}",
                number(made["seconds"]),
                *counts,
                *shares,
                number(made["megabytes"]),
            ]
        )
        target = f"an index of {runs:,} runs made from S3, {what}, by {made['processes']:.0f} processes"
        part.targets.append(Target(target, "s", [made["seconds"]], _BOUND))
    cpus = [f"ms of CPU a run, of {whose}" for whose in ("the readers", "the one who writes", "the server")]
    header = [
        "runs have",
        "runs",
        "processes",
        "s",
        *(f"{kind} a run" for kind in _KINDS),
        *cpus,
        "MB of a process at most",
    ]
    part.tables.append(Table(header, rows, "Making the index from an object store (SQLite)"))
    return part


def make_index(folder: str, runs: int, compacted: bool) -> dict[str, Any]:
    """Measure seconds until an empty catalog has all runs, with requests and CPU seconds.

    In a process of its own, which is the store's server.
    """
    import time

    os.environ |= CREDENTIALS
    os.environ["HALVING_JOURNAL"] = folder
    with object_server() as server:
        root = fill(server, folder, runs, compacted=compacted)
        server.wait = S3_ANSWER
        began = time.process_time()
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            answer: dict[str, Any] = pool.submit(_make, root, f"sqlite:///{folder}/index.db").result()
        answer["cpu"]["server"] = time.process_time() - began
        return answer | {"runs": runs, "counts": dict(server.counts)}


def fill(server: ObjectServer, folder: str, runs: int, *, compacted: bool) -> str:
    """Write runs that share the contents of a few; return the store's address.

    Those few are written to a folder first.
    """
    store = Path(folder, "written")
    names = write_runs(str(store), min(runs, _WRITTEN), METRICS, POINTS, 1)
    if compacted:
        compact(str(store), names)
        for name in names:
            shutil.rmtree(store / f"metrics/project={PROJECT}/run={name}/live")
    contents: dict[str, dict[str, bytes]] = {name: {} for name in names}
    for path in store.rglob("*.*"):
        file = str(path.relative_to(store))
        for name in {part.removeprefix("run=") for part in Path(file).parts} & contents.keys():
            contents[name][file] = path.read_bytes()
    shutil.rmtree(store)
    for place in range(runs):
        name = names[place % len(names)]
        new = f"run-{place:06d}"
        for file, content in contents[name].items():
            if file.endswith(".json"):  # A manifest has the names of its files.
                content = content.replace(name.encode(), new.encode())
            server.put(f"bench/experiments/{file.replace(name, new)}", content)
    server.counts.clear()
    return server.root("bench")


def _make(root: str, url: str) -> dict[str, Any]:
    import resource

    figures = rebuild_index(root, url)
    own = resource.getrusage(resource.RUSAGE_SELF)
    readers = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = {"writer": own.ru_utime + own.ru_stime, "readers": readers.ru_utime + readers.ru_stime}
    return figures | {"cpu": cpu, "megabytes": max(own.ru_maxrss, readers.ru_maxrss) / 1024}
