"""How long a worker waits for the catalog, for its next trial and for a decision at a rung.

The catalog has ten thousand trials.
"""

import random
import tempfile
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.search_scale import spec_of

TRIALS = 10_000
PACE = 0.25  # seconds between two calls of a client, on average
BOUND = 10.0  # ms
_TEXT = f"""
A sweep by `asha` with the random sampler has {TRIALS:,} trials in the catalog, filled in through the same
calls. Then clients, each a process of its own with its own connection, take trials and report at their rungs:
`next_work` is one call, the decision at a rung another, each one transaction that is committed when the call
returns. *Paced* clients wait {PACE * 1000:.0f} ms on average (exponential) between two calls, as training
does; the targets hold for them. *Saturated* clients call again at once, all of them: a closed loop, in which
a call also waits for those of all other clients, so that its median is the number of clients over the
throughput. Before the clock runs each client reads the sweep (*first look*) and takes one trial through its
rungs. Postgres runs on the same machine with its defaults (fsync on) and shares the cores with the clients.
"""


def measure(setting: Setting) -> Part:
    """Measure both calls on SQLite with 2 clients and on Postgres with 16, paced and saturated."""
    part = Part("decisions", "Waiting for the catalog", _TEXT)
    header = [
        "catalog",
        "clients",
        "loop",
        "call",
        "calls",
        "p50, ms",
        "p99, ms",
        "max, ms",
        "calls/s of all",
        "first look, s",
    ]
    table = Table(header, [])
    trials = setting.choose(50, TRIALS)
    for name, clients, taken in (("SQLite", 2, 250), ("Postgres", setting.choose(2, 16), 60)):
        taken = setting.choose(5, taken)
        with _catalog(name, setting.work) as url:
            if url is None:
                part.missing.append("Postgres: no initdb on this machine")
                continue
            sweep = in_child(
                "benchmarks.search_latency:fill", url=url, trials=trials, more=2 * clients * (taken + 1)
            )
            for loop, pace in (("paced", setting.choose(1, 100) / 100 * PACE), ("saturated", 0.0)):
                rows, p99 = _loop(setting.work / f"{name}-{loop}", url, sweep, clients, taken, pace)
                table.rows += [[name, str(clients), loop, *row] for row in rows]
                if pace:
                    what = f"p99 of a call to the catalog, {name}, {clients} paced clients, {trials:,} trials"
                    part.targets.append(Target(what, "ms", [p99], BOUND))
    part.tables.append(table)
    return part


def _loop(
    folder: Path, url: str, sweep: str, clients: int, taken: int, pace: float
) -> tuple[list[list[str]], float]:
    """The table's cells for both calls, and the p99 of all calls in ms.

    Clients wait for each other in ``folder``.
    """
    folder.mkdir()
    arguments = {
        "folder": str(folder),
        "url": url,
        "sweep": sweep,
        "taken": taken,
        "pace": pace,
        "clients": clients,
    }
    with ThreadPoolExecutor(max_workers=clients) as pool:
        results = list(
            pool.map(
                lambda client: in_child("benchmarks.search_latency:client", **arguments, client=client),
                range(clients),
            )
        )
    seconds = max(result["ended"] for result in results) - min(result["began"] for result in results)
    rate = sum(len(result["next"]) + len(result["decision"]) for result in results) / seconds
    rows = []
    every = []
    for call, what in (("next", "the next trial"), ("decision", "a decision")):
        spent = sorted(1000 * call_seconds for result in results for call_seconds in result[call])
        every += spent
        first = ""
        if call == "next":
            first = spread([result["first"] for result in results])
        rows.append(
            [
                what,
                f"{len(spent):,}",
                number(_at(spent, 0.5)),
                number(_at(spent, 0.99)),
                number(spent[-1]),
                number(rate),
                first,
            ]
        )
    return rows, _at(sorted(every), 0.99)


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def fill(url: str, trials: int, more: int) -> str:
    """Open a sweep, run ``trials`` of its trials, and leave ``more`` to start; return the sweep.

    In a process of its own.
    """
    from resources.catalog import Catalog
    from resources.scheduling.scheduler import Scheduler
    from resources.scheduling.sweeps import open_sweep
    from resources.sweep_spec import parse_spec

    catalog = Catalog(url)
    with catalog.write() as session:
        session.add(snapshot())
    strategy = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 27}}
    at_once = max(1, trials // 20)  # between two looks at how many there are
    spec = parse_spec(spec_of(strategy, max_trials=trials + at_once + more))
    sweep = open_sweep(catalog, spec, "sha256:bench", driver="job", commit=None).id
    scheduler = Scheduler(catalog, sweep)
    source = random.Random(0)
    while len(scheduler.state().trials) < trials:
        for _ in range(at_once):
            _one_trial(scheduler, source, 0.0, {"next": array("d"), "decision": array("d")})
    catalog.close()
    return sweep


def snapshot() -> Any:
    """A row for the snapshot ``sha256:bench``, of which there are no data."""
    from resources.catalog import SnapshotRow, utcnow

    return SnapshotRow(
        digest="sha256:bench",
        name="points",
        rows=30,
        bytes=1,
        schema_sha256="",
        target="label",
        splits={"train": 30},
        source="bench",
        transform_sha256="",
        created_at=utcnow(),
    )


def client(
    folder: str, url: str, sweep: str, taken: int, pace: float, clients: int, client: int
) -> dict[str, Any]:
    """Run a worker that takes so many trials, in a process of its own.

    It returns the seconds of each call and of its first look, its begin and end.
    """
    from resources.catalog import Catalog
    from resources.scheduling.scheduler import Scheduler

    source = random.Random(client)
    catalog = Catalog(url)
    scheduler = Scheduler(catalog, sweep)
    started = time.perf_counter()
    scheduler.running()
    first = time.perf_counter() - started
    _one_trial(scheduler, source, 0.0, {"next": array("d"), "decision": array("d")})
    (Path(folder) / f"ready-{client}").touch()
    while len(list(Path(folder).glob("ready-*"))) < clients:
        time.sleep(0.05)
    spent: dict[str, array[float]] = {"next": array("d"), "decision": array("d")}
    began = time.time()
    while len(spent["next"]) < taken:
        _one_trial(scheduler, source, pace, spent)
    ended = time.time()
    catalog.close()
    return {
        "next": list(spent["next"]),
        "decision": list(spent["decision"]),
        "first": first,
        "began": began,
        "ended": ended,
    }


def _one_trial(scheduler: Any, source: random.Random, pace: float, spent: dict[str, "array[float]"]) -> None:
    """Take a trial and report at its rungs until it is paused or done."""
    _wait(source, pace)
    started = time.perf_counter()
    assignment = scheduler.next_work("client")
    spent["next"].append(time.perf_counter() - started)
    for epochs in assignment.ladder[assignment.rung :]:
        _wait(source, pace)
        started = time.perf_counter()
        goes_on = _goes_on(scheduler, assignment, epochs, source)
        spent["decision"].append(time.perf_counter() - started)
        if not goes_on:
            return


def _goes_on(scheduler: Any, assignment: Any, epochs: int, source: random.Random) -> bool:
    """Report a noisy result at a rung, so that some trials are promoted."""
    from halving.trial.messages import ReachedRung
    from resources.search.decide import Continue

    values = {"score": assignment.params["x"] + source.gauss(0.0, 0.2) + 1 / epochs}
    return isinstance(
        scheduler.report_rung(assignment, ReachedRung(epochs, values, "sha256:bench"), 1.0), Continue
    )


def _wait(source: random.Random, pace: float) -> None:
    if pace:
        time.sleep(source.expovariate(1 / pace))


@contextmanager
def _catalog(name: str, work: Path) -> Iterator[str | None]:
    """The URL of an empty catalog on SQLite, or on a Postgres server of its own; None without Postgres."""
    from tests.postgres import INSTALLED, Postgres

    if name == "SQLite":
        yield f"sqlite:///{work}/catalog.db"
        return
    if not INSTALLED:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        # not below the work folder, which its user may not enter
        server = Postgres(Path(folder), durable=True)
        try:
            yield server.database("bench")
        finally:
            server.stop()
