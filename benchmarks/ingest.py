"""How many points a second a server takes over HTTP, with its clients on the same machine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.log import rows
from benchmarks.machine import CHECKOUT, Setting
from benchmarks.peers.harness import METRICS, NAMES, losses
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.server_process import cpu_of, running_server
from halving.text import count_of

_TEXT = """
One server process on an empty store, and clients on the same machine, each a process with a run of its own:
the SDK logs ten scalars a call in a tight loop and finishes (Arrow IPC, zstd). The clock runs from the first
call of any until the last `finish()` has returned: every point is then acknowledged, which means written as
Parquet and synced. The points are counted in the store's files.
"""
_CLIENT = "import sys; from benchmarks.ingest import client; client(*sys.argv[1:])"


def measure(setting: Setting) -> Part:
    """Measure durable points a second, by the number of clients."""
    part = Part("ingest", "Points over HTTP", _TEXT)
    rounds = setting.choose(1, 5)
    calls = setting.choose(2_000, 200_000)
    columns = ["clients", "points", "M points/s", "server CPU, s a M points", "points lost or twice"]
    table = Table(columns, [])
    for clients in (1, 4):
        rates = []
        shares = []
        wrong = 0
        for turn in range(rounds):
            setting.settle()
            rate, share, missing = _run_round(
                setting, setting.work / f"{clients}-{turn}", clients, calls // clients
            )
            rates.append(rate)
            shares.append(share)
            wrong += abs(missing)
        table.rows.append(
            [
                str(clients),
                f"{calls // clients * clients * METRICS:,}",
                spread(rates),
                spread(shares),
                number(wrong),
            ]
        )
        who = count_of(clients, "client")
        part.targets.append(Target(f"points taken over HTTP, {who}", "M points/s", rates, 0.5, at_most=False))
    part.tables.append(table)
    return part


def _run_round(setting: Setting, work: Path, clients: int, calls: int) -> tuple[float, float, int]:
    """Millions of points a second, the server's CPU seconds for a million, and the points missing.

    Points that are there twice count as negative.
    """
    root = work / "store"
    with running_server(str(root), setting.choose(0, 3)) as (server, port):
        command = [sys.executable, "-c", _CLIENT, f"http://127.0.0.1:{port}"]
        environment = {**os.environ, "HALVING_JOURNAL": str(work / "journals")}
        started = [
            subprocess.Popen(
                [*command, str(place), str(calls)],
                cwd=CHECKOUT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for place in range(clients)
        ]
        for process in started:
            _read_line(process)
        before = cpu_of(server)
        began = time.perf_counter()
        for process in started:
            process.communicate("go\n")
        seconds = time.perf_counter() - began
        cpu = cpu_of(server) - before
    points = calls * clients * METRICS
    stored = sum(pq.read_metadata(path).num_rows for path in root.glob("metrics/*/*/live/*.parquet"))
    return points / seconds / 1e6, cpu / points * 1e6, points - stored


def client(url: str, place: str, calls: str) -> None:
    """Run a client in a process of its own: it begins its run, and logs when it is told to."""
    import halving

    run = halving.init("bench", {}, url=url, id=f"run-{place}", system_metrics=None)
    prepared = rows(losses(int(calls)), NAMES)
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    for step, row in enumerate(prepared):
        run.log(row, step=step)
    run.finish()


def _read_line(process: "subprocess.Popen[str]") -> Any:
    if process.stdout is None:
        raise RuntimeError("a client's output is not read")
    return json.loads(process.stdout.readline())
