"""Search in the registry, with MLflow's own grammar of filters and orders."""

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from resources.catalog import ModelVersionRow, RegisteredModelRow
from resources.catalog.models import models_of, versions_of
from resources.registry.client_versions import aliases_of
from server.mlflow import pages
from server.mlflow.call import Call
from server.mlflow.forms import without_empty
from server.mlflow.grammar import its_errors, search_utils
from server.mlflow.model_sources import PROMPT_TAG
from server.mlflow.refusals import Refused
from server.mlflow.registry_forms import model_form, version_form

_MODELS = 100
_MAX_MODELS = 1_000
_VERSIONS = 10_000
_MAX_VERSIONS = 200_000
_NEWEST = ["last_updated_timestamp DESC", "name ASC", "version_number DESC"]


def search_models(call: Call) -> dict[str, Any]:
    """Search models by name; prompts are left out unless the filter asks for them."""
    count = pages.size(call, _MODELS, _MAX_MODELS)
    begins = pages.offset(call)
    filter_text = call.maybe_text("filter") or ""
    orders = call.texts("order_by")
    with call.state.catalog.read() as session:
        rows = [row for row in models_of(session) if call.caller.sees(row.name)]
        orders = [re.sub(r"^\s*timestamp\b", "last_updated_timestamp", order) for order in orders]
        if filter_text.strip() or orders:
            rows = _matching_rows(
                "SearchModelUtils", [_searched_model(row) for row in rows], filter_text, orders
            )
        if not _asks_for_prompts("SearchModelUtils", filter_text):
            rows = [row for row in rows if not _is_prompt(row)]
        page_rows, following = pages.page(rows, begins, count)
        forms = [model_form(session, row) for row in page_rows]
    return without_empty(registered_models=forms) | following


def search_versions(call: Call) -> dict[str, Any]:
    """Search versions, last changed first; prompts are left out unless the filter asks for them."""
    count = pages.size(call, _VERSIONS, _MAX_VERSIONS)
    begins = pages.offset(call)
    filter_text = call.maybe_text("filter") or ""
    orders = call.texts("order_by")
    with call.state.catalog.read() as session:
        models = {row.name: row for row in models_of(session) if call.caller.sees(row.name)}
        if not _asks_for_prompts("SearchModelVersionUtils", filter_text):
            models = {name: row for name, row in models.items() if not _is_prompt(row)}
        rows = [_searched_version(row) for row in versions_of(session) if row.model in models]
        matching = _matching_rows("SearchModelVersionUtils", rows, filter_text, orders or _NEWEST)
        page_rows, following = pages.page(matching, begins, count)
        aliases = {name: aliases_of(session, models[name]) for name in {row.model for row in page_rows}}
        forms = [version_form(row, aliases[row.model]) for row in page_rows]
    return without_empty(model_versions=forms) | following


def _matching_rows(
    grammar: str, items: list[SimpleNamespace], filter_text: str, orders: Sequence[str]
) -> list[Any]:
    """The rows that match a filter, sorted, by MLflow's own package."""
    utils = search_utils(grammar)
    with its_errors():
        keys = [(order.split() or [order])[0] for order in orders]
        if len(set(keys)) < len(keys):
            raise Refused("INVALID_PARAMETER_VALUE", f"`order_by` contains duplicate fields: {list(orders)}")
        return [item.row for item in utils.sort(utils.filter(items, filter_text), list(orders))]


def _asks_for_prompts(grammar: str, filter_text: str) -> bool:
    if PROMPT_TAG not in filter_text:
        return False
    with its_errors():
        clauses = search_utils(grammar).parse_search_filter(filter_text)
    wanted = {("=", "true"), ("!=", "false")}
    return any(
        clause["key"] == PROMPT_TAG and (clause["comparator"], str(clause["value"]).lower()) in wanted
        for clause in clauses
    )


def _is_prompt(row: RegisteredModelRow) -> bool:
    return str(row.tags.get(PROMPT_TAG, "")).lower() == "true"


def _searched_model(row: RegisteredModelRow) -> SimpleNamespace:
    times = {
        "creation_timestamp": row.created,
        "timestamp": row.updated,
        "last_updated_timestamp": row.updated,
    }
    return SimpleNamespace(row=row, name=row.name, _tags=row.tags, tags=row.tags, **times)


def _searched_version(row: ModelVersionRow) -> SimpleNamespace:
    form = version_form(row, {})
    return SimpleNamespace(**{**form, "row": row, "tags": row.tags, "version": row.number})
