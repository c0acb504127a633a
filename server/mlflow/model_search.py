"""Search for logged models, with MLflow's own grammar of filters."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select

from resources.catalog import ExperimentRow
from resources.tracking import logged_models
from resources.tracking.experiments import ACTIVE
from resources.tracking.logged_models import Message
from server.mlflow import pages
from server.mlflow.call import Call, checked_text, experiment_number, invalid, missing
from server.mlflow.grammar import ilike, like, model_comparisons
from server.mlflow.refusals import Refused

# models in a page
_MOST = 1_000
_USUAL = 50
# Attributes by their names in MLflow's tables, with those in its messages.
_ATTRIBUTES = {
    name: name
    for name in (
        "model_id",
        "experiment_id",
        "name",
        "creation_timestamp_ms",
        "last_updated_timestamp_ms",
        "lifecycle_stage",
        "status",
        "status_message",
        "model_type",
        "source_run_id",
    )
} | {"artifact_location": "artifact_uri"}
_ALIASES = {"creation_time": "creation_timestamp_ms", "creation_timestamp": "creation_timestamp_ms"}
_ALIASES |= {"last_updated_timestamp": "last_updated_timestamp_ms"}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "LIKE": like,
    "ILIKE": ilike,
    "IN": lambda a, b: a in b,
    "NOT IN": lambda a, b: a not in b,
}
Dataset = dict[str, Any]
Key = Callable[[Message], Any]


def search(call: Call) -> dict[str, Any]:
    """Models of experiments, the newest first where no order is asked for."""
    count = min(call.number("max_results", 0) or _USUAL, _MOST)
    if count < 1:
        raise invalid("max_results", count, "It must be a positive integer")
    question = [call.fields.get(name) for name in ("experiment_ids", "filter", "order_by", "datasets")]
    begins = pages.offset(call, of=question)
    wanted = [experiment_number(one) for one in call.items("experiment_ids")]
    if not wanted:
        raise missing("experiment_ids")
    datasets = call.objects("datasets")
    if not all(one.get("dataset_name") for one in datasets):
        raise missing("datasets.dataset_name")
    comparisons = _comparisons(call.maybe_text("filter") or "")
    orders = [(_order(one), one.get("ascending") is not False) for one in call.objects("order_by")]
    with call.state.catalog.read() as session:
        rows = session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(wanted)))
        found = logged_models.list_models(session, [row.id for row in rows if call.caller.sees(row.project)])
    if datasets:
        found = [message for message in found if _metrics(message, datasets)]
    found = [message for message in found if all(_holds(message, one, datasets) for one in comparisons)]
    for key, ascending in reversed(orders):
        found = _ordered(found, key, ascending=ascending)
    shown, following = pages.page(found, begins, count, of=question)
    return {**({"models": list(shown)} if shown else {}), **following}


def _comparisons(given: str) -> list[Any]:
    """MLflow's comparisons, which are joined by AND; each with an attribute that there is, and a value that
    can be compared.
    """
    found = model_comparisons(given) if given.strip() else []
    for one in found:
        if one.entity.type.value == "attributes" and one.entity.key not in _ATTRIBUTES:
            raise invalid(
                "filter",
                given,
                f"there is no attribute {one.entity.key!r}; known are {', '.join(_ATTRIBUTES)}",
            )
        kind = (tuple, list) if one.op.endswith("IN") else float if one.entity.is_numeric() else str
        if not isinstance(one.value, kind):
            raise invalid("filter", given, f"{one.op} does not take {one.value!r}")
    return found


def _holds(message: Message, comparison: Any, datasets: Sequence[Dataset]) -> bool:
    """Whether a comparison is true of one of the values that a model has: of a metric it may have many."""
    compared = _COMPARED[comparison.op]
    return any(compared(held, comparison.value) for held in _values(message, comparison.entity, datasets))


def _values(message: Message, entity: Any, datasets: Sequence[Dataset]) -> list[Any]:
    kind = entity.type.value
    key = entity.key
    if kind == "attributes":
        held = _attribute(message, key)
        return [] if held is None else [held]
    if kind == "metrics":
        values = [float(one["value"]) for one in _metrics(message, datasets) if one["key"] == key]
        # which compares with nothing, as NULL in SQL
        return [value for value in values if not math.isnan(value)]
    items = message["info"].get("tags", []) if kind == "tags" else message["data"].get("params", [])
    return [one["value"] for one in items if one["key"] == key]


def _attribute(message: Message, name: str) -> Any:
    """None where the model has none."""
    # others than active ones are not searched
    return ACTIVE if name == "lifecycle_stage" else message["info"].get(_ATTRIBUTES[name])


def _metrics(message: Message, datasets: Sequence[Dataset]) -> list[dict[str, Any]]:
    """A model's metrics on one of these datasets; all where none are given."""
    metrics: list[dict[str, Any]] = message["data"].get("metrics", [])
    wanted = [
        {name: one[name] for name in ("dataset_name", "dataset_digest") if one.get(name)} for one in datasets
    ]
    return (
        [one for one in metrics if any(one.items() >= each.items() for each in wanted)] if wanted else metrics
    )


def _order(asked: dict[str, Any]) -> Key:
    """What models are ordered by; None for those that have no such value."""
    name = checked_text("order_by.field_name", asked.get("field_name") or "")
    kind, dot, key = name.partition(".")
    if not dot:
        attribute = _ALIASES.get(name, name)
        if attribute not in _ATTRIBUTES:
            raise Refused("INVALID_PARAMETER_VALUE", f"Invalid order by field name: {name}")
        if attribute == "experiment_id":
            return lambda message: int(message["info"]["experiment_id"])
        return lambda message: _attribute(message, attribute)
    if kind != "metrics":
        raise Refused(
            "INVALID_PARAMETER_VALUE", f"Invalid order by field name: {name}. Only metrics are supported."
        )
    dataset = {
        field: checked_text(f"order_by.{field}", asked[field])
        for field in ("dataset_name", "dataset_digest")
        if asked.get(field)
    }

    def latest(message: Message) -> float | None:
        held = [one for one in _metrics(message, [dataset] if dataset else []) if one["key"] == key]
        newest = min(held, key=lambda one: (-one["timestamp"], -one["step"], one["run_id"]), default=None)
        return None if newest is None or math.isnan(float(newest["value"])) else float(newest["value"])

    return latest


def _ordered(messages: list[Message], key: Key, *, ascending: bool) -> list[Message]:
    """In an order in which those without a value come last, whatever its direction."""
    held = [message for message in messages if key(message) is not None]
    return sorted(held, key=key, reverse=not ascending) + [
        message for message in messages if key(message) is None
    ]
