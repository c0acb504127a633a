"""Renamed projects in filters.

A run keeps the name that its project had, so a condition on a project has to cover all its names.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy.orm import Session

from halving.query.run_filter import And, Comparison, Condition, In, Not, Or, RunFilter
from resources.tenancy.projects import names_of


def with_all_names(session: Session, chosen: RunFilter) -> RunFilter:
    """The filter with each project replaced by every name that it has or had.

    ``like`` and the order go by the name that a run has.
    """
    if chosen.where is None or not chosen.names_project:
        return chosen
    return replace(chosen, where=by_names(chosen.where, partial(names_of, session)))


def by_names(condition: Condition, names: Callable[[str], Sequence[str]]) -> Condition:
    """The condition with each project replaced by all its names.

    Args:
        names: gives all names of a project by any of them.
    """
    if isinstance(condition, (And, Or)):
        return type(condition)(tuple(by_names(part, names) for part in condition.parts))
    if isinstance(condition, Not):
        return Not(by_names(condition.inner, names))
    if condition.field.kind != "run" or condition.field.name != "project":
        return condition
    if isinstance(condition, In):
        all_names = [name for value in condition.values for name in names(str(value))]
        return replace(condition, values=tuple(dict.fromkeys(all_names)))
    if isinstance(condition, Comparison) and condition.operator in ("=", "!="):
        same = In(condition.field, tuple(names(str(condition.value))))
        if condition.operator == "=":
            return same
        return Not(same)
    return condition
