"""The default view of the table of runs: a sweep's objective and the params it varies, the best run first."""

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from halving.query.run_filter import Field
from resources.catalog import RunNameRow, RunRow, RunValueRow, SweepRow
from resources.sweep_spec import SweepSpec, stored_spec

_NEWEST = 20  # sweeps that are looked at
_MAX_PARAMS = 7  # columns that fit into a table beside the objective


class FirstView(NamedTuple):
    """A view of the table.

    Attributes:
        filter: the order by the objective; "", for the newest run first, if sweeps have different ones.
        columns: the fields as a filter names them, the objective before params.
    """

    filter: str
    columns: list[str]


def first_view(session: Session, projects: Collection[str] | None) -> FirstView | None:
    """The view for the newest suitable sweep; None if there is none.

    A sweep is suitable if it varies a param, and if one of its runs has a value of the objective.

    Args:
        projects: the projects whose sweeps count; None for all.
    """
    statement = (
        select(SweepRow.id, SweepRow.spec)
        .order_by(SweepRow.created_at.desc(), SweepRow.id.desc())
        .limit(_NEWEST)
    )
    if projects is not None:
        statement = statement.where(SweepRow.project.in_(projects))
    sweeps = [(sweep, _spec_of(spec)) for sweep, spec in session.execute(statement)]
    specs = [
        spec
        for sweep, spec in sweeps
        if spec is not None and _varied_params(spec) and _is_measured(session, sweep, spec.objective.metric)
    ]
    if not specs:
        return None
    columns = [str(field) for field in _columns(specs[0])]
    orders = {_order_by(spec) for spec in specs}
    if len(orders) > 1:
        return FirstView("", columns)
    return FirstView(orders.pop(), columns)


def _spec_of(stored: object) -> SweepSpec | None:
    """A sweep's spec; None if another version of Halving wrote it in a form that this one cannot read."""
    try:
        return stored_spec(stored)
    except InvalidInput:
        return None


def _is_measured(session: Session, sweep: str, metric: str) -> bool:
    values = (
        select(RunValueRow.run_id)
        .join(RunRow, RunRow.id == RunValueRow.run_id)
        .join(RunNameRow, RunNameRow.id == RunValueRow.name_id)
        .where(
            RunRow.sweep == sweep,
            RunRow.lifecycle == "active",
            RunNameRow.kind == "metrics",
            RunNameRow.name == metric,
        )
    )
    return session.execute(values.limit(1)).first() is not None


def _objective(spec: SweepSpec) -> Field:
    if spec.objective.summary == "best":
        return Field("metrics", spec.objective.metric, "best")
    return Field("metrics", spec.objective.metric, "last")


def _order_by(spec: SweepSpec) -> str:
    order = f"order by {_objective(spec)}"
    if spec.objective.maximize:
        order += " desc"
    return order


def _columns(spec: SweepSpec) -> list[Field]:
    return [_objective(spec), *(Field("params", name) for name in _varied_params(spec)[:_MAX_PARAMS])]


def _varied_params(spec: SweepSpec) -> list[str]:
    """The params that differ between a sweep's trials; a training run has none."""
    return [
        name
        for name, parameter in spec.space.items()
        if parameter.range is not None or len(parameter.choices or []) > 1
    ]
