"""Search for runs, with MLflow's own grammar of filters and orders.

Without a filter and in the usual order, which is most of what is asked, the catalog gives a page as it is.
Else it gives the candidates, without what the question does not name; they are looked at one by one as
MLflow's own package does it, and only the page is read whole.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from resources.catalog import ExperimentRow, TrackedRunRow
from server.mlflow import pages
from server.mlflow.call import Call, experiment_number
from server.mlflow.forms import info_form, run_json
from server.mlflow.grammar import its_errors, search_utils

_MAX_RUNS = 50_000
_USUAL = 1_000
_DECODER = json.JSONDecoder()
_AT_ONCE = 500  # ids in a condition
_COLUMNS = {
    "metric": TrackedRunRow.metrics,
    "parameter": TrackedRunRow.params,
    "tag": TrackedRunRow.tags,
    "dataset": TrackedRunRow.inputs,
}
_ALWAYS_READ = [
    getattr(TrackedRunRow, name)
    for name in ("id", "experiment", "name", "user", "status", "stage", "started", "ended_at")
]
_NEWEST = [(), ("attribute.start_time DESC",), ("attributes.start_time DESC",), ("start_time DESC",)]


def search(call: Call) -> bytes:
    count = pages.size(call, _USUAL, _MAX_RUNS)
    begins = pages.offset(call)
    stages = pages.stages(call, "run_view_type")
    filter_text = call.maybe_text("filter")
    orders = tuple(call.texts("order_by"))
    wanted = [experiment_number(value) for value in call.items("experiment_ids")]
    with call.state.catalog.read() as session:
        experiments = {
            row.id: row
            for part in _parts(wanted)
            for row in session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(part)))
        }
        places = {place: row.artifacts for place, row in experiments.items() if call.caller.sees(row.project)}
        chosen = select(TrackedRunRow).where(
            TrackedRunRow.experiment.in_(list(places)),
            TrackedRunRow.stage.in_(stages),
            ~TrackedRunRow.of_model,
        )
        newest = chosen.order_by(TrackedRunRow.started.desc(), TrackedRunRow.id)
        if not (filter_text or "").strip() and orders in _NEWEST:
            candidates: Sequence[TrackedRunRow] = list(
                session.scalars(newest.offset(begins).limit(count + 1))
            )
            page_rows = candidates[:count]
            more = len(candidates) > count
            following = {}
            if more:
                following = {"next_page_token": pages.token_of(begins + count)}
        else:
            ids, following = pages.page(
                _matching(session, newest, places, filter_text, orders), begins, count
            )
            page_rows = _read_whole(session, ids)
    runs = ",".join(run_json(row, places[row.experiment]) for row in page_rows)
    parts = []
    if runs:
        parts.append(f'"runs":[{runs}]')
    parts += [f'"next_page_token":{json.dumps(token)}' for token in following.values()]
    return f"{{{','.join(parts)}}}".encode()


class _Items:
    """Params, tags or metrics as stored JSON; a single item is found without parsing the others."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get(self, key: str, otherwise: Any = None) -> Any:
        # Within a key or a value these quotes would have backslashes.
        begin = f'"key":{json.dumps(key)},"value":'
        place = self._text.find(begin)
        if place < 0:
            return otherwise
        return _DECODER.raw_decode(self._text, place + len(begin))[0]


class _Metrics(_Items):
    """Metrics as stored JSON, in which values that are not finite are texts."""

    def get(self, key: str, otherwise: Any = None) -> Any:
        value = super().get(key)
        if value is None:
            return otherwise
        return float(value)


class _Searched:
    """A run in the form that MLflow's package expects.

    It reads ``run.info.start_time``, ``run.data.metrics`` and ``run.inputs.dataset_inputs``.
    """

    def __init__(self, row: Any, artifacts: str) -> None:
        self.row = row
        self._artifacts = artifacts

    @cached_property
    def info(self) -> SimpleNamespace:
        return SimpleNamespace(**{"end_time": None, **info_form(self.row, self._artifacts)})

    @property
    def data(self) -> "_Searched":
        return self

    @property
    def inputs(self) -> "_Searched":
        return self

    @cached_property
    def metrics(self) -> _Metrics:
        return _Metrics(self.row.metrics)

    @cached_property
    def params(self) -> _Items:
        return _Items(self.row.params)

    @cached_property
    def tags(self) -> _Items:
        return _Items(self.row.tags)

    @cached_property
    def dataset_inputs(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                dataset=SimpleNamespace(**logged["dataset"]),
                tags=[SimpleNamespace(**tag) for tag in logged.get("tags", [])],
            )
            for logged in json.loads(self.row.inputs)
        ]


def _matching(
    session: Session, newest: Any, places: dict[int, str], filter_text: str | None, orders: Sequence[str]
) -> list[str]:
    """The ids of the runs that match a filter, sorted."""
    utils = search_utils("SearchUtils")
    with its_errors():
        clauses = utils.parse_search_filter(filter_text)
        ordered = [utils.parse_order_by_for_search_runs(order) for order in orders]
        kinds = {clause["type"] for clause in clauses} | {kind for kind, _, _ in ordered}
        columns = [*_ALWAYS_READ, *(column for kind, column in _COLUMNS.items() if kind in kinds)]
        query = newest.with_only_columns(*columns).where(
            *(condition for clause in clauses for condition in _narrowing_conditions(clause))
        )
        runs = [_Searched(row, places[row.experiment]) for row in session.execute(query)]
        for clause in clauses:
            runs = [run for run in runs if utils._does_run_match_clause(run, clause)]
        if orders:
            runs = utils.sort(runs, list(orders))
        return [run.row.id for run in runs]


def _narrowing_conditions(clause: dict[str, Any]) -> list[ColumnElement[bool]]:
    """SQL conditions that every run matching a clause fulfils; other runs may fulfil them, too."""
    column = _COLUMNS.get(clause["type"])
    if column is None or clause["type"] == "dataset" or clause["comparator"].upper() == "IS NULL":
        return []
    text = f'"key":{json.dumps(clause["key"])},"value":'
    if clause["comparator"] == "=" and clause["type"] != "metric":
        text += json.dumps(clause["value"])
    return [column.contains(text, autoescape=True)]


def _read_whole(session: Session, ids: Sequence[str]) -> list[TrackedRunRow]:
    rows: dict[str, TrackedRunRow] = {}
    for part in _parts(ids):
        query = (
            select(TrackedRunRow).where(TrackedRunRow.id.in_(part)).execution_options(populate_existing=True)
        )
        rows |= {row.id: row for row in session.scalars(query)}
    return [rows[run] for run in ids if run in rows]


def _parts(items: Iterable[Any]) -> list[list[Any]]:
    every = list(items)
    return [every[first : first + _AT_ONCE] for first in range(0, len(every), _AT_ONCE)]
