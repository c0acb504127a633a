"""Warm starts: the finished trials of earlier sweeps, mapped to the space of a new one.

A trial counts if its params are a point of the new space. Parameters that the new space does not have are
left out, and constants must agree. A value that is out of range or off a step, or a broken constraint, drops
the trial.
"""

from collections.abc import Collection
from itertools import islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import Catalog, RungResultRow, SweepRow
from resources.search.rules import violation
from resources.search.state import Result
from resources.search.suggestions.suggester import Earlier
from resources.sweep_spec import SweepSpec, stored_spec
from resources.sweep_spec.points import active, order, problems_of
from resources.sweep_spec.sweep import Objective
from resources.tenancy.projects import all_names_of

_ENDED = ("evaluating", "finished", "rejected", "held", "failed")
_AUTO_SWEEPS = 5  # The newest ones that fit: older ones say less about the present code and data.


def warm_start_sources(
    catalog: Catalog, spec: SweepSpec, projects: Collection[str] | None = None
) -> list[str]:
    """Ids of the sweeps to learn from: the named ones, or for ``auto`` the newest ones that fit.

    Args:
        projects: the projects that the user may see; with None all.

    Raises:
        InvalidInput: a named sweep does not exist, has not ended, or does not fit.
    """
    with catalog.read() as session:
        in_projects = []
        if projects is not None:
            in_projects = [SweepRow.project.in_(all_names_of(session, projects))]
        if spec.warm_start == "auto":
            query = (
                select(SweepRow)
                .where(SweepRow.status.in_(_ENDED), *in_projects)
                .order_by(SweepRow.created_at.desc())
            )
            fitting = (
                row.id for row in session.scalars(query) if _misfit(catalog, session, row, spec) is None
            )
            return list(islice(fitting, _AUTO_SWEEPS))
        for sweep in spec.warm_start or []:
            row = session.scalar(select(SweepRow).where(SweepRow.id == sweep, *in_projects))
            misfit: str | None = f"no sweep {sweep!r} in the catalog"
            if row:
                misfit = _misfit(catalog, session, row, spec)
            if misfit:
                raise InvalidInput(
                    f"warm_start = {sweep!r} is not accepted: {misfit}; leave it out, or give auto to take "
                    "whatever fits"
                )
        return list(spec.warm_start or [])


def earlier_trials(catalog: Catalog, session: Session, row: SweepRow, spec: SweepSpec) -> list[Earlier]:
    """The trials that a sweep learns from; they are the same in every process, because their sweeps ended."""
    return [
        trial
        for source in row.warm_start or []
        for trial in _map_trials(catalog, session, catalog.sweep(session, source), spec)[0]
    ]


def _misfit(catalog: Catalog, session: Session, row: SweepRow, spec: SweepSpec) -> str | None:
    """Why nothing can be learned from a sweep; None if something can."""
    if row.status not in _ENDED:
        return f"it is {row.status}, and only a sweep whose search has ended stays as it is"
    try:
        earlier = stored_spec(row.spec)
    except InvalidInput as error:
        return f"its spec is not readable any more ({error})"
    if earlier.trainable != spec.trainable:
        return f"its trainable is {earlier.trainable}, not {spec.trainable}"
    if spec.trainable is None and earlier.name != spec.name:  # Only the name says that the same is trained.
        return f"neither has a trainable, and its name is {earlier.name}, not {spec.name}"
    for mine, theirs in zip(spec.objectives, earlier.objectives, strict=False):
        if (mine.metric, mine.direction, mine.summary) != (theirs.metric, theirs.direction, theirs.summary):
            return f"its objective is {_describe(theirs)}, not {_describe(mine)}"
    if len(earlier.objectives) < len(spec.objectives):
        return f"it has {len(earlier.objectives)} objectives, not {len(spec.objectives)}"
    trials, problems = _map_trials(catalog, session, row, spec)
    if trials:
        return None
    if problems:
        return f"none of its trials fits ({problems[0]})"
    return "it has no trial with a result"


def _describe(objective: Objective) -> str:
    return f"{objective.direction} {objective.metric} ({objective.summary})"


def _map_trials(
    catalog: Catalog, session: Session, row: SweepRow, spec: SweepSpec
) -> tuple[list[Earlier], list[str]]:
    """Map a sweep's trials to the new space, each with its last result.

    Returns:
        The trials, and why others were dropped.
    """
    last: dict[int, RungResultRow] = {}
    results = select(RungResultRow).where(RungResultRow.sweep == row.id, RungResultRow.value.is_not(None))
    for result in session.scalars(results.order_by(RungResultRow.trial, RungResultRow.rung)):
        last[result.trial] = result
    mapped = []
    problems = []
    for trial in catalog.trials(session, row.id):
        if trial.number not in last or trial.final is not None:
            # The final training reports metrics of data that it was trained on.
            continue
        params = _params_in_space(trial.params, spec)
        if misfits := problems_of(spec, params):
            problems.append(misfits[0])
            continue
        result = last[trial.number]
        metrics: dict[str, Any] = result.metrics or {spec.objective.metric: result.value}
        if missing := [
            name
            for name in [*(objective.metric for objective in spec.objectives), *spec.bounds]
            if name not in metrics
        ]:
            problems.append(f"{missing[0]} was not recorded at its rungs")
            continue
        values = tuple(metrics[objective.metric] for objective in spec.objectives)
        mapped.append(Earlier(params, result.epochs, Result(values, violation(spec, metrics))))
    return mapped, problems


def _params_in_space(params: dict[str, Any], spec: SweepSpec) -> dict[str, Any]:
    """The params that the new space has; constants that the earlier sweep did not name are filled in."""
    projected: dict[str, Any] = {}
    for name in order(spec.space):
        parameter = spec.space[name]
        if name in params:
            projected[name] = params[name]
        elif parameter.is_fixed and active(spec.space, name, projected):
            projected[name] = parameter.value
    return projected
