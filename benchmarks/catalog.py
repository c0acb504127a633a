"""Writes that Postgres takes from 16 clients, and how long they wait for the next trial meanwhile."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.assumptions import RUNG, TRIALS
from benchmarks.catalog_clients import milliseconds, rate_of, spread_of, work_together
from benchmarks.catalog_loop import CALLS, CLIENTS
from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from resources.scheduling.leases import HEARTBEAT_SECONDS

RUNNING = 640
# a second, of all kinds; ms
WRITES = 2_000.0
BOUND = 10.0


class Load(NamedTuple):
    """The load on the catalog beside the calls, and how often and how long it is measured."""

    what: str
    heartbeats: float  # a second
    rounds: int
    seconds: int


# Arrivals are random: where 2 % more are asked for, no round has fewer writes than were promised.
_TOTAL_WRITES = 1.02 * WRITES
LOADS = (
    Load("calls alone", 0.0, 1, 20),
    Load(f"{_TOTAL_WRITES:,.0f} writes/s in all", _TOTAL_WRITES - CALLS, 3, 30),
    Load(f"the heartbeats of {TRIALS:,} trials", TRIALS / HEARTBEAT_SECONDS, 3, 20),
)
_TEXT = f"""
{CLIENTS} clients, each a process of its own with one connection, share {TRIALS:,} known trials of one sweep
(`asha`, random sampler, 8 params), {RUNNING} of them running. *A write* is one transaction that is durable
when the call returns, unless the table says otherwise. *Saturated* clients write again at once. Everything
else is open-loop (Poisson), and a call's time counts from the moment when it was due, so that whoever is late
waits too. *Calls* are {number(CALLS)} a second of all clients, which is what {TRIALS:,} running trials ask
for that have a rung every {RUNG:.0f} s: a client asks for a next trial (`next_work`), then for a decision at
each rung (`reached`) until that is not to go on. Heartbeats (`Scheduler.heartbeat`: the lease of one running
trial) come beside them, in the same clients. {_TOTAL_WRITES:,.0f} writes/s are
{number(_TOTAL_WRITES - CALLS)} of them and the calls; {TRIALS:,} trials with one every
{HEARTBEAT_SECONDS:.0f} s make {number(TRIALS / HEARTBEAT_SECONDS)}. Where fewer are done than asked for,
clients are late all the time, and a wait says how late they came to be. Postgres runs on the same machine
with its defaults (fsync on) and shares the cores with the clients, which stay through all rounds. Optuna's
storage is on the same server, with as many trials in its study: `set_trial_user_attr` on a running trial is
its smallest write, `ask` and `tell` are its next trial and result.
"""


def measure(setting: Setting) -> Part:
    """Measure the writes a second of saturated clients, and the wait for trials beside heartbeats."""
    from tests.postgres import INSTALLED, Postgres

    part = Part("catalog", "Writing to the catalog while trials are waited for", _TEXT)
    if not INSTALLED:
        part.missing.append("Postgres: no initdb on this machine")
        return part
    clients = setting.choose(2, CLIENTS)
    trials = setting.choose(60, TRIALS)
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(Path(folder), durable=True)
        try:
            ours = server.database("halving")
            theirs = server.database("optuna")
            sizes = {
                "sweeps": 1,
                "started": trials,
                "running": setting.choose(8, RUNNING),
                "more": setting.choose(1_000, 5_000),
            }
            (sweep,) = in_child("benchmarks.catalog_fill:fill", url=ours, **sizes)
            study = in_child("benchmarks.catalog_peers:fill", url=theirs, trials=trials, running=clients)
            where = {"ours": ours, "theirs": theirs, "sweep": sweep, "study": study, "clients": clients}
            part.tables.append(_size(ours, trials))
            part.tables += _measure_writers(part, setting, where)
        finally:
            server.stop()
    return part


def _size(url: str, trials: int) -> Table:
    """What Postgres keeps of a trial, before anything is updated."""
    import psycopg

    tables = ("trials", "attempts", "rung_results")
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        sizes = [
            connection.execute("SELECT pg_total_relation_size(%s)", (name,)).fetchall() for name in tables
        ]
        rows = [connection.execute(f"SELECT count(*) FROM {name}").fetchall() for name in tables]
    cells = [number(sum(count for ((count,),) in each) / trials) for each in (sizes, rows)]
    return Table(
        ["trials", "bytes a trial, with indexes", "rows a trial"], [[f"{trials:,}", *cells]], "What is kept"
    )


def _measure_writers(part: Part, setting: Setting, where: dict[str, Any]) -> list[Table]:
    """Run every kind of writer: saturated, and then open-loop those that have calls."""
    saturated = Table(["what writes", "writes/s of all", "p50, ms", "p99, ms"], [], "Saturated")
    header = ["asked for", "heartbeats/s asked", "heartbeats/s done", "heartbeat p99, ms", "calls/s done"]
    header += ["next trial p50, ms", "next trial p99, ms", "decision p50, ms", "decision p99, ms"]
    waited = Table(header, [], "Next trial and decisions, with heartbeats beside them")
    rounds = setting.choose(1, 3)
    clients = where["clients"]
    for what, name in _WRITERS.items():
        loads = {"heartbeat": LOADS, "optuna": (Load("Optuna: `ask` and `tell`", 0.0, 1, 20),)}.get(name, ())
        stages = [{"writes": 0.0, "calls": None, "seconds": setting.choose(0.5, 4)}] * rounds
        for load in loads:
            stage = _stage(clients, load.heartbeats, setting.choose(0.5, load.seconds))
            stages += [stage] * min(load.rounds, rounds)
        results = work_together(setting.work / name, {**where, "writer": name, "stages": stages})
        done = [rate_of(each, "write") for each in results[:rounds]]
        saturated.rows.append(
            [what, spread(done), *(spread_of(results[:rounds], "write", share) for share in (0.5, 0.99))]
        )
        at = rounds
        for load in loads:
            measured = results[at : at + min(load.rounds, rounds)]
            at = at + min(load.rounds, rounds)
            rate = ""
            if name == "heartbeat":
                rate = number(load.heartbeats)
            row = [
                load.what,
                rate,
                spread([rate_of(each, "write") for each in measured]),
                spread_of(measured, "write", 0.99),
            ]
            row.append(spread([rate_of(each, "next") + rate_of(each, "decision") for each in measured]))
            waited.rows.append(
                [
                    *row,
                    *(
                        spread_of(measured, kind, share)
                        for kind in ("next", "decision")
                        for share in (0.5, 0.99)
                    ),
                ]
            )
            if load is LOADS[1]:
                part.targets += _targets(measured, clients)
    return [saturated, waited]


def _targets(measured: list[list[dict[str, Any]]], clients: int) -> list[Target]:
    """Both halves of the promise, in the same rounds: so many writes, and the wait among them."""
    done = [sum(rate_of(each, kind) for kind in ("write", "next", "decision")) for each in measured]
    # Where nobody was answered in a round, the wait is at least as long.
    waits = []
    for of_round in measured:
        if rate_of(of_round, "next"):
            waits.append(milliseconds(of_round, "next", 0.99))
        else:
            waits.append(1000 * of_round[0]["seconds"])
    load = f"Postgres, {clients} paced clients"
    return [
        Target(f"metadata writes a second, {load}", "1/s", done, WRITES, at_most=False),
        Target(f"p99 of waiting for the next trial among these writes, {load}", "ms", waits, BOUND),
    ]


def _stage(clients: int, heartbeats: float, seconds: float) -> dict[str, Any]:
    """What one client does in a round.

    It gives the mean seconds between two calls of a kind: 0 calls again at once, None never.
    """
    stage = {"writes": None, "calls": clients / CALLS, "seconds": seconds}
    if heartbeats:
        stage["writes"] = clients / heartbeats
    return stage


_WRITERS = {
    "bare psycopg: one prepared `UPDATE` of a lease, committed by itself (the floor)": "bare",
    "Halving: a heartbeat": "heartbeat",
    "Optuna: `RDBStorage.set_trial_user_attr`": "optuna",
}
