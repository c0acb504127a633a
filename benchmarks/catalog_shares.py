"""What handing out trials costs where projects share the machines, compared with no projects."""

import random
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.assumptions import GOES_ON, RUNG, TRIALS
from benchmarks.catalog import CALLS, CLIENTS
from benchmarks.catalog_clients import Loop, rate_of, scheduler_of, spread_of, work_together
from benchmarks.catalog_fill import LEASE, project_of
from benchmarks.machine import Setting, in_child
from benchmarks.results import Part, Table, Target, number, spread
from resources.scheduling.leases import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from resources.catalog import Catalog

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


def workers(url: str, sweeps: list[str], source: random.Random) -> Loop:
    """What one client does for all workers of its sweeps."""
    from halving.trial.messages import ReachedRung
    from resources.catalog import Catalog
    from resources.scheduling.assignment import Superseded
    from resources.search.decide import Continue, Wait

    catalog = Catalog(url)
    schedulers = {sweep: scheduler_of(catalog, sweep) for sweep in sweeps}
    # each with its sweep's scheduler, its trial, and the rung that this comes to next
    at_work: list[tuple[Any, Any, int]] = []
    waiting: deque[tuple[Any, str]] = deque()  # each with its sweep's scheduler, and its name
    reports = [0.0]  # the share of calls that are reports though somebody waits
    taken: list[Any] = []  # trials whose lease is a worker's
    for scheduler in schedulers.values():
        at_work += [(scheduler, trial, trial.rung) for trial in scheduler.claimed_attempts()]

    def begin(stage: dict[str, Any], first: bool) -> None:
        reports[:] = [stage["reports"]]
        while taken:
            trial = taken.pop()
            with suppress(Superseded):  # it has ended
                schedulers[trial.sweep].heartbeat(trial, LEASE)
        while len(waiting) < stage["waiting"]:
            scheduler, trial, _ = at_work.pop(source.randrange(len(at_work)))
            scheduler.release(trial, 1.0)
            waiting.append((scheduler, f"{trial.key} {trial.attempt}"))
        if first:
            share_places(catalog, stage["projects"], stage["places"])

    def beat() -> None:
        if at_work:
            trial = source.choice(at_work)[1]
            schedulers[trial.sweep].heartbeat(trial, LEASE)

    def call() -> str:
        asks = waiting and (not at_work or source.random() >= reports[0])
        if asks:
            return ask(*waiting.popleft())
        return report(source.randrange(len(at_work)))

    def ask(scheduler: Any, worker: str) -> str:
        trial: Any = scheduler.next_work(worker)  # there are more trials than anybody asks for
        if isinstance(trial, Wait):
            waiting.append((scheduler, worker))
            return "held back"
        at_work.append((scheduler, trial, trial.rung))
        taken.append(trial)
        return "next"

    def report(place: int) -> str:
        at_work[place], at_work[-1] = at_work[-1], at_work[place]
        scheduler, trial, rung = at_work.pop()
        said = ReachedRung(
            trial.ladder[rung], {"score": trial.params["x"] + source.gauss(0.0, 0.2)}, "sha256:bench"
        )
        if isinstance(scheduler.report_rung(trial, said, 60.0), Continue):
            at_work.append((scheduler, trial, rung + 1))
        else:
            waiting.append((scheduler, f"{trial.key} {trial.attempt}"))
        return "decision"

    return Loop(beat, call, begin)


def share_places(catalog: "Catalog", projects: int, places: int | None) -> None:
    """Let projects with weights and quotas share so many places; with None no project has a row."""
    from sqlalchemy import delete

    from resources.catalog import ProjectRow
    from resources.tenancy.projects import ALL, set_project

    if places is None:
        with catalog.write() as session:
            session.execute(delete(ProjectRow))
        return
    set_project(catalog, ALL, max_trials=places)
    for number_of in range(projects):
        set_project(
            catalog,
            project_of(number_of, projects),
            weight=1 + number_of % 3,
            max_trials=1 + 2 * places // projects,
        )
