"""Filling a catalog with sweeps fast: one is searched in memory by the real rules, and written in bulk."""

import random
import time
from typing import Any

from benchmarks.search_scale import spec_of

_STRATEGY = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 27}}
# beside x, as many as sweeps usually have
_SPACE = {f"x{place}": {"float": {"low": 0.0, "high": 1.0}} for place in range(1, 8)}
LEASE = 86_400.0  # seconds: no lease runs out while somebody measures
_AT_ONCE = 5_000  # rows in a statement


def fill(
    url: str,
    *,
    sweeps: int,
    started: int,
    running: int,
    more: int,
    driver: str = "job",
    concurrency: int | None = None,
    first: int = 0,
    projects: int = 1,
) -> list[str]:
    """Open sweeps and return their ids; in a process of its own.

    Args:
        started: trials of each sweep that have been started.
        running: those of them that a worker has.
        more: trials of each sweep that may still be started.
        concurrency: trials of each sweep that may run at once.
        first: number of the first sweep, where the catalog has some.
        projects: that the sweeps are of in turn, by :func:`project_of`.
    """
    from sqlalchemy import insert

    from resources.catalog import Catalog
    from resources.catalog.tables import AttemptRow, RungResultRow, SnapshotRow, SweepRow, TrialRow
    from resources.scheduling.sweeps import open_sweep
    from resources.sweep_spec import parse_spec

    catalog = Catalog(url)
    ids = []
    with catalog.write() as session:
        session.merge(SnapshotRow(**_snapshot()))
    for number in range(first, first + sweeps):
        changes = {"max_trials": started + more, "seed": number, "concurrency": concurrency or running + more}
        spec = parse_spec(
            spec_of(_STRATEGY, project=project_of(number, projects), **changes)
            | {"space": {"x": _SPACE["x1"], **_SPACE}}
        )
        if number == first:
            rows = _rows(spec, started, running)
        sweep = open_sweep(catalog, spec, "sha256:bench", driver=driver, commit=None).id
        ids.append(sweep)
        with catalog.write() as session:
            for table, values in zip((TrialRow, AttemptRow, RungResultRow), rows, strict=True):
                for at in range(0, len(values), _AT_ONCE):
                    session.execute(
                        insert(table), [{**row, "sweep": sweep} for row in values[at : at + _AT_ONCE]]
                    )
            session.get_one(SweepRow, sweep).revision = 1
    if catalog.engine.dialect.name == "postgresql":
        with catalog.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # as the server would have done by itself while these were searched
            connection.exec_driver_sql("VACUUM ANALYZE")
    catalog.close()
    return ids


def project_of(sweep: int, projects: int) -> str:
    """The project of a sweep by its number."""
    return f"bench-{sweep % projects:03d}"


def _rows(
    spec: Any, started: int, running: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of trials, attempts and results of a search in progress, without their sweep."""
    from resources.catalog import utcnow

    state, decided = _search(spec, started, running)
    source = random.Random(1)
    now = utcnow()
    lease = time.time() + LEASE
    trials = []
    attempts = []
    results = []
    for trial in state.trials:
        runs = trial.status == "running"
        params = {name: source.random() for name in ("x", *_SPACE)}
        where = {
            "number": trial.number,
            "status": trial.status,
            "attempt": 1,
            "revision": 1,
            "seconds": 60.0,
            "params": params,
        }
        held = {"worker": "bench", "lease_until": lease}
        ended = {"ended_at": None, "outcome": None}
        if not runs:
            held = {"worker": None, "lease_until": None}
            ended = {"ended_at": now, "outcome": decided[trial.number]}
        trials.append({**where, **held, "checkpoint": "sha256:bench"})
        attempts.append(
            {"trial": trial.number, "attempt": 1, "rung": 0, "worker": "bench", "started_at": now, **ended}
        )
        for rung, result in enumerate(trial.results):
            reached = {
                "trial": trial.number,
                "rung": rung,
                "epochs": state.rules.ladder(trial.number)[rung],
                "attempt": 1,
                "seconds": 60.0,
            }
            reached |= {
                "checkpoint": "sha256:bench",
                "decision": decided[trial.number],
                "reached_at": now,
                "materialized": True,
            }
            results.append(
                {**reached, "value": result.value, "metrics": {"score": result.value}, "revision": 1}
            )
    return trials, attempts, results


def _search(spec: Any, started: int, running: int) -> tuple[Any, dict[int, str]]:
    """A search with so many trials started and running, and the last decision about each other trial."""
    from resources.search.decide import Continue, Idle, Reached, decide
    from resources.search.rules import rules_of
    from resources.search.state import Result, SearchState

    state = SearchState(rules_of(spec), started)
    source = random.Random(0)
    at_work: list[int] = []
    decided: dict[int, str] = {}
    while len(state.trials) < started or len(at_work) > running:
        if len(state.trials) < started and len(at_work) <= running:
            decision, trial = decide(state, Idle())
            state.put(trial)  # type: ignore[arg-type]  # there are trials to start, so one is given
            at_work.append(decision.trial)  # type: ignore[union-attr]
            continue
        number = at_work.pop(source.randrange(len(at_work)))
        decision, trial = decide(state, Reached(number, Result((source.gauss(number % 97 / 97, 0.2),))))
        state.put(trial)  # type: ignore[arg-type]
        decided[number] = type(decision).__name__.lower()
        if isinstance(decision, Continue):
            at_work.append(number)
    return state, decided


def _snapshot() -> dict[str, Any]:
    from resources.catalog import utcnow

    words = {
        "digest": "sha256:bench",
        "name": "points",
        "schema_sha256": "",
        "target": "label",
        "source": "bench",
        "transform_sha256": "",
    }
    return {**words, "rows": 30, "bytes": 1, "splits": {"train": 30}, "created_at": utcnow()}
