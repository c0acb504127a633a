"""What the server's curves and live streams cost, also beside 50 dashboards.

It measures bytes and CPU of an answer, and of 200 streams.
"""

import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode

from benchmarks.http_client import Client, end_clients
from benchmarks.machine import CHECKOUT, Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.server_asks import measure_loops
from benchmarks.server_process import cpu_of, running_server
from benchmarks.stores import PROJECT

_TEXT = """
One server process on a store of 100 runs x 10 metrics x 1,000 points (noisy losses, compacted) in the page
cache; clients and trainers are other processes on the same machine. CPU is the server process's, its index of
runs included. A dashboard asks for one metric of all 100 runs, waits 5 s on average, and asks again; three
times of ten it zooms, into a window that nobody has asked for. A stream watches ten of 20 runs that are being
trained and log ten metrics once a second; in the idle row none of them logs.
"""
BINARY = "application/vnd.halving.curves"
RUNS = 100
METRICS = 10
POINTS = 1_000
LIVE = 20
_THINK = 5.0
_TIMED = 20  # of the streams, one in so many is looked into
_TRAINERS = """
import sys, time
import halving
names = [f"live-{place:03d}" for place in range(int(sys.argv[3]))]
runs = [halving.init(project=sys.argv[2], id=name, root=sys.argv[1], system_metrics=None) for name in names]
print("ready", flush=True)
step, pause = 0, float(sys.argv[4])
while True:
    time.sleep(pause or 3600)
    for run in runs:
        run.log({f"metric_{metric}": 1.0 / (step + 1) for metric in range(10)}, step=step)
    step += 1
"""


def measure(setting: Setting) -> Part:
    """Measure one answer, idle and busy streams, then streams and dashboards together."""
    part = Part("server", "Curves and live streams over HTTP", _TEXT)
    root = str(setting.work / "store")
    rounds = setting.choose(1, 10)
    seconds = setting.choose(2, 60)
    streams = setting.choose(4, 200)
    dashboards = setting.choose(2, 50)
    live = setting.choose(3, LIVE)
    server = partial(running_server, settled=setting.choose(0, 3))
    count = setting.choose(10, RUNS)
    runs = in_child(
        "benchmarks.stores:write_runs", root=root, runs=count, metrics=METRICS, points=POINTS, segments=1
    )
    in_child("benchmarks.stores:compact", root=root, runs=runs)
    setting.settle()
    answers = Table(
        ["answer", "MB", "server CPU, s", "s"], [], "The first answer of a server that has read no curve yet"
    )
    for title, keys in (("one metric", 1), ("ten metrics", METRICS)):
        figures = []
        for _ in range(rounds):
            with server(root) as (process, port):
                figures.append(
                    _measure_answer(process, port, runs, [f"metric_{place}" for place in range(keys)])
                )
        bytes_, cpu, wall = zip(*figures, strict=True)
        answers.rows.append(
            [f"{title} of {count} runs", number(statistics.median(bytes_) / 1e6), spread(cpu), spread(wall)]
        )
        if keys == 1:
            part.targets.append(
                Target(f"a metric of {count} runs x {POINTS:,} points: server CPU", "s", list(cpu), 0.2)
            )
            part.targets.append(
                Target(
                    f"a metric of {count} runs x {POINTS:,} points: size",
                    "MB",
                    [size / 1e6 for size in bytes_],
                    1.3,
                )
            )
    columns = [
        "load",
        "server, share of a core",
        "events",
        "a point's age, p99, s",
        "answers",
        "p50, s",
        "p99, s",
    ]
    loads = Table(columns, [], f"For {seconds} s each")
    for title, pause, watchers, askers in (
        (f"{streams} streams, idle runs", 0.0, streams, 0),
        (f"{streams} streams", 1.0, streams, 0),
        (f"{streams} streams and {dashboards} dashboards", 1.0, streams, dashboards),
    ):
        # A server that nobody has asked for anything yet: its memory is empty.
        with server(root) as (process, port), _trainers(root, live, pause):
            share, observed = _measure_load(process, port, runs, live, watchers, askers, seconds)
        waits = observed["waits"]
        age = _part_of(observed["lags"], 0.99)
        p50 = _part_of(waits, 0.5)
        p99 = _part_of(waits, 0.99)
        loads.rows.append([title, number(share), f"{observed['events']:,}", age, f"{len(waits):,}", p50, p99])
        if observed["lags"]:
            part.targets.append(
                Target(f"a point is shown after it was logged, p99, {title}", "s", [float(age)], 2.0)
            )
        if pause and not askers:
            part.targets.append(Target(f"{streams} live streams: share of a core", "", [share], 0.1))
        if waits:
            part.targets.append(
                Target(
                    f"/curves with {dashboards} dashboards and {streams} streams, p99", "s", [float(p99)], 0.3
                )
            )
    table, targets = measure_loops(setting, server)
    part.tables = [answers, loads, table]
    part.targets = [*part.targets, *targets]
    return part


def clients(
    *, process: int, port: int, runs: list[str], live: int, streams: int, dashboards: int, seconds: float
) -> dict[str, Any]:
    """Run the clients, in a process of their own: events that came, and how long each answer took."""
    return asyncio.run(_clients(process, port, runs, live, streams, dashboards, seconds))


async def _clients(
    process: int, port: int, runs: list[str], live: int, streams: int, dashboards: int, seconds: float
) -> dict[str, Any]:
    observed: dict[str, Any] = {"events": 0, "waits": [], "lags": [], "ready": 0}
    tasks = [asyncio.create_task(_watch(port, live, place, observed)) for place in range(streams)]
    while observed["ready"] < streams:
        await asyncio.sleep(0.1)
    observed["events"] = 0
    observed["lags"] = []
    tasks += [asyncio.create_task(_ask(port, runs, place, observed)) for place in range(dashboards)]
    began = time.monotonic()
    cpu = cpu_of(process)
    await asyncio.sleep(seconds)
    observed["share"] = (cpu_of(process) - cpu) / (time.monotonic() - began)
    await end_clients(tasks)
    return observed


async def _watch(port: int, live: int, place: int, observed: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    chosen = [("run", f"{PROJECT}/live-{(place + other) % live:03d}") for other in range(min(10, live))]
    query = urlencode([*chosen, ("key", "metric_0")])
    writer.write(f"GET /api/v1/live?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    kind = b""
    while line := await reader.readline():
        if line.startswith(b"data:") and kind == b"event: points\n" and place % _TIMED == 0:
            observed["lags"].append(time.time() - json.loads(line[5:])["t"][-1])
        if line.startswith(b"event:"):
            kind = line
        observed["ready"] += line == b"event: ready\n"
        observed["events"] += line == b"event: points\n"


async def _ask(port: int, runs: list[str], place: int, observed: dict[str, Any]) -> None:
    source = random.Random(place)
    client = Client(port)
    tags: dict[str, str] = {}
    await asyncio.sleep(source.uniform(0, _THINK))
    while True:
        low = source.randrange(POINTS // 2)
        zoom = {}
        if source.random() < 0.3:
            zoom = {"low": low, "high": low + source.randrange(50, POINTS // 2)}
        body = json.dumps(
            {
                "runs": [f"{PROJECT}/{run}" for run in runs],
                "keys": [f"metric_{source.randrange(METRICS)}"],
                **zoom,
            }
        )
        began = time.monotonic()
        condition = {}
        if body in tags:
            condition = {"If_None_Match": tags[body]}
        reply = await client.post("/api/v1/curves", body, Accept=BINARY, **condition)
        observed["waits"].append(time.monotonic() - began)
        tags[body] = reply.headers["etag"]
        await asyncio.sleep(source.expovariate(1 / _THINK))


def _part_of(seconds: Sequence[float], part: float) -> str:
    """The value that a share of the sorted ones lies below."""
    if not seconds:
        return "-"
    place = min(len(seconds) - 1, int(len(seconds) * part))
    return number(sorted(seconds)[place])


def _measure_load(
    process: int, port: int, runs: list[str], live: int, streams: int, dashboards: int, seconds: float
) -> tuple[float, Any]:
    load = {"live": live, "streams": streams, "dashboards": dashboards, "seconds": seconds}
    observed = in_child("benchmarks.server:clients", process=process, port=port, runs=runs, **load)
    return observed["share"], observed


def _measure_answer(
    process: int, port: int, runs: Sequence[str], keys: list[str]
) -> tuple[int, float, float]:
    """Bytes, server CPU and time of one answer that has every point."""
    body = json.dumps({"runs": [f"{PROJECT}/{run}" for run in runs], "keys": keys}).encode()
    headers = {"Accept": BINARY, "Content-Type": "application/json"}
    cpu = cpu_of(process)
    began = time.monotonic()
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/curves", body, headers)
    ) as answer:
        size = len(answer.read())
    return size, cpu_of(process) - cpu, time.monotonic() - began


@contextmanager
def _trainers(root: str, live: int, pause: float) -> Iterator[None]:
    command = [sys.executable, "-c", _TRAINERS, root, PROJECT, str(live), str(pause)]
    process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
