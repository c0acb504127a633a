"""Clients of a catalog, each a process of its own, which work at the same time in rounds."""

import random
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.catalog_fill import LEASE
from benchmarks.catalog_loop import Loop, scheduler_of
from benchmarks.machine import in_child
from benchmarks.results import spread

KINDS = ("write", "next", "decision", "held back")
"""Of calls: a write of its own; a next trial, a decision about one, and no next trial because it is not the
sweep's turn.
"""

_WAIT_SECONDS = 180.0  # seconds that clients wait for each other


def work_together(folder: Path, setting: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run all clients at once, which wait for each other in ``folder``; return their figures by stage."""
    folder.mkdir()
    with ThreadPoolExecutor(max_workers=setting["clients"]) as pool:
        places = range(setting["clients"])
        function = "benchmarks.catalog_clients:client"
        same = {"folder": str(folder), "setting": setting}
        working = [pool.submit(in_child, function, **same, place=place) for place in places]
        ended, _ = wait(working, return_when=FIRST_EXCEPTION)
        failed = [each for each in ended if each.exception()]  # the others wait for it in vain
        spent = [each.result() for each in failed or working]
    return [list(stage) for stage in zip(*spent, strict=True)]


def client(folder: str, setting: dict[str, Any], place: int) -> list[dict[str, Any]]:
    """Run one client, in a process of its own.

    It returns for each stage the seconds of each call by kind, and how long the stage took.

    Raises:
        TimeoutError: another client did not start in time.
    """
    source = random.Random(place)
    loop = _loop(setting, place, source)
    loop.write()
    if any(stage["calls"] is not None for stage in setting["stages"]):
        loop.call()  # reads the whole sweep, once
    spent = []
    for turn, stage in enumerate(setting["stages"]):
        _meet(Path(folder), f"done-{turn}-", place, setting["clients"])
        loop.begin(stage, place == 0)
        _meet(Path(folder), f"ready-{turn}-", place, setting["clients"])
        spent.append(_work(loop, stage, source))
    return spent


def _meet(folder: Path, name: str, place: int, clients: int) -> None:
    (folder / f"{name}{place}").touch()
    until = time.monotonic() + _WAIT_SECONDS
    while (there := len(list(folder.glob(f"{name}*")))) < clients:
        if time.monotonic() > until:
            raise TimeoutError(
                f"{there} of {clients} clients were ready for {name.strip('-')} after {_WAIT_SECONDS:.0f} s"
            )
        time.sleep(0.05)


def _work(loop: Loop, stage: dict[str, Any], source: random.Random) -> dict[str, Any]:
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    began = time.perf_counter()
    due = {
        kind: began + _pause(source, stage[kind]) for kind in ("writes", "calls") if stage[kind] is not None
    }
    while time.perf_counter() < began + stage["seconds"]:
        kind = min(due, key=lambda name: due[name])
        if (pause := due[kind] - time.perf_counter()) > 0:
            time.sleep(pause)
        if kind == "writes":
            said = "write"
            loop.write()
        else:
            said = loop.call()
        now = time.perf_counter()
        spent[said].append(now - due[kind])
        if stage[kind]:
            due[kind] += _pause(source, stage[kind])
        else:
            due[kind] = now
    return {**spent, "seconds": time.perf_counter() - began}


def _loop(setting: dict[str, Any], place: int, source: random.Random) -> Loop:
    from benchmarks import catalog_fleet, catalog_peers

    if setting["writer"] == "fleet":
        return catalog_fleet.workers(setting["ours"], setting["sweeps"][place :: setting["clients"]], source)
    if setting["writer"] == "heartbeat":
        return _ours(setting["ours"], setting["sweep"], place, setting["clients"], source)
    if setting["writer"] == "optuna":
        return Loop(*catalog_peers.optuna(setting["theirs"], setting["study"], place, source))
    return Loop(catalog_peers.bare(setting["ours"], setting["sweep"], place), lambda: "next")


def _ours(url: str, sweep: str, place: int, clients: int, source: random.Random) -> Loop:
    from sqlalchemy import select

    from halving.trial.messages import ReachedRung
    from resources.catalog import Catalog, TrialRow
    from resources.scheduling.assignment import Superseded
    from resources.search.decide import Continue

    scheduler = scheduler_of(Catalog(url), sweep)
    with scheduler.catalog.read() as session:
        filled = set(
            session.scalars(
                select(TrialRow.number).where(TrialRow.sweep == sweep, TrialRow.worker == "bench")
            )
        )
    mine = [
        each
        for each in scheduler.claimed_attempts()
        if each.trial in filled and each.trial % clients == place
    ]
    held: list[Any] = []  # the trial that was taken last, and the rung that it comes to next

    def beat() -> None:
        scheduler.heartbeat(source.choice(mine), LEASE)

    def call() -> str:
        if not held:
            # a trial: there are more than anybody asks for
            assignment: Any = scheduler.next_work(f"client-{place}")
            held[:] = [assignment, assignment.rung]
            return "next"
        taken, rung = held
        report = ReachedRung(
            taken.ladder[rung], {"score": taken.params["x"] + source.gauss(0.0, 0.2)}, "sha256:bench"
        )
        try:
            goes_on = isinstance(scheduler.report_rung(taken, report, 60.0), Continue)
        except Superseded:
            # its lease ran out while the clients waited for each other; the call is one all the same
            goes_on = False
        held[:] = [taken, rung + 1] if goes_on else []
        return "decision"

    return Loop(beat, call)


def _pause(source: random.Random, mean: float) -> float:
    return source.expovariate(1 / mean) if mean else 0.0


def rate_of(clients: list[dict[str, Any]], kind: str) -> float:
    """Calls of a kind per second, of all clients in one round."""
    return sum(len(each[kind]) for each in clients) / max(each["seconds"] for each in clients)


def milliseconds(clients: list[dict[str, Any]], kind: str, share: float) -> float:
    return 1000 * _at(sorted(spent for each in clients for spent in each[kind]), share)


def spread_of(rounds: list[list[dict[str, Any]]], kind: str, share: float) -> str:
    """A percentile in ms of each round; empty where there was no call of the kind."""
    some = [clients for clients in rounds if any(each[kind] for each in clients)]
    if some:
        return spread([milliseconds(clients, kind, share) for clients in some])
    return ""


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
