"""The sweeps of a catalog, and the intents that are not open yet, each in one line."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import Catalog, IntentRow, RungResultRow, SweepRow, TrialRow, utcnow
from resources.scheduling import intents
from resources.search.rules import max_trials
from resources.search.state import Control
from resources.sweep_spec import stored_spec
from resources.tenancy.projects import all_names_of


@dataclass(frozen=True)
class SweepLine:
    """One sweep.

    Attributes:
        status: its status; for a sweep that is not open yet, or never will be, the status of the intent:
            waiting, launched, failed or canceled.
        control: what its user wants: run, pause or stop.
        best: the first objective of the search's leading trial, whatever its Pareto front; None without a
            result.
        trials: the number of trials that its search may start.
        counts: the number of its trials in each status.
        problem: why its spec cannot be read, so that objective, direction, best and trials are None; None if
            it can be read.
        waiting: why it is not open yet, or never was; for an open sweep, why none of its trials is started: a
            quota, or the others' shares.
    """

    id: str
    name: str
    project: str
    priority: int
    status: str
    control: str
    created_at: datetime
    finished_at: datetime | None
    objective: str | None
    direction: str | None
    best: float | None
    trials: int | None
    counts: dict[str, int]
    problem: str | None
    waiting: str | None

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data, for the API."""
        return asdict(self)


def list_sweeps(
    catalog: Catalog, *, projects: Collection[str] | None = None, limit: int = 50
) -> list[SweepLine]:
    """List sweeps, the newest first, including those that are not open yet.

    Args:
        projects: the projects whose sweeps are listed, by any name that they have or had; None for all.
        limit: the number of sweeps, at most.
    """
    query = select(SweepRow).order_by(SweepRow.created_at.desc(), SweepRow.id).limit(limit)
    with catalog.read() as session:
        if projects is not None:
            projects = all_names_of(session, projects)
            query = query.where(SweepRow.project.in_(projects))
        rows = list(session.scalars(query))
        ids = [row.id for row in rows]
        counts = _counts(session, ids)
        leaders = _leaders(session, ids)
    lines = [_line(row, counts[row.id], leaders) for row in rows]
    lines += [_not_open(row) for row in intents.not_open(catalog, projects=projects, limit=limit)]
    return sorted(lines, key=lambda line: line.created_at, reverse=True)[:limit]


def _line(row: SweepRow, counts: dict[str, int], leaders: dict[tuple[str, bool], float]) -> SweepLine:
    copied = {
        name: getattr(row, name)
        for name in ("id", "name", "project", "priority", "status", "control", "created_at", "finished_at")
    }
    return SweepLine(
        **copied, waiting=row.held_back, counts=counts, **_of_spec(row.spec, row.id, row.max_trials, leaders)
    )


def _not_open(row: IntentRow) -> SweepLine:
    return SweepLine(
        id=row.sweep,
        name=row.payload["spec"]["name"],
        project=intents.project_of(row),
        priority=row.payload["spec"].get("priority", 0),
        status=row.status,
        control=Control.RUN,
        created_at=row.created_at,
        finished_at=None,
        counts={},
        waiting=intents.waits_for(row, utcnow()) or row.error,
        **_of_spec(row.payload["spec"], row.sweep, None, {}),
    )


def _of_spec(
    data: Any, sweep: str, extended: int | None, leaders: dict[tuple[str, bool], float]
) -> dict[str, Any]:
    try:
        spec = stored_spec(data)
    except InvalidInput as error:  # another version wrote it; the other sweeps are listed all the same
        return {"objective": None, "direction": None, "best": None, "trials": None, "problem": str(error)}
    return {
        "objective": spec.objective.metric,
        "direction": spec.objective.direction,
        "best": leaders.get((sweep, spec.objective.maximize)),
        "trials": extended or max_trials(spec),
        "problem": None,
    }


def _counts(session: Session, sweeps: list[str]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    query = select(TrialRow.sweep, TrialRow.status, func.count()).where(
        TrialRow.sweep.in_(sweeps), TrialRow.final.is_(None)
    )
    for sweep, status, count in session.execute(query.group_by(TrialRow.sweep, TrialRow.status)):
        counts[sweep][status] = count
    return counts


def _leaders(session: Session, sweeps: list[str]) -> dict[tuple[str, bool], float]:
    """The best value of each sweep's trials with the most epochs, by sweep and whether higher is better.

    Trials out of their bounds count only in sweeps that have no other trials.
    """
    result = RungResultRow
    has_value = (result.sweep.in_(sweeps), result.value.is_not(None))
    highest = (
        select(result.sweep, result.trial, func.max(result.rung).label("rung"))
        .where(*has_value)
        .group_by(result.sweep, result.trial)
    )
    top = highest.subquery()
    searched = (TrialRow.sweep == result.sweep) & (TrialRow.number == result.trial) & TrialRow.final.is_(None)
    infeasible = (result.violation > 0).label("infeasible")
    query = (
        select(result.sweep, infeasible, result.epochs, func.min(result.value), func.max(result.value))
        .join(
            top, (top.c.sweep == result.sweep) & (top.c.trial == result.trial) & (top.c.rung == result.rung)
        )
        .join(TrialRow, searched)
        .group_by(result.sweep, infeasible, result.epochs)
    )
    best: dict[tuple[str, bool], float] = {}
    rows = sorted(session.execute(query), key=lambda row: (bool(row[1]), -row[2]))
    for sweep, _, _, lowest, highest_value in rows:
        assert lowest is not None  # the query left such rows out
        assert highest_value is not None
        best.setdefault((sweep, False), lowest)
        best.setdefault((sweep, True), highest_value)
    return best
