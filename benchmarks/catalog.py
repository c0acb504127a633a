"""What Postgres takes of metadata from 16 clients on this machine, and how long the next trial is waited for meanwhile."""

import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.assumptions import GOES_ON, RUNG, TRIALS
from benchmarks.catalog_fill import LEASE
from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from resources.scheduling.leases import HEARTBEAT_SECONDS

CLIENTS, RUNNING = 16, 640
CALLS = TRIALS / RUNG * (2 - GOES_ON)  # a second: a decision for each rung, and a next trial where it does not go on in place
WRITES, BOUND = 2_000.0, 10.0  # a second, of all kinds; ms


class Load(NamedTuple):
    """What is asked of the catalog beside the calls, and how often and for how long that is measured."""

    what: str
    heartbeats: float  # a second
    rounds: int
    seconds: int


_ASKED = 1.02 * WRITES  # arrivals are random: asked for 2 % more, no round has fewer than what was promised
LOADS = (
    Load("calls alone", 0.0, 1, 20),
    Load(f"{_ASKED:,.0f} writes/s in all", _ASKED - CALLS, 3, 30),
    Load(f"the heartbeats of {TRIALS:,} trials", TRIALS / HEARTBEAT_SECONDS, 3, 20),
)
_WAIT_SECONDS = 180.0  # seconds that clients wait for each other
_TEXT = f"""
{CLIENTS} clients, each a process of its own with one connection, share {TRIALS:,} known trials of one sweep (`asha`, random sampler, 8
params), {RUNNING} of them running. *A write* is one transaction that is durable when the call returns, unless the table says
otherwise. *Saturated* clients write again at once. Everything else is open-loop (Poisson), and a call's time counts from the moment
when it was due, so that whoever is late waits too. *Calls* are {number(CALLS)} a second of all clients, which is what {TRIALS:,} running
trials ask for that have a rung every {RUNG:.0f} s: a client asks for a next trial (`next_work`), then for a decision at each rung
(`reached`) until that is not to go on. Heartbeats (`Scheduler.heartbeat`: the lease of one running trial) come beside them, in the
same clients. {_ASKED:,.0f} writes/s are {number(_ASKED - CALLS)} of them and the calls; {TRIALS:,} trials with one every
{HEARTBEAT_SECONDS:.0f} s make {number(TRIALS / HEARTBEAT_SECONDS)}. Where fewer are done than asked for, clients are late all the time,
and a wait says how late they came to be. Postgres runs on the same machine with its defaults (fsync on) and shares the cores with the
clients, which stay through all rounds. Optuna's storage is on the same server, with as many trials in its study:
`set_trial_user_attr` on a running trial is its smallest write, `ask` and `tell` are its next trial and result.
"""


class Loop(NamedTuple):
    """What one client does: its two kinds of calls, in seconds between two of each (0: at once; None: never)."""

    write: Callable[[], None]
    call: Callable[[], str]  # gives its kind


def measure(setting: Setting) -> Part:
    """Writes a second of saturated clients, beside others; and the wait for the next trial under more and more heartbeats."""
    from tests.postgres import INSTALLED, Postgres

    part = Part("catalog", "Writing to the catalog while trials are waited for", _TEXT)
    if not INSTALLED:
        part.missing.append("Postgres: no initdb on this machine")
        return part
    clients, trials = setting.choose(2, CLIENTS), setting.choose(60, TRIALS)
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(Path(folder), durable=True)
        try:
            ours, theirs = server.database("halving"), server.database("optuna")
            sizes = {"sweeps": 1, "known": trials, "running": setting.choose(8, RUNNING), "more": setting.choose(1_000, 5_000)}
            (sweep,) = in_child("benchmarks.catalog_fill:fill", url=ours, **sizes)
            study = in_child("benchmarks.catalog_peers:fill", url=theirs, trials=trials, running=clients)
            where = {"ours": ours, "theirs": theirs, "sweep": sweep, "study": study, "clients": clients}
            part.tables.append(_size(ours, trials))
            part.tables += _worked(part, setting, where)
        finally:
            server.stop()
    return part


def _size(url: str, trials: int) -> Table:
    """What Postgres keeps of a trial; before anything is updated."""
    import psycopg

    tables = ("trials", "attempts", "rung_results")
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        sizes = [connection.execute("SELECT pg_total_relation_size(%s)", (name,)).fetchall() for name in tables]
        rows = [connection.execute(f"SELECT count(*) FROM {name}").fetchall() for name in tables]
    cells = [number(sum(count for ((count,),) in each) / trials) for each in (sizes, rows)]
    return Table(["trials", "bytes a trial, with indexes", "rows a trial"], [[f"{trials:,}", *cells]], "What is kept")


def _worked(part: Part, setting: Setting, where: dict[str, Any]) -> list[Table]:
    """Every kind of writer in turn: saturated, and then those that have calls, open-loop."""
    saturated = Table(["what writes", "writes/s of all", "p50, ms", "p99, ms"], [], "Saturated")
    header = ["asked for", "heartbeats/s asked", "heartbeats/s done", "heartbeat p99, ms", "calls/s done"]
    header += ["next trial p50, ms", "next trial p99, ms", "decision p50, ms", "decision p99, ms"]
    waited = Table(header, [], "Next trial and decisions, with heartbeats beside them")
    rounds, clients = setting.choose(1, 3), where["clients"]
    for what, name in _WRITERS.items():
        loads = {"heartbeat": LOADS, "optuna": (Load("Optuna: `ask` and `tell`", 0.0, 1, 20),)}.get(name, ())
        stages = [{"writes": 0.0, "calls": None, "seconds": 0.5 if setting.quick else 4}] * rounds
        for load in loads:
            stages += [_stage(clients, load.heartbeats, 0.5 if setting.quick else load.seconds)] * min(load.rounds, rounds)
        found = _together(setting.work / name, {**where, "writer": name, "stages": stages})
        done = [_rate(each, "write") for each in found[:rounds]]
        saturated.rows.append([what, spread(done), *(_spread(found[:rounds], "write", share) for share in (0.5, 0.99))])
        at = rounds
        for load in loads:
            measured, at = found[at : at + min(load.rounds, rounds)], at + min(load.rounds, rounds)
            asked = number(load.heartbeats) if name == "heartbeat" else ""
            row = [load.what, asked, spread([_rate(each, "write") for each in measured]), _spread(measured, "write", 0.99)]
            row.append(spread([_rate(each, "next") + _rate(each, "decision") for each in measured]))
            waited.rows.append([*row, *(_spread(measured, kind, share) for kind in ("next", "decision") for share in (0.5, 0.99))])
            if load is LOADS[1]:
                part.targets += _promised(measured, clients)
    return [saturated, waited]


def _promised(measured: list[list[dict[str, Any]]], clients: int) -> list[Target]:
    """Both halves of the promise, of the same rounds: so many writes, and the wait among them."""
    done = [sum(_rate(each, kind) for kind in ("write", "next", "decision")) for each in measured]
    # Where nobody was answered in a round, the wait is at least as long.
    waits = [_milliseconds(each, "next", 0.99) if _rate(each, "next") else 1000 * each[0]["seconds"] for each in measured]
    load = f"Postgres, {clients} paced clients"
    return [
        Target(f"metadata writes a second, {load}", "1/s", done, WRITES, at_most=False),
        Target(f"p99 of waiting for the next trial among these writes, {load}", "ms", waits, BOUND),
    ]


def _stage(clients: int, heartbeats: float, seconds: float) -> dict[str, Any]:
    """What one client does in a round: seconds between two of a kind on average (0: again at once; None: never)."""
    return {"writes": clients / heartbeats if heartbeats else None, "calls": clients / CALLS, "seconds": seconds}


def _together(folder: Path, given: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """All clients at once, which wait for each other in ``folder``: of each stage what each client found."""
    folder.mkdir()
    with ThreadPoolExecutor(max_workers=given["clients"]) as pool:
        places = range(given["clients"])
        found = list(pool.map(lambda place: in_child("benchmarks.catalog:client", folder=str(folder), given=given, place=place), places))
    return [list(stage) for stage in zip(*found, strict=True)]


def client(folder: str, given: dict[str, Any], place: int) -> list[dict[str, Any]]:
    """One client, in a process of its own: of each stage the seconds of each call by kind, and how long all of it took.

    Raises:
        TimeoutError: another client did not come.
    """
    source = random.Random(place)
    loop = _loop(given, place, source)
    loop.write()
    if any(stage["calls"] is not None for stage in given["stages"]):
        loop.call()  # reads the whole sweep, once
    found = []
    for turn, stage in enumerate(given["stages"]):
        _meet(Path(folder), f"ready-{turn}-", place, given["clients"])
        found.append(_work(loop, stage, source))
    return found


def _meet(folder: Path, name: str, place: int, clients: int) -> None:
    (folder / f"{name}{place}").touch()
    until = time.monotonic() + _WAIT_SECONDS
    while (there := len(list(folder.glob(f"{name}*")))) < clients:
        if time.monotonic() > until:
            raise TimeoutError(f"{there} of {clients} clients were ready for {name.strip('-')} after {_WAIT_SECONDS:.0f} s")
        time.sleep(0.05)


def _work(loop: Loop, stage: dict[str, Any], source: random.Random) -> dict[str, Any]:
    spent: dict[str, list[float]] = {"write": [], "next": [], "decision": []}
    began = time.perf_counter()
    due = {kind: began + _pause(source, stage[kind]) for kind in ("writes", "calls") if stage[kind] is not None}
    while time.perf_counter() < began + stage["seconds"]:
        kind = min(due, key=lambda name: due[name])
        if (wait := due[kind] - time.perf_counter()) > 0:
            time.sleep(wait)
        said = "write" if kind == "writes" else ""
        if said:
            loop.write()
        else:
            said = loop.call()
        now = time.perf_counter()
        spent[said].append(now - due[kind])
        due[kind] = due[kind] + _pause(source, stage[kind]) if stage[kind] else now
    return {**spent, "seconds": time.perf_counter() - began}


def _loop(given: dict[str, Any], place: int, source: random.Random) -> Loop:
    from benchmarks import catalog_peers

    if given["writer"] == "heartbeat":
        return _ours(given["ours"], given["sweep"], place, given["clients"], source)
    if given["writer"] == "optuna":
        return Loop(*catalog_peers.optuna(given["theirs"], given["study"], place, source))
    return Loop(catalog_peers.bare(given["ours"], given["sweep"], place), lambda: "next")


def _ours(url: str, sweep: str, place: int, clients: int, source: random.Random) -> Loop:
    from sqlalchemy import select

    from halving.trial.messages import ReachedRung
    from resources.catalog import Catalog, TrialRow
    from resources.scheduling.assignment import Superseded
    from resources.scheduling.scheduler import Scheduler
    from resources.search.decide import Continue

    scheduler = Scheduler(Catalog(url), sweep)
    # Its clock is ahead, so that no lease runs out while clients wait for each other.
    beating = Scheduler(scheduler.catalog, sweep, clock=lambda: time.time() + LEASE)
    with scheduler.catalog.read() as session:
        filled = set(session.scalars(select(TrialRow.number).where(TrialRow.sweep == sweep, TrialRow.worker == "bench")))
    mine = [each for each in scheduler.claimed() if each.trial in filled and each.trial % clients == place]
    held: list[Any] = []  # the trial that was taken last, and the rung that it comes to next

    def beat() -> None:
        beating.heartbeat(source.choice(mine))

    def call() -> str:
        if not held:
            given: Any = scheduler.next_work(f"client-{place}")  # a trial: there are more than anybody asks for
            held[:] = [given, given.rung]
            return "next"
        taken, rung = held
        report = ReachedRung(taken.ladder[rung], {"score": taken.params["x"] + source.gauss(0.0, 0.2)}, "sha256:bench")
        try:
            goes_on = isinstance(scheduler.reached(taken, report, 60.0), Continue)
        except Superseded:  # its lease ran out while the clients waited for each other; the call is one all the same
            goes_on = False
        held[:] = [taken, rung + 1] if goes_on else []
        return "decision"

    return Loop(beat, call)


def _pause(source: random.Random, mean: float) -> float:
    return source.expovariate(1 / mean) if mean else 0.0


def _rate(found: list[dict[str, Any]], kind: str) -> float:
    """So many a second of all clients, in one round."""
    return sum(len(each[kind]) for each in found) / max(each["seconds"] for each in found)


def _milliseconds(found: list[dict[str, Any]], kind: str, share: float) -> float:
    return 1000 * _at(sorted(spent for each in found for spent in each[kind]), share)


def _spread(rounds: list[list[dict[str, Any]]], kind: str, share: float) -> str:
    """A percentile in ms, of each round; nothing where there was none of the kind."""
    some = [found for found in rounds if any(each[kind] for each in found)]
    return spread([_milliseconds(found, kind, share) for found in some]) if some else ""


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_WRITERS = {
    "bare psycopg: one prepared `UPDATE` of a lease, committed by itself (the floor)": "bare",
    "Halving: a heartbeat": "heartbeat",
    "Optuna: `RDBStorage.set_trial_user_attr`": "optuna",
}
