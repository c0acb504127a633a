"""Search for runs, with MLflow's own grammar of filters and orders.

Without a filter and in the usual order, which is most of what is asked, the catalog gives a page as it is. Else the candidates' rows are
read without what the question does not name, looked at one by one as MLflow's own package does it, and only the page is read whole.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.catalog import ExperimentRow, TrackedRunRow
from resources.tracking.runs import of_items
from server.mlflow import pages
from server.mlflow.call import Call, experiment_number
from server.mlflow.forms import info_form, run_json
from server.mlflow.grammar import its_errors, search_utils

_MOST, _USUAL = 50_000, 1_000
_AT_ONCE = 500  # ids in a condition
_COLUMNS = {"metric": TrackedRunRow.metrics, "parameter": TrackedRunRow.params, "tag": TrackedRunRow.tags, "dataset": TrackedRunRow.inputs}
_PLAIN = [getattr(TrackedRunRow, name) for name in ("id", "experiment", "name", "user", "status", "stage", "started", "ended_at")]
_NEWEST = [(), ("attribute.start_time DESC",), ("attributes.start_time DESC",), ("start_time DESC",)]


def search(call: Call) -> bytes:
    count, begins = pages.size(call, _USUAL, _MOST), pages.offset(call)
    stages, given, orders = pages.stages(call, "run_view_type"), call.maybe_text("filter"), tuple(call.texts("order_by"))
    wanted = [experiment_number(one) for one in call.items("experiment_ids")]
    with call.state.catalog.read() as session:
        experiments = {
            row.id: row for part in _parts(wanted) for row in session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(part)))
        }
        places = {place: row.artifacts for place, row in experiments.items() if call.caller.sees(row.project)}
        chosen = select(TrackedRunRow).where(TrackedRunRow.experiment.in_(list(places)), TrackedRunRow.stage.in_(stages))
        newest = chosen.order_by(TrackedRunRow.started.desc(), TrackedRunRow.id)
        if not (given or "").strip() and orders in _NEWEST:
            found: Sequence[TrackedRunRow] = list(session.scalars(newest.offset(begins).limit(count + 1)))
            shown, more = found[:count], len(found) > count
            following = {"next_page_token": pages.token_of(begins + count)} if more else {}
        else:
            ids, following = pages.page(_matching(session, newest, places, given, orders), begins, count)
            shown = _whole(session, ids)
    runs = ",".join(run_json(row, places[row.experiment]) for row in shown)
    parts = [f'"runs":[{runs}]'] if runs else []
    parts += [f'"next_page_token":{json.dumps(token)}' for token in following.values()]
    return f"{{{','.join(parts)}}}".encode()


class _Searched:
    """A run by the names that MLflow's package looks for: ``run.info.start_time``, ``run.data.metrics``, ``run.inputs.dataset_inputs``."""

    def __init__(self, row: Any, artifacts: str) -> None:
        self._row, self._artifacts, self.id = row, artifacts, row.id

    @cached_property
    def info(self) -> SimpleNamespace:
        return SimpleNamespace(**{"end_time": None, **info_form(self._row, self._artifacts)})

    @property
    def data(self) -> "_Searched":
        return self

    @property
    def inputs(self) -> "_Searched":
        return self

    @cached_property
    def metrics(self) -> dict[str, float]:
        return {name: float(value) for name, value in of_items(self._row.metrics).items()}

    @cached_property
    def params(self) -> dict[str, str]:
        return of_items(self._row.params)

    @cached_property
    def tags(self) -> dict[str, str]:
        return of_items(self._row.tags)

    @cached_property
    def dataset_inputs(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(dataset=SimpleNamespace(**one["dataset"]), tags=[SimpleNamespace(**tag) for tag in one.get("tags", [])])
            for one in json.loads(self._row.inputs)
        ]


def _matching(session: Session, newest: Any, places: dict[int, str], given: str | None, orders: Sequence[str]) -> list[str]:
    """The ids of the runs that a filter chooses, in their order."""
    utils = search_utils("SearchUtils")
    with its_errors():
        clauses = utils.parse_search_filter(given)
        ordered = [utils.parse_order_by_for_search_runs(order) for order in orders]
        kinds = {clause["type"] for clause in clauses} | {kind for kind, _, _ in ordered}
        # Columns and not objects of the mapping, of which most would be made to be left out.
        columns = [*_PLAIN, *(column for kind, column in _COLUMNS.items() if kind in kinds)]
        found = [_Searched(row, places[row.experiment]) for row in session.execute(newest.with_only_columns(*columns))]
        for clause in clauses:
            found = [run for run in found if utils._does_run_match_clause(run, clause)]
        return [run.id for run in (utils.sort(found, list(orders)) if orders else found)]


def _whole(session: Session, ids: Sequence[str]) -> list[TrackedRunRow]:
    found: dict[str, TrackedRunRow] = {}
    for part in _parts(ids):
        asked = select(TrackedRunRow).where(TrackedRunRow.id.in_(part)).execution_options(populate_existing=True)
        found |= {row.id: row for row in session.scalars(asked)}
    return [found[run] for run in ids if run in found]


def _parts(items: Iterable[Any]) -> list[list[Any]]:
    every = list(items)
    return [every[at : at + _AT_ONCE] for at in range(0, len(every), _AT_ONCE)]
