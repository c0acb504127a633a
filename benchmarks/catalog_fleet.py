"""A client of a catalog that is all workers of some sweeps, in projects that share the machines."""

import random
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarks.catalog_fill import LEASE, project_of
from benchmarks.catalog_loop import Loop, scheduler_of

if TYPE_CHECKING:
    from resources.catalog import Catalog


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
