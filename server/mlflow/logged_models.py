"""Logged models: what runs have made, with their params, tags, metrics and files."""

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
from server.mlflow.experiments import seen as seen_experiment
from server.mlflow.refusals import Refused
from server.mlflow.runs import seen as seen_run

FOLDER = "logged-models"
"""Below a run's artifacts: its models' files. Lists of the run's own artifacts leave it out."""

_STATUSES = (
    "LOGGED_MODEL_STATUS_UNSPECIFIED",
    "LOGGED_MODEL_PENDING",
    "LOGGED_MODEL_READY",
    "LOGGED_MODEL_UPLOAD_FAILED",
)
_MAX_METRICS = 1_000  # of a model, which are written again with each of them; its run has all
# a metric that is sent again
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
        found = _source_run(call, session, run) if run else _own_run(call, session, name)
        info = {
            "name": name,
            **{field: value for field, value in more.items() if value},
            **({"tags": tags} if tags else {}),
        }
        return {"model": logged_models.create_model(session, call.state.store, found, info, params)}


def get(call: Call) -> dict[str, Any]:
    with call.state.catalog.read() as session:
        return {"model": find_seen_model(call, session)}


def find_seen_model(call: Call, session: Session) -> Message:
    """The model that a request names, if its caller may see it."""
    message: Message = json.loads(_seen(call, session)[0].message)
    return message


def finalize(call: Call) -> dict[str, Any]:
    given = call.fields.get("status")
    status = _STATUSES[given] if isinstance(given, int) and 0 <= given < len(_STATUSES) else given
    if status not in _STATUSES[1:]:
        raise invalid("status", given, f"give one of {', '.join(_STATUSES[1:])}")
    return {"model": _changed(call, lambda message: message["info"].update(status=status))}


def delete(call: Call) -> dict[str, Any]:
    with call.state.catalog.write() as session:
        row, found = _seen(call, session, lock=True)
        logged_models.delete_model(call.state.store, found, row)
        call.log_write(session)
    return {}


def set_tags(call: Call) -> dict[str, Any]:
    tags = call.tags()

    def change(message: Message) -> None:
        known = {one["key"]: one["value"] for one in message["info"].get("tags", [])} | tags
        message["info"]["tags"] = [{"key": key, "value": value} for key, value in known.items()]

    return {"model": _changed(call, change)}


def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("tag_key")

    def change(message: Message) -> None:
        left = [one for one in message["info"].get("tags", []) if one["key"] != key]
        if len(left) == len(message["info"].get("tags", [])):
            raise Refused("RESOURCE_DOES_NOT_EXIST", f"No tag with key {key!r} found for this model")
        message["info"]["tags"] = left

    _changed(call, change)
    return {}


def log_params(call: Call) -> dict[str, Any]:
    params = _params(call)

    def change(message: Message) -> None:
        known = {one["key"]: one["value"] for one in message["data"].get("params", [])}
        for one in params:
            if known.setdefault(one["key"], one["value"]) != one["value"]:
                raise invalid(
                    one["key"], one["value"], f"the param has the value {known[one['key']]!r} already"
                )
        message["data"]["params"] = [{"key": key, "value": value} for key, value in known.items()]

    _changed(call, change)
    return {}


def list_files(call: Call) -> dict[str, Any]:
    """The files of a model, in a folder of its own."""
    path = artifacts.normal_path((call.maybe_text("artifact_directory_path") or "").strip("/"))
    with call.state.catalog.read() as session:
        row, found = _seen(call, session)
        below = f"{FOLDER}/{row.id}/{path}".rstrip("/")
        listed = artifacts.list_artifacts(session, found.row.id, below)
        root = json.loads(row.message)["info"]["artifact_uri"]
    files = []
    for name, size in listed:
        full = f"{path}/{name}" if path else name
        files.append(
            {"path": full, "is_dir": True}
            if size is None
            else {"path": full, "is_dir": False, "file_size": size}
        )
    return {"root_uri": root, **({"files": files} if files else {})}


def log_outputs(call: Call) -> dict[str, Any]:
    models = [_model_of_run(item, step=True) for item in call.objects("models")]
    with call.state.catalog.write() as session:
        runs.log(call.state.store, seen_run(call, session, lock=True), outputs=models)
    return {}


def model_inputs(call: Call) -> list[dict[str, Any]]:
    """The models among the inputs that a run logs."""
    return [_model_of_run(item, step=False) for item in call.objects("models")]


def lock_run(
    call: Call, session: Session, metrics: Sequence[dict[str, Any]]
) -> tuple[Tracked, list[tuple[LoggedModelRow, Tracked]]]:
    """The run that a request names, and the models that its metrics name with theirs, which may be other runs
    that this one evaluates.
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
    """Give metrics that name a model to that model, too: the latest thousand, in the order of their time.

    Args:
        run: which logged them.
        models: as :func:`lock_run` gives them.
        points: each with the message that it came in.
    """
    for row, of_it in models:
        message = json.loads(row.message)
        known = {tuple(one.get(name) for name in _SAME): one for one in message["data"].get("metrics", [])}
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
            known[tuple(metric.get(name) for name in _SAME)] = metric
        message["data"]["metrics"] = sorted(known.values(), key=lambda one: (one["timestamp"], one["step"]))[
            -_MAX_METRICS:
        ]
        logged_models.change_model(store, of_it, row, message)


def _source_run(call: Call, session: Session, run: str) -> Tracked:
    found = find_run(session, run, lock=True)
    call.check(found.project, f"run {run!r}")
    check_run_active(found.row)
    if str(found.experiment) != str(call.fields.get("experiment_id", found.experiment)):
        raise invalid("source_run_id", run, f"it is a run of experiment {found.experiment}")
    return found


def _own_run(call: Call, session: Session, name: str) -> Tracked:
    experiment = seen_experiment(call, session, call.experiment())
    return logged_models.run_of_model(session, call.state.store, experiment, name)


def _changed(call: Call, change: Callable[[Message], None]) -> Message:
    with call.state.catalog.write() as session:
        row, found = _seen(call, session, lock=True)
        message: Message = json.loads(row.message)
        change(message)
        logged_models.change_model(call.state.store, found, row, message)
    return message


def _seen(call: Call, session: Session, *, lock: bool = False) -> tuple[LoggedModelRow, Tracked]:
    """The model that a request names with its run, whose lock is that of the model."""
    model = call.text("model_id")
    if lock:
        rows, locked = logged_models.lock_models(session, [model])
        row = rows[model]
        found = locked[rows[model].run]
    else:
        row = logged_models.find_model(session, model)
        found = find_run(session, row.run)
    call.check(found.project, f"model {model!r}")
    return row, found


def _params(call: Call) -> list[dict[str, str]]:
    given = [fields.param(item, f"params[{place}]") for place, item in enumerate(call.objects("params"))]
    return [{"key": key, "value": value} for key, value in given]


def _model_of_run(item: dict[str, Any], *, step: bool) -> dict[str, Any]:
    if not item.get("model_id"):
        raise missing("model_id")
    found: dict[str, Any] = {"model_id": checked_text("model_id", item["model_id"])}
    return {**found, "step": fields.integer("step", item.get("step"), 0)} if step else found
