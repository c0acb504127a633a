"""The runs of a page: which they are, what the index has of each, and which metrics become curves."""

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.query.json_values import jsonable
from halving.query.run_filter import Field
from halving.query.run_filter_parser import parse_fields, parse_filter
from resources.analysis.run_index.project_names import with_all_names
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.select import select_page, select_run, values_of
from resources.catalog import Catalog
from server.sharing.secret_values import without_secrets
from server.sharing.target import Target
from server.sharing.view import MAX_RUNS, View

MAX_METRICS = 10
"""Of a page that is not told which."""
MAX_NAMED_METRICS = 50
_SYSTEM = "system/"
_ROW = ("id", "project", "run", "status", "started", "ended", "seconds", "epoch", "sweep", "trial", "seed")
_CLOSE = 3  # names in a message


class ChosenRuns(NamedTuple):
    """The runs of a page.

    Attributes:
        rows: of each what the index has, with ``params``, ``metrics`` (``last``, ``min`` and ``max``),
            ``tags`` and ``columns``, which are the view's, in the order of the view.
        total: how many runs the filter chooses.
        left_out: why some of them are not on the page, in sentences.
    """

    rows: list[dict[str, Any]]
    total: int
    left_out: list[str]


class ChosenMetrics(NamedTuple):
    """The metrics of a page's charts, and how many others its runs have."""

    names: list[str]
    others: list[str]


def choose_runs(catalog: Catalog, target: Target, view: View) -> ChosenRuns:
    """The runs that a view shows, as far as they are of the target's projects.

    Raises:
        NotFound: none is there.
    """
    projects = None
    if target.projects is not None:
        projects = sorted(target.projects)
    left_out = []
    count = min(view.top, MAX_RUNS)
    with reading(catalog) as session:
        chosen = with_all_names(session, parse_filter(view.filter))
        page = select_page(
            session,
            chosen,
            columns=parse_fields(",".join(filter(None, (*view.columns, view.group)))),
            projects=projects,
            limit=max(1, count),
        )
        hidden = set(view.hidden)
        rows = [row for row in page.runs[:count] if row["id"] not in hidden]
        rows += _besides(session, target, view, {row["id"] for row in rows})
        if len(rows) > MAX_RUNS:
            left_out.append(f"{len(rows) - MAX_RUNS} runs of the view: a page has at most {MAX_RUNS}")
            rows = rows[:MAX_RUNS]
        with_values = [_with_values(session, row) for row in rows]
    if not with_values and target.kind == "view":
        raise NotFound(f"no run is shown by {view.filter!r}: a page needs one at least")
    if page.total > count:
        left_out.append(f"{page.total - count} of {page.total} runs of the filter")
    return ChosenRuns(with_values, page.total, left_out)


def indexed_run(catalog: Catalog, project: str, run: str) -> dict[str, Any] | None:
    """What the index has of one run, as :class:`ChosenRuns` has it; None until it is there."""
    with reading(catalog) as session:
        row = select_run(session, project, run)
        if row is None:
            return None
        return _with_values(session, row)


def choose_metrics(rows: Sequence[dict[str, Any]], target: Target, view: View) -> ChosenMetrics:
    """Which metrics the page has curves of, and the other ones of its runs.

    Raises:
        InvalidInput: the target names one that none of the runs has, or too many.
    """
    counts = Counter(name for row in rows for name in row["metrics"])
    if target.metrics:
        _check_metrics(target.metrics, counts)
        names = list(dict.fromkeys(target.metrics))
        return ChosenMetrics(names, sorted(set(counts) - set(names)))
    searched = view.search.strip().lower()
    names = [name for name in counts if searched in name.lower() and name.startswith(_SYSTEM) == view.system]
    first = _named_in(view)
    names.sort(key=lambda name: (first.get(name, len(first)), -counts[name], name))
    return ChosenMetrics(names[:MAX_METRICS], sorted(set(counts) - set(names[:MAX_METRICS])))


def _besides(session: Session, target: Target, view: View, present: set[str]) -> Iterable[dict[str, Any]]:
    """Runs that are shown beside those of the filter; one that is gone, or nobody's here, is none."""
    for name in view.besides:
        project, _, run = name.partition("/")
        if name in present or (target.projects is not None and project not in target.projects):
            continue
        row = select_run(session, project, run)
        if row is not None:
            yield row


def _with_values(session: Session, row: dict[str, Any]) -> dict[str, Any]:
    values = values_of(session, row["project"], row["run"])
    return without_secrets(
        jsonable({**{name: row[name] for name in _ROW}, "columns": row["values"], **values})
    )


def _check_metrics(metrics: Sequence[str], counts: Counter[str]) -> None:
    if len(metrics) > MAX_NAMED_METRICS:
        raise InvalidInput(
            f"metrics of {len(metrics)} names is not accepted: give at most {MAX_NAMED_METRICS}"
        )
    for name in metrics:
        if name not in counts:
            close = get_close_matches(name, counts, _CLOSE) or sorted(counts)[:_CLOSE]
            raise InvalidInput(
                f"metrics {name!r} is not accepted: none of the runs has it; they have {', '.join(close)}"
            )


def _named_in(view: View) -> dict[str, int]:
    """The metrics that the view's columns and order name, which come first."""
    fields: list[Field] = [order.field for order in view.runs.order]
    fields += parse_fields(",".join(view.columns))
    names = [field.name for field in fields if field.kind == "metrics"]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
