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
from server.mlflow.forms import without_empty
from server.mlflow.grammar import ilike, like, model_comparisons
from server.mlflow.refusals import Refused

# Models in a page: at most, and by default.
_MAX_MODELS = 1_000
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
    """Search models of experiments; newest first unless an order is given."""
    count = min(call.number("max_results", 0) or _USUAL, _MAX_MODELS)
    if count < 1:
        raise invalid("max_results", count, "It must be a positive integer")
    question = [call.fields.get(name) for name in ("experiment_ids", "filter", "order_by", "datasets")]
    begins = pages.offset(call, question=question)
    wanted = [experiment_number(value) for value in call.items("experiment_ids")]
    if not wanted:
        raise missing("experiment_ids")
    datasets = call.objects("datasets")
    if not all(dataset.get("dataset_name") for dataset in datasets):
        raise missing("datasets.dataset_name")
    comparisons = _comparisons(call.maybe_text("filter") or "")
    orders = [(_order(order), order.get("ascending") is not False) for order in call.objects("order_by")]
    with call.state.catalog.read() as session:
        rows = session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(wanted)))
        models = logged_models.list_models(session, [row.id for row in rows if call.caller.sees(row.project)])
    if datasets:
        models = [message for message in models if _metrics(message, datasets)]
    models = [
        message
        for message in models
        if all(_holds(message, comparison, datasets) for comparison in comparisons)
    ]
    for key, ascending in reversed(orders):
        models = _in_order(models, key, ascending=ascending)
    page_models, following = pages.page(models, begins, count, question=question)
    return without_empty(models=list(page_models)) | following


def _comparisons(text: str) -> list[Any]:
    """Parse a filter and check its attributes and values."""
    if not text.strip():
        return []
    comparisons = model_comparisons(text)
    for comparison in comparisons:
        if comparison.entity.type.value == "attributes" and comparison.entity.key not in _ATTRIBUTES:
            raise invalid(
                "filter",
                text,
                f"there is no attribute {comparison.entity.key!r}; known are {', '.join(_ATTRIBUTES)}",
            )
        kind: Any = float if comparison.entity.is_numeric() else str
        if comparison.op.endswith("IN"):
            kind = (tuple, list)
        if not isinstance(comparison.value, kind):
            raise invalid("filter", text, f"{comparison.op} does not take {comparison.value!r}")
    return comparisons


def _holds(message: Message, comparison: Any, datasets: Sequence[Dataset]) -> bool:
    """Whether a comparison is true for any of a model's values; a metric may have many."""
    compared = _COMPARED[comparison.op]
    return any(compared(value, comparison.value) for value in _values(message, comparison.entity, datasets))


def _values(message: Message, entity: Any, datasets: Sequence[Dataset]) -> list[Any]:
    kind = entity.type.value
    key = entity.key
    if kind == "attributes":
        attribute = _attribute(message, key)
        if attribute is None:
            return []
        return [attribute]
    if kind == "metrics":
        values = [float(metric["value"]) for metric in _metrics(message, datasets) if metric["key"] == key]
        # NaN compares with nothing, as NULL in SQL.
        return [value for value in values if not math.isnan(value)]
    items = message["data"].get("params", [])
    if kind == "tags":
        items = message["info"].get("tags", [])
    return [item["value"] for item in items if item["key"] == key]


def _attribute(message: Message, name: str) -> Any:
    """An attribute of a model; None where it has none."""
    # Only active models are searched.
    if name == "lifecycle_stage":
        return ACTIVE
    return message["info"].get(_ATTRIBUTES[name])


def _metrics(message: Message, datasets: Sequence[Dataset]) -> list[dict[str, Any]]:
    """A model's metrics on any of these datasets; all metrics if no datasets are given."""
    metrics: list[dict[str, Any]] = message["data"].get("metrics", [])
    wanted = [
        {name: dataset[name] for name in ("dataset_name", "dataset_digest") if dataset.get(name)}
        for dataset in datasets
    ]
    if not wanted:
        return metrics
    return [metric for metric in metrics if any(metric.items() >= dataset.items() for dataset in wanted)]


def _order(order: dict[str, Any]) -> Key:
    """A function that gives a model's sort key; None for models without the value."""
    name = checked_text("order_by.field_name", order.get("field_name") or "")
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
        field: checked_text(f"order_by.{field}", order[field])
        for field in ("dataset_name", "dataset_digest")
        if order.get(field)
    }

    datasets = []
    if dataset:
        datasets.append(dataset)

    def latest(message: Message) -> float | None:
        values = [metric for metric in _metrics(message, datasets) if metric["key"] == key]
        newest = min(
            values,
            key=lambda metric: (-metric["timestamp"], -metric["step"], metric["run_id"]),
            default=None,
        )
        if newest is None or math.isnan(float(newest["value"])):
            return None
        return float(newest["value"])

    return latest


def _in_order(messages: list[Message], key: Key, *, ascending: bool) -> list[Message]:
    """Sort models by a key; those without a value come last in either direction."""
    present = [message for message in messages if key(message) is not None]
    return sorted(present, key=key, reverse=not ascending) + [
        message for message in messages if key(message) is None
    ]
