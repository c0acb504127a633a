"""Logged models with their params, tags, metrics and files."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.orm import Session

from halving.store.store import Store
from resources.catalog import LoggedModelRow
from resources.tracking import artifacts, logged_models, runs
from resources.tracking.logged_models import Message
from resources.tracking.run_files import TrackedPoint
from resources.tracking.runs import Tracked, check_run_active, find_run, plain_number
from server.mlflow import call as fields
from server.mlflow.call import Call, checked_text, invalid, missing
from server.mlflow.experiments import visible_experiment
from server.mlflow.forms import artifact_form, without_empty
from server.mlflow.refusals import Refused
from server.mlflow.runs import visible_run

FOLDER = "logged-models"
"""Below a run's artifacts: its models' files. Lists of the run's own artifacts leave it out."""

_STATUSES = (
    "LOGGED_MODEL_STATUS_UNSPECIFIED",
    "LOGGED_MODEL_PENDING",
    "LOGGED_MODEL_READY",
    "LOGGED_MODEL_UPLOAD_FAILED",
)
_MAX_METRICS = 1_000  # of a model, which are written again with each of them; its run has all
# Metrics that agree in these fields are the same, sent again.
_SAME = ("key", "timestamp", "step", "run_id", "dataset_name", "dataset_digest")
_BAD = re.compile(r"""[/:.%"']""")


def create(call: Call) -> dict[str, Any]:
    name = call.maybe_text("name") or "model"
    if _BAD.search(name):
        raise invalid(
            "name", name, "Model name must be a non-empty string and cannot contain any of / : . % \" '"
        )
    run = call.maybe_text("source_run_id")
    tags = [{"key": key, "value": value} for key, value in call.tags().items()]
    params = _params(call)
    more = {field: call.maybe_text(field) for field in ("model_type",)}
    with call.state.catalog.write() as session:
        tracked = _source_run(call, session, run) if run else _own_run(call, session, name)
        info = {
            "name": name,
            **{field: value for field, value in more.items() if value},
            **without_empty(tags=tags),
        }
        return {"model": logged_models.create_model(session, call.state.store, tracked, info, params)}


def get(call: Call) -> dict[str, Any]:
    with call.state.catalog.read() as session:
        return {"model": visible_model(call, session)}


def visible_model(call: Call, session: Session) -> Message:
    """Find the model that a request names, if its caller may see it."""
    message: Message = json.loads(_find_visible(call, session)[0].message)
    return message


def finalize(call: Call) -> dict[str, Any]:
    value = call.fields.get("status")
    status = value
    if isinstance(value, int) and 0 <= value < len(_STATUSES):
        status = _STATUSES[value]
    if status not in _STATUSES[1:]:
        raise invalid("status", value, f"give one of {', '.join(_STATUSES[1:])}")
    return {"model": _change(call, lambda message: message["info"].update(status=status))}


def delete(call: Call) -> dict[str, Any]:
    with call.state.catalog.write() as session:
        row, tracked = _find_visible(call, session, lock=True)
        logged_models.delete_model(call.state.store, tracked, row)
        call.log_write(session)
    return {}


def set_tags(call: Call) -> dict[str, Any]:
    tags = call.tags()

    def change(message: Message) -> None:
        merged = {tag["key"]: tag["value"] for tag in message["info"].get("tags", [])} | tags
        message["info"]["tags"] = [{"key": key, "value": value} for key, value in merged.items()]

    return {"model": _change(call, change)}


def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("tag_key")

    def change(message: Message) -> None:
        left = [tag for tag in message["info"].get("tags", []) if tag["key"] != key]
        if len(left) == len(message["info"].get("tags", [])):
            raise Refused("RESOURCE_DOES_NOT_EXIST", f"No tag with key {key!r} found for this model")
        message["info"]["tags"] = left

    _change(call, change)
    return {}


def log_params(call: Call) -> dict[str, Any]:
    params = _params(call)

    def change(message: Message) -> None:
        values = {param["key"]: param["value"] for param in message["data"].get("params", [])}
        for param in params:
            before = values.setdefault(param["key"], param["value"])
            if before != param["value"]:
                raise invalid(param["key"], param["value"], f"the param has the value {before!r} already")
        message["data"]["params"] = [{"key": key, "value": value} for key, value in values.items()]

    _change(call, change)
    return {}


def list_files(call: Call) -> dict[str, Any]:
    """The files of a model, in a folder of its own."""
    path = artifacts.normal_path((call.maybe_text("artifact_directory_path") or "").strip("/"))
    with call.state.catalog.read() as session:
        row, tracked = _find_visible(call, session)
        below = f"{FOLDER}/{row.id}/{path}".rstrip("/")
        listed = artifacts.list_artifacts(session, tracked.row.id, below)
        root = json.loads(row.message)["info"]["artifact_uri"]
    files = [artifact_form(f"{path}/{name}".lstrip("/"), size) for name, size in listed]
    return {"root_uri": root, **without_empty(files=files)}


def log_outputs(call: Call) -> dict[str, Any]:
    models = [_model_of_run(item, step=True) for item in call.objects("models")]
    with call.state.catalog.write() as session:
        runs.log(call.state.store, visible_run(call, session, lock=True), outputs=models)
    return {}


def model_inputs(call: Call) -> list[dict[str, Any]]:
    """The models among the inputs that a run logs."""
    return [_model_of_run(item, step=False) for item in call.objects("models")]


def lock_run(
    call: Call, session: Session, metrics: Sequence[dict[str, Any]]
) -> tuple[Tracked, list[tuple[LoggedModelRow, Tracked]]]:
    """Lock the run that a request names, and the models that its metrics name.

    The models may belong to other runs, which this one evaluates; they are given with their runs.
    """
    run = call.text("run_id", "run_uuid")
    rows, locked = logged_models.lock_models(
        session, {checked_text("model_id", item["model_id"]) for item in metrics if item.get("model_id")}, run
    )
    call.check(locked[run].project, f"run {run!r}")
    for model, row in rows.items():
        call.check(locked[row.run].project, f"model {model!r}")
    return locked[run], [(row, locked[row.run]) for row in rows.values()]


def add_metrics(
    store: Store,
    run: str,
    models: Sequence[tuple[LoggedModelRow, Tracked]],
    points: Sequence[tuple[dict[str, Any], TrackedPoint]],
) -> None:
    """Add metrics to the models that they name; a model keeps the latest thousand by time.

    Args:
        run: which logged them.
        models: as :func:`lock_run` gives them.
        points: each with the message that it came in.
    """
    for row, source_run in models:
        message = json.loads(row.message)
        metrics = {
            tuple(metric.get(name) for name in _SAME): metric for metric in message["data"].get("metrics", [])
        }
        for item, point in points:
            if item.get("model_id") != row.id:
                continue
            dataset = {
                name: checked_text(name, item[name])
                for name in ("dataset_name", "dataset_digest")
                if item.get(name)
            }
            value = {
                "key": point.key,
                "value": plain_number(point.value),
                "timestamp": point.time,
                "step": point.step,
            }
            metric = {**value, **dataset, "model_id": row.id, "run_id": run}
            metrics[tuple(metric.get(name) for name in _SAME)] = metric
        by_time = sorted(metrics.values(), key=lambda metric: (metric["timestamp"], metric["step"]))
        message["data"]["metrics"] = by_time[-_MAX_METRICS:]
        logged_models.change_model(store, source_run, row, message)


def _source_run(call: Call, session: Session, run: str) -> Tracked:
    tracked = find_run(session, run, lock=True)
    call.check(tracked.project, f"run {run!r}")
    check_run_active(tracked.row)
    if str(tracked.experiment) != str(call.fields.get("experiment_id", tracked.experiment)):
        raise invalid("source_run_id", run, f"it is a run of experiment {tracked.experiment}")
    return tracked


def _own_run(call: Call, session: Session, name: str) -> Tracked:
    experiment = visible_experiment(call, session, call.experiment())
    return logged_models.run_of_model(session, call.state.store, experiment, name)


def _change(call: Call, change: Callable[[Message], None]) -> Message:
    with call.state.catalog.write() as session:
        row, tracked = _find_visible(call, session, lock=True)
        message: Message = json.loads(row.message)
        change(message)
        logged_models.change_model(call.state.store, tracked, row, message)
    return message


def _find_visible(call: Call, session: Session, *, lock: bool = False) -> tuple[LoggedModelRow, Tracked]:
    """Find the model that a request names, with its run; ``lock`` locks the run."""
    model = call.text("model_id")
    if lock:
        rows, locked = logged_models.lock_models(session, [model])
        row = rows[model]
        tracked = locked[rows[model].run]
    else:
        row = logged_models.find_model(session, model)
        tracked = find_run(session, row.run)
    call.check(tracked.project, f"model {model!r}")
    return row, tracked


def _params(call: Call) -> list[dict[str, str]]:
    pairs = [fields.param(item, f"params[{place}]") for place, item in enumerate(call.objects("params"))]
    return [{"key": key, "value": value} for key, value in pairs]


def _model_of_run(item: dict[str, Any], *, step: bool) -> dict[str, Any]:
    if not item.get("model_id"):
        raise missing("model_id")
    logged: dict[str, Any] = {"model_id": checked_text("model_id", item["model_id"])}
    if step:
        return {**logged, "step": fields.integer("step", item.get("step"), 0)}
    return logged
