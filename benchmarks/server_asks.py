"""How long a loop waits for a suggestion over HTTP while a thousand loops poll one server."""

import asyncio
import json
import random
import time
from typing import Any

from benchmarks.http_client import Client, end_clients
from benchmarks.machine import Setting, in_child
from benchmarks.results import Table, Target, number
from benchmarks.search_scale import spec_of
from benchmarks.server_process import cpu_of

LOOPS = 1_000
# seconds between two requests of a loop, equally distributed
MIN_PAUSE = 2.0
MAX_PAUSE = 10.0
TITLE = "Loops that ask for trials"
NOTE = f"""
Each loop sends a request every {MIN_PAUSE:g} to {MAX_PAUSE:g} s: `ask`, and when it has got a trial, `tell`
at each rung, until it has none. One study by `asha` with the random sampler, its catalog in SQLite. In the
first row no trial is left, so that every loop is told to come again.
"""


def measure_loops(setting: Setting, servers: Any) -> tuple[Table, list[Target]]:
    """Measure the answers to loops that wait and to loops that train.

    Args:
        servers: :func:`benchmarks.server_process.running_server`, with its pause.
    """
    loops = setting.choose(4, LOOPS)
    seconds = setting.choose(2, 60)
    shorter = setting.choose(10, 1)
    table = Table(
        ["load", "server, share of a core", "answer", "answers", "p50, ms", "p99, ms", "max, ms"],
        [],
        TITLE,
        NOTE,
    )
    targets = []
    for load, trials in ((f"{loops:,} loops that wait", 1), (f"{loops:,} loops that train", 90_000)):
        root = setting.work / f"asks-{trials}"
        study = in_child("benchmarks.server_asks:study", root=str(root), trials=trials)
        with servers(str(root)) as (process, port):
            arguments = {"process": process, "port": port, "study": study, "trains": trials > 1}
            figures = in_child(
                "benchmarks.server_asks:clients",
                **arguments,
                loops=loops,
                seconds=seconds,
                max_pause=MAX_PAUSE / shorter,
            )
        for answer, waits in figures["waits"].items():
            if waits:
                ordered = sorted(1000 * wait for wait in waits)
                p50, p99 = (
                    ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99)
                )
                cells = (number(figure) for figure in (p50, p99, ordered[-1]))
                table.rows.append([load, number(figures["share"]), answer, f"{len(ordered):,}", *cells])
                if answer == "a trial" and trials > 1:
                    targets.append(
                        Target(f"a suggestion over HTTP with {loops:,} polling loops, p99", "ms", [p99], 50.0)
                    )
    return table, targets


def study(*, root: str, trials: int) -> str:
    """Open a study with that many trials; in a process of its own."""
    from benchmarks.search_latency import snapshot
    from halving import Store
    from resources.catalog.opening import open_catalog
    from resources.scheduling.sweeps import open_sweep
    from resources.sweep_spec import parse_spec

    catalog = open_catalog(Store(root))
    with catalog.write() as session:
        session.add(snapshot())
    strategy = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 27}}
    opened = open_sweep(
        catalog, parse_spec(spec_of(strategy, max_trials=trials)), "sha256:bench", driver="api", commit=None
    ).id
    catalog.close()
    return opened


def clients(
    *, process: int, port: int, study: str, trains: bool, loops: int, seconds: float, max_pause: float
) -> dict[str, Any]:
    """Run the loops, in a process of their own.

    It returns the seconds of each answer by its kind, and the server's share of a core.

    Args:
        max_pause: seconds between two requests of a loop.
    """
    return asyncio.run(_clients(process, port, study, trains, loops, seconds, max_pause))


async def _clients(
    process: int, port: int, study: str, trains: bool, loops: int, seconds: float, max_pause: float
) -> dict[str, Any]:
    waits: dict[str, list[float]] = {"a trial": [], "come again": [], "a decision": []}
    tasks = [
        asyncio.create_task(_loop(port, study, place, waits, trains, max_pause)) for place in range(loops)
    ]
    await asyncio.sleep(max_pause)  # each has asked once
    for answer_waits in waits.values():
        answer_waits.clear()
    began = time.monotonic()
    cpu = cpu_of(process)
    await asyncio.sleep(seconds)
    share = (cpu_of(process) - cpu) / (time.monotonic() - began)
    await end_clients(tasks)
    return {"waits": waits, "share": share}


async def _loop(
    port: int, study: str, place: int, waits: dict[str, list[float]], trains: bool, max_pause: float
) -> None:
    source = random.Random(place)
    client = Client(port)
    await asyncio.sleep(source.uniform(0, max_pause))
    base = f"/api/v1/hpo/studies/{study}"
    assignment = None
    while True:
        if assignment is None:
            path = f"{base}/ask"
            body = ""
        else:
            result = {
                "attempt": assignment["attempt"],
                "epoch": assignment["epochs"],
                "values": {"score": source.random()},
            }
            path = f"{base}/trials/{assignment['trial']}/tell"
            body = json.dumps(result)
        began = time.monotonic()
        reply = await client.post(path, body)
        kind = "come again"
        answer = {"decision": "none"}
        if reply.status == 200:
            kind = "a trial"
            if trains:
                answer = json.loads(reply.body)
        if assignment:
            kind = "a decision"
        waits[kind].append(time.monotonic() - began)
        # What goes on has more epochs granted; any other decision takes the trial away.
        if answer.get("decision", "continue") == "continue":
            assignment = {**(assignment or {}), **answer}
        else:
            assignment = None
        await asyncio.sleep(source.uniform(max_pause * MIN_PAUSE / MAX_PAUSE, max_pause))
