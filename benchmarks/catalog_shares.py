"""What handing out trials costs where projects share the machines, compared with no projects."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.assumptions import GOES_ON, RUNG, TRIALS
from benchmarks.catalog_clients import rate_of, spread_of, work_together
from benchmarks.catalog_loop import CALLS, CLIENTS
from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from resources.scheduling.leases import HEARTBEAT_SECONDS

SWEEPS = 400
PROJECTS = 40
STARTS = TRIALS / RUNG * (1 - GOES_ON)  # next trials a second of so many trials
ASK_AGAIN = 1.0  # seconds after which a worker that is held back asks again
WAITING = 48  # workers that are held back where not all have a place
ALONE = "no project has a row"
ROOM = "a place for every worker"
FULL = f"{WAITING} places fewer"
SATURATED = "Saturated"
PACED = f"With the heartbeats of {TRIALS:,} trials"
_TEXT = f"""
{TRIALS:,} workers each have a trial of one of {SWEEPS} searching sweeps, in {PROJECTS} projects on Postgres;
{CLIENTS} clients, each a process with one connection, are these workers. *Decision*: one of them, by chance,
reports at its rung (`reached`). *Next trial*: its trial is paused or has ended, and the worker asks its sweep
for another (`next_work`). *No project has a row* is the catalog of who shares nothing, in turns with the
others. Else each project has a weight of 1 to 3 and a quota (`halving projects set`), and all together have a
place for every worker, or {WAITING} fewer: then a worker may be *held back*, because the free place is
another sweep's, and asks again after {ASK_AGAIN:.0f} s. *Saturated* clients do the next thing at once. Beside
the heartbeats of {TRIALS:,} trials ({number(TRIALS / HEARTBEAT_SECONDS)} a second) there are
{number(CALLS - STARTS)} decisions and {number(STARTS)} next trials a second, and those who ask again,
open-loop: a call's time counts from when it was due. All else is as in `catalog`.
"""


def measure(setting: Setting) -> Part:
    """Measure next trials without projects, with a place for everybody, and in a full fleet."""
    from tests.postgres import INSTALLED, Postgres

    part = Part("shares", "Handing out trials where projects share the machines", _TEXT)
    if not INSTALLED:
        part.missing.append("Postgres: no initdb on this machine")
        return part
    sweeps = setting.choose(4, SWEEPS)
    clients = setting.choose(2, CLIENTS)
    running = setting.choose(4, TRIALS // SWEEPS)
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(Path(folder), durable=True)
        try:
            url = server.database("halving")
            projects = setting.choose(2, PROJECTS)
            sizes = {
                "started": running + running // 4,
                "running": running,
                "more": setting.choose(1_000, 5_000),
                "projects": projects,
            }
            ids = in_child("benchmarks.catalog_fill:fill", url=url, sweeps=sweeps, **sizes)
            where = {"ours": url, "sweeps": ids, "clients": clients, "writer": "fleet"}
            _ask(
                part,
                setting,
                where,
                {"projects": projects, "workers": sweeps * running, "waiting": setting.choose(2, WAITING)},
            )
        finally:
            server.stop()
    return part


def _ask(part: Part, setting: Setting, where: dict[str, Any], sizes: dict[str, int]) -> None:
    """Run each fleet in turn, saturated and paced, for so many rounds."""
    clients = where["clients"]
    rounds = setting.choose(1, 3)
    fleets = {ALONE: None, ROOM: sizes["workers"] + clients, FULL: sizes["workers"] - sizes["waiting"]}
    stages = []
    for load in (SATURATED, PACED):
        for _ in range(rounds):
            for fleet, places in fleets.items():
                waiting = sizes["waiting"] if fleet is FULL else 0
                stages.append(
                    {
                        **_stage(load, clients, waiting / ASK_AGAIN, setting),
                        "projects": sizes["projects"],
                        "places": places,
                        "waiting": waiting // clients,
                    }
                )
    measured = iter(work_together(setting.work / "shares", {**where, "stages": stages}))
    for load in (SATURATED, PACED):
        by_fleet: dict[str, list[Any]] = {fleet: [] for fleet in fleets}
        for _ in range(rounds):
            for fleet in fleets:
                by_fleet[fleet].append(next(measured))
        part.tables.append(_table(load, by_fleet))
        if load is SATURATED:
            name = (
                f"next trials a second where {PROJECTS} projects share the machines, {clients} saturated "
                "clients"
            )
            part.targets.append(
                Target(name, "1/s", [rate_of(each, "next") for each in by_fleet[ROOM]], STARTS, at_most=False)
            )


def _stage(load: str, clients: int, again: float, setting: Setting) -> dict[str, Any]:
    """What one client does in a round; ``again`` says how often a second clients without a place ask."""
    reports = 0.0
    if again:
        reports = (CALLS - STARTS) / (CALLS + again)
    if load is SATURATED:
        return {
            "writes": None,
            "calls": 0.0,
            "reports": min(0.5, reports),
            "seconds": setting.choose(0.5, 6),
        }
    calls = clients / (CALLS + again)
    return {
        "writes": clients * HEARTBEAT_SECONDS / TRIALS,
        "calls": calls,
        "reports": reports,
        "seconds": setting.choose(0.5, 15),
    }


def _table(load: str, by_fleet: dict[str, list[Any]]) -> Table:
    header = [
        "projects",
        "next trials/s",
        "next trial p50, ms",
        "next trial p99, ms",
        "held back/s",
        "held back p99, ms",
    ]
    table = Table([*header, "decision p99, ms", "heartbeats/s done"], [], load)
    for fleet, rounds in by_fleet.items():
        rates = {
            kind: spread([rate_of(each, kind) for each in rounds]) for kind in ("next", "held back", "write")
        }
        row = [fleet, rates["next"], spread_of(rounds, "next", 0.5), spread_of(rounds, "next", 0.99)]
        row += [
            rates["held back"],
            spread_of(rounds, "held back", 0.99),
            spread_of(rounds, "decision", 0.99),
            rates["write"],
        ]
        table.rows.append(row)
    return table
