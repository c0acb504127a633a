"""Metrics that passed a bound of their project's rule, and losses that are no numbers any more."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from resources.alerts.alert import Alert
from resources.catalog import RunNameRow, RunRow, RunValueRow
from resources.watch.rules import Bound, Rules
from resources.watch.runs import IS_ACTIVE

_METRICS = "metrics"
_LOSS = "loss"
_AT_ONCE = 500  # runs in a condition of a query


def alerts_of_values(session: Session, rules: Rules, revision: int, since: float) -> Iterator[Alert]:
    """Alerts of values that the index has read since a revision.

    A bound is told once for each run: a resume that repeats steps does not tell it again.

    Args:
        since: runs that ended before that are left out; in seconds since the epoch.
    """
    names = select(RunNameRow.id, RunNameRow.name).where(
        RunNameRow.kind == _METRICS,
        or_(RunNameRow.name.in_(rules.bounded_metrics), RunNameRow.name.like(f"%{_LOSS}%")),
    )
    by_id = {row.id: row.name for row in session.execute(names)}
    if not by_id:
        return
    changed = select(RunRow.id, RunRow.project, RunRow.run, RunRow.attempt).where(
        RunRow.revision > revision, IS_ACTIVE, or_(RunRow.status == "running", RunRow.ended >= since)
    )
    runs = {row.id: row for row in session.execute(changed)}
    for row, value in _values_of(session, runs, by_id):
        name = by_id[value.name_id]
        if _is_loss(name) and _is_no_number(value):
            yield _diverged(row, name)
        for bound in rules.bounds_of(row.project):
            if bound.metric == name and _passes(value, bound):
                yield _beyond(row, bound, value)


def _values_of(
    session: Session, runs: Mapping[int, Any], names: Collection[int]
) -> Iterator[tuple[Any, RunValueRow]]:
    """The values of some runs for these names, each with its run."""
    ids = list(runs)
    for first in range(0, len(ids), _AT_ONCE):
        part = ids[first : first + _AT_ONCE]
        query = select(RunValueRow).where(RunValueRow.run_id.in_(part), RunValueRow.name_id.in_(names))
        for value in session.scalars(query):
            yield runs[value.run_id], value


def _is_loss(name: str) -> bool:
    """Whether a name is that of a loss: ``loss``, ``train/loss``, ``val_loss``."""
    last = name.rpartition("/")[2].lower()
    return last == _LOSS or last.endswith(f"_{_LOSS}")


def _is_no_number(value: Any) -> bool:
    return value.number is None or math.isinf(value.number)


def _passes(value: Any, bound: Bound) -> bool:
    if bound.above is not None:
        return value.max is not None and value.max > bound.above
    return value.min is not None and bound.below is not None and value.min < bound.below


def _diverged(row: Any, name: str) -> Alert:
    run = f"{row.project}/{row.run}"
    return Alert(
        key=f"run:{run}:{row.attempt}:diverged:{name}",
        event="diverged",
        kind="run",
        subject=run,
        title=f"{run} diverged: {name} is no finite number any more",
        text="What it trains from here on is of no use: lower the learning rate, or look at its data",
        level="warn",
        project=row.project,
    )


def _beyond(row: Any, bound: Bound, value: Any) -> Alert:
    run = f"{row.project}/{row.run}"
    reached = value.max
    if bound.above is None:
        reached = value.min
    return Alert(
        key=f"run:{run}:bound:{bound}",
        event="beyond bound",
        kind="run",
        subject=run,
        title=f"{run}: {bound.metric} was {reached:g}, and the bound is {bound}",
        level="warn",
        project=row.project,
    )
