"""What a page says beside its curves: of the runs of a view, of one run, or of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from halving.query.run_filter import Field
from halving.store.store import Store
from resources.catalog import Catalog
from server.sharing.notes import read_notes
from server.sharing.run_record import read_record, row_of
from server.sharing.runs import ChosenRuns, choose_metrics, choose_runs, indexed_run
from server.sharing.sweep_record import read_sweep
from server.sharing.target import Target
from server.sharing.view import MAX_RUNS, View, parse_view

_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a page holds beside its curves.

    Attributes:
        filter: the text of the filter that chose the runs; None of a single run.
        total: how many runs the filter chooses.
        left_out: what is not on the page, in sentences.
        drawing: how the charts begin.
        columns: of the table of runs, as a filter names them; params that differ and metrics come besides.
        group: the field by which the charts' lines are of groups; empty: each run has its own.
        rows: the runs, see :class:`server.sharing.runs.ChosenRuns`.
        metrics: the names of those that have a chart.
        other_metrics: how many others the runs have.
        params: the names of those that differ between the runs.
        notes: on the runs, and on the sweep of a page that shows one, newest first.
        record: of a single run, what its record says.
        sweep: of a sweep, its trials, rungs and scores.
    """

    title: str
    filter: str | None
    total: int
    left_out: list[str]
    drawing: dict[str, Any]
    columns: list[str]
    group: str
    rows: list[dict[str, Any]]
    metrics: list[str]
    other_metrics: int
    params: list[str]
    notes: list[dict[str, Any]]
    record: dict[str, Any] | None = field(default=None)
    sweep: dict[str, Any] | None = field(default=None)


def contents_of(store: Store, catalog: Catalog, target: Target) -> Contents:
    """What a page of a target says.

    Raises:
        InvalidInput: the target is not accepted.
        NotFound: it is not there, or of none of the target's projects.
    """
    if target.kind == "run":
        return _of_run(store, catalog, target)
    if target.kind == "sweep":
        return _of_sweep(store, catalog, target)
    view = parse_view(target.name)
    return _of_runs(catalog, target, view, view.filter or "all runs")


def _of_run(store: Store, catalog: Catalog, target: Target) -> Contents:
    project, _, run = target.name.partition("/")
    target.check(project, f"run {target.name!r}")
    record, left_out = read_record(store, catalog, project, run)
    row = indexed_run(catalog, project, run) or row_of(record)
    chosen = ChosenRuns([row], 1, left_out)
    contents = _contents(catalog, target, View(), chosen, None, target.name)
    return Contents(**{**vars(contents), "record": record})


def _of_sweep(store: Store, catalog: Catalog, target: Target) -> Contents:
    sweep = read_sweep(store, catalog, target)
    quoted = target.name.replace("'", "''")
    objective = str(Field("metrics", sweep["objective"]))
    view = View(filter=f"sweep = '{quoted}' order by trial", columns=(objective,), top=MAX_RUNS)
    contents = _of_runs(catalog, target, view, target.name)
    return Contents(**{**vars(contents), "sweep": sweep})


def _of_runs(catalog: Catalog, target: Target, view: View, title: str) -> Contents:
    return _contents(catalog, target, view, choose_runs(catalog, target, view), view.filter, title)


def _contents(
    catalog: Catalog, target: Target, view: View, chosen: ChosenRuns, text: str | None, title: str
) -> Contents:
    metrics = choose_metrics(chosen.rows, target, view)
    sweep = None
    if target.kind == "sweep":
        sweep = target.name
    notes = read_notes(catalog, [row["id"] for row in chosen.rows], sweep)
    left_out = [*chosen.left_out, *notes.left_out]
    if metrics.others:
        left_out.append(_others(metrics.others))
    return Contents(
        title=target.title or title,
        filter=text,
        total=chosen.total,
        left_out=left_out,
        drawing=view.drawing(),
        columns=list(view.columns),
        group=view.group,
        rows=chosen.rows,
        metrics=metrics.names,
        other_metrics=len(metrics.others),
        params=differing([row["params"] for row in chosen.rows]),
        notes=notes.notes,
    )


def differing(values: Sequence[dict[str, Any]]) -> list[str]:
    """The names that do not have the same value everywhere, in order of appearance."""
    names = dict.fromkeys(name for row in values for name in row)
    return [name for name in names if len({_comparable(row.get(name, _ABSENT)) for row in values}) > 1]


def _comparable(value: Any) -> Any:
    """A value that is equal to others of its type alone: true is not 1."""
    return type(value).__name__, repr(value)


def _others(names: Sequence[str]) -> str:
    listed = ", ".join(names[:20])
    more = ""
    if len(names) > 20:
        more = f" and {len(names) - 20} more"
    return f"curves of {listed}{more}"
