"""What training code logs into a run: metrics, params, tags and datasets."""

import json
from collections.abc import Sequence
from typing import Any

from resources.tracking import runs
from resources.tracking.run_files import MAX_LIVE, TrackedPoint
from server.mlflow import call as fields
from server.mlflow import logged_models
from server.mlflow.call import MAX_TAG_LETTERS, Call, check_count, checked_text, missing, too_long
from server.mlflow.compacting import compact_soon
from server.mlflow.forms import without_empty
from server.mlflow.refusals import Refused
from server.mlflow.runs import visible_run

_METRICS = 1_000
_ITEMS = 100
_ALL = 1_000
_DATASET = {"name": 500, "digest": 36, "source_type": 36, "source": 65_535}
_MORE = {"schema": 1_048_575, "profile": 16_777_215}
_TAG = {"key": 255, "value": 500}
_MODELS_TAG = "mlflow.log-model.history"
_NOTED = ("run_id", "artifact_path", "utc_time_created", "model_uuid")
_MODEL = {"artifact_path", "flavors", "utc_time_created", "run_id"}


def log_batch(call: Call) -> dict[str, Any]:
    metrics = call.objects("metrics")
    params = call.objects("params")
    tags = call.objects("tags")
    check_count("metrics", _METRICS, metrics)
    check_count("params", _ITEMS, params)
    check_count("tags", _ITEMS, tags)
    check_count("metrics, params, and tags", _ALL, [*metrics, *params, *tags])
    named = [fields.param(item, f"params[{place}]") for place, item in enumerate(params)]
    doubles = sorted({key for key, _ in named if sum(other == key for other, _ in named) > 1})
    if doubles:
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Duplicate parameter keys have been submitted: {doubles}. Please ensure the request contains "
            "only one param value per param key.",
        )
    points = [_point(item, f"metrics[{place}].") for place, item in enumerate(metrics)]
    return _log(
        call,
        metrics,
        points=points,
        params=named,
        tags=[fields.tag(item, f"tags[{place}]") for place, item in enumerate(tags)],
    )


def log_metric(call: Call) -> dict[str, Any]:
    return _log(call, [call.fields], points=[_point(call.fields)])


def log_parameter(call: Call) -> dict[str, Any]:
    return _log(call, params=[fields.param(call.fields)])


def set_tag(call: Call) -> dict[str, Any]:
    return _log(call, tags=[fields.tag(call.fields)])


def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("key")
    with call.state.catalog.write() as session:
        runs.delete_tag(call.state.store, visible_run(call, session, lock=True), key)
    return {}


def log_inputs(call: Call) -> dict[str, Any]:
    datasets = call.objects("datasets")
    check_count("datasets", _METRICS, datasets)
    return _log(
        call,
        inputs=[_dataset_input(item) for item in datasets],
        model_inputs=logged_models.model_inputs(call),
    )


def log_model(call: Call) -> dict[str, Any]:
    """Note a model that an MLflow 2 client logs in a tag of its run."""
    model = _model(call.text("model_json"))
    with call.state.catalog.write() as session:
        tracked = visible_run(call, session, lock=True)
        before = runs.of_items(tracked.row.tags).get(_MODELS_TAG, "[]")
        try:
            history = json.dumps([*json.loads(before), model])
        except (ValueError, TypeError):
            raise Refused(
                "INVALID_PARAMETER_VALUE",
                f"The tag {_MODELS_TAG} of run {tracked.row.id} is no list of models",
            ) from None
        if len(history) > MAX_TAG_LETTERS:  # the beginning of it would be no JSON
            raise too_long(_MODELS_TAG, MAX_TAG_LETTERS)
        runs.log(call.state.store, tracked, tags=[(_MODELS_TAG, history)])
    return {}


def _model(text: str) -> dict[str, Any]:
    """The parts of a model that are noted: all but its signature and the configurations of its flavors."""
    try:
        model = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused(
            "INVALID_PARAMETER_VALUE", f"Malformed model info. {text[:200]!r} is not a valid JSON."
        ) from None
    lacking = sorted(_MODEL)
    if isinstance(model, dict):
        lacking = sorted(_MODEL - model.keys())
    if lacking:
        raise Refused("INVALID_PARAMETER_VALUE", f"Model json is missing mandatory fields: {lacking}")
    flavors = {}
    if isinstance(model["flavors"], dict):
        flavors = model["flavors"]
    trimmed = {name: _without_config(flavor) for name, flavor in flavors.items()}
    return {name: model[name] for name in _NOTED if name in model} | {"flavors": trimmed}


def _without_config(flavor: Any) -> Any:
    if not isinstance(flavor, dict):
        return flavor
    return {key: value for key, value in flavor.items() if key != "config"}


def _log(call: Call, metrics: Sequence[dict[str, Any]] = (), **logged: Any) -> dict[str, Any]:
    with call.state.catalog.write() as session:
        tracked, models = logged_models.lock_run(call, session, metrics)
        live = runs.log(call.state.store, tracked, **logged)
        if models:
            logged_models.add_metrics(
                call.state.store, tracked.row.id, models, list(zip(metrics, logged["points"], strict=True))
            )
    if live > MAX_LIVE:
        compact_soon(call.state.store, tracked.project, tracked.row.id)
    return {}


def _point(item: dict[str, Any], path: str = "") -> TrackedPoint:
    if bool(item.get("dataset_name")) != bool(item.get("dataset_digest")):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            "Both dataset_name and dataset_digest must be provided if one is provided",
        )
    return TrackedPoint(
        fields.key(f"{path}key", item.get("key")),
        fields.integer(f"{path}step", item.get("step"), 0),
        fields.time_of(f"{path}timestamp", item.get("timestamp")),
        fields.number(f"{path}value", item.get("value")),
    )


def _dataset_input(item: dict[str, Any]) -> dict[str, Any]:
    source = item.get("dataset")
    tags = item.get("tags") or []
    if not isinstance(source, dict):
        raise missing("dataset")
    dataset = {name: _within("dataset", name, source.get(name), limit) for name, limit in _DATASET.items()}
    dataset |= {
        name: _within("dataset", name, source[name], limit)
        for name, limit in _MORE.items()
        if source.get(name) is not None
    }
    if not isinstance(tags, list) or not all(isinstance(tag, dict) for tag in tags):
        raise fields.invalid("tags", tags)
    kept = [
        {name: _within("tags", name, tag.get(name), limit) for name, limit in _TAG.items()} for tag in tags
    ]
    return {**without_empty(tags=kept), "dataset": dataset}


def _within(path: str, name: str, value: Any, limit: int) -> str:
    if value is None:
        raise missing(f"{path}.{name}")
    text = checked_text(f"{path}.{name}", value)
    if len(text) > limit:
        raise too_long(f"{path}.{name}", limit)
    return text
