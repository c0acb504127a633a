"""The fields, params, metrics and tags that runs have, for completion and for choosing columns."""

from collections.abc import Collection
from string import ascii_uppercase
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from halving.query.run_filter import RUN_FIELDS, RunFilter
from resources.analysis.run_index.conditions import names_of
from resources.analysis.run_index.select import choose
from resources.catalog import RunNameRow, RunRow, RunValueRow
from resources.catalog.index_tables import BOOL, NUMBER, TEXT

KINDS = ("params", "metrics", "tags")
# SQLite folds the case of these letters alone, and so does Postgres in collation C.
_FOLDED = str.maketrans({letter: letter.lower() for letter in ascii_uppercase})
_TYPES = {NUMBER: "number", TEXT: "text", BOOL: "bool"}


def select_columns(
    session: Session,
    chosen: RunFilter | None = None,
    *,
    prefix: str = "",
    projects: Collection[str] | None = None,
    limit: int = 1_000,
) -> dict[str, list[dict[str, Any]]]:
    """The fields of every run, and the names of params, metrics and tags, the most frequent first.

    Args:
        chosen: a filter, to get only names in the runs that it selects; None for all runs.
        prefix: the beginning of the names, ``lr`` or ``params.lr``; upper and lower case are the same.
        projects: the projects whose runs' names are given; None for all.
        limit: the number of names of each kind, at most.

    Returns:
        ``fields`` as ``{"name", "type", "about"}``; ``params``, ``metrics`` and ``tags`` as ``{"name",
        "count", "type"}``, where ``count`` is the number of runs that have the name, and ``type`` is
        ``number``, ``text``, ``bool`` or ``mixed``.
    """
    kinds: Collection[str] = KINDS
    begins = prefix
    kind, dot, rest = prefix.partition(".")
    if dot and kind in KINDS:
        kinds = (kind,)
        begins = rest
    fields = [
        {"name": name, "type": field.type, "about": field.about}
        for name, field in RUN_FIELDS.items()
        if kinds == KINDS and name.startswith(begins.lower())
    ]
    runs = None
    if chosen and (chosen.where or chosen.limit is not None):
        runs = choose(session, chosen, names_of(session, chosen.fields), projects)
        if chosen.limit is None:
            runs = runs.order_by(None)
    columns: dict[str, list[dict[str, Any]]] = {"fields": fields, **{kind: [] for kind in KINDS}}
    for kind in kinds:
        columns[kind] = _names(session, kind, begins, runs, projects, limit)
    return columns


def _names(
    session: Session,
    kind: str,
    begins: str,
    runs: Select[Any] | None,
    projects: Collection[str] | None,
    limit: int,
) -> list[dict[str, Any]]:
    count = func.count()
    statement = (
        select(RunNameRow.name, count, func.min(RunValueRow.type), func.max(RunValueRow.type))
        .join(RunValueRow, RunValueRow.name_id == RunNameRow.id)
        .where(RunNameRow.kind == kind)
        .group_by(RunNameRow.id, RunNameRow.name)
        .order_by(count.desc(), RunNameRow.name)
        .limit(limit)
    )
    if begins:
        folded = begins.translate(_FOLDED)
        statement = statement.where(func.lower(RunNameRow.name).startswith(folded, autoescape=True))
    if runs is not None:
        statement = statement.where(RunValueRow.run_id.in_(runs))
    elif projects is not None:
        statement = statement.join(RunRow, RunRow.id == RunValueRow.run_id).where(
            RunRow.project.in_(sorted(projects))
        )
    return [
        {"name": name, "count": runs_with, "type": _TYPES[lowest] if lowest == highest else "mixed"}
        for name, runs_with, lowest, highest in session.execute(statement)
    ]
