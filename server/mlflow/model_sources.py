"""Sources of registered versions.

Which sources are accepted, whose run or logged model they are, and where the files are.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.catalog import LoggedModelRow
from resources.catalog.models import versions_of
from resources.registry.client_versions import STAGES, aliases_of, find_version
from resources.registry.registered_models import find_model
from resources.tracking import logged_models, runs
from server.mlflow.call import Call
from server.mlflow.forms import artifact_uri
from server.mlflow.refusals import Refused

PROMPT_TAG = "mlflow.prompt.is_prompt"
_PROMPTS = ("prompt-template", "dummy-source")
_PROXY = re.compile(r"https?://[^/]+/(?:.+/)?api/2\.0/mlflow-artifacts/artifacts(/|$)")


@dataclass(frozen=True)
class Source:
    """The source of a version.

    Attributes:
        uri: as it is kept.
        storage: where its files are.
        run: the run that made it, empty where none is known; ``project`` is its own.
        model: the logged model that it is, with its run, if it is one.
    """

    uri: str
    storage: str
    run: str
    project: str | None
    model: LoggedModelRow | None


def find_source(call: Call, session: Session, *, prompt: bool) -> Source:
    """Find the source that a request names.

    Raises:
        Refused: ``INVALID_PARAMETER_VALUE``: it is not in what the request says that it is in, or its address
            is not accepted.
    """
    uri = call.text("source")
    run = call.maybe_text("run_id") or ""
    model = call.maybe_text("model_id") or ""
    if prompt:
        if uri not in _PROMPTS:
            raise Refused(
                "INVALID_PARAMETER_VALUE",
                f"Invalid prompt source: '{uri}'. Prompt sources must use an MLflow placeholder.",
            )
        return Source(uri, uri, run, None, None)
    storage = uri
    if (scheme := urlsplit(uri).scheme) == "models":
        name, version = _version_of(call, session, uri)
        if name:
            row = find_version(session, name, version)
            if (call.fields.get("run_id") is not None and run != (row.run or "")) or call.fields.get(
                "model_id"
            ):
                raise Refused(
                    "INVALID_PARAMETER_VALUE",
                    f"Invalid model version source: '{uri}'. The run_id and model_id request parameters "
                    "must match the referenced model version.",
                )
            return Source(f"models:/{name}/{version}", row.storage or "", row.run or "", row.project, None)
        if urlsplit(uri).path.strip("/") != model:
            _refuse(uri, "model_id")
    _check_path(uri)
    logged = None
    if model:
        logged = _logged_model(call, session, model, uri)
    if logged is not None:
        message = json.loads(logged.message)["info"]
        place = message["artifact_uri"]
        run = run or logged.run
        if scheme == "models":
            storage = place
        elif scheme == "runs" or (_is_ours(uri) and not _is_within(uri, place)):
            _refuse(uri, "model_id")
    elif scheme == "runs" and (not run or urlsplit(uri).path.strip("/").split("/")[0] != run):
        _refuse(uri, "run_id")
    tracked = _run(call, session, run)
    if (
        logged is None
        and _is_ours(uri)
        and (tracked is None or not _is_within(uri, artifact_uri(tracked.artifacts, run)))
    ):
        _refuse(uri, "run_id")
    if scheme in ("", "file") and (
        tracked is None or not _is_within(uri, artifact_uri(tracked.artifacts, run))
    ):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid model version source: '{uri}'. To use a local path as a model version source, the "
            "run_id request parameter has to be specified and the local path has to be contained within "
            "the artifact directory of the run specified by the run_id.",
        )
    return Source(uri, storage, run, tracked.project if tracked else None, logged)


def note_version(call: Call, session: Session, logged: LoggedModelRow, name: str, number: int) -> None:
    """Note in a logged model which version it has become, as MLflow's own server does."""
    _, locked = logged_models.lock_models(session, [logged.id])
    message = json.loads(logged.message)
    tags = {tag["key"]: tag["value"] for tag in message["info"].get("tags", [])}
    versions = json.loads(tags.get("mlflow.modelVersions", "[]"))
    tags["mlflow.modelVersions"] = json.dumps([*versions, {"name": name, "version": number}])
    message["info"]["tags"] = [{"key": key, "value": value} for key, value in tags.items()]
    logged_models.change_model(call.state.store, locked[logged.run], logged, message)


def _version_of(call: Call, session: Session, uri: str) -> tuple[str, int]:
    """The model and version number that ``models:/NAME/…`` means; no name for ``models:/ID``."""
    parsed = urlsplit(uri)
    parts = parsed.path.lstrip("/").split("/")
    if (
        parsed.netloc
        or not parsed.path.startswith("/")
        or len(parts) > 2
        or not all(part.strip() for part in parts)
    ):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid model version source: '{uri}'. Give models:/NAME/VERSION or models:/MODEL_ID",
        )
    if len(parts) == 1 and "@" not in parts[0]:
        return "", 0
    if len(parts) == 2:
        name, suffix = parts
    else:
        name, suffix = parts[0].rsplit("@", 1)
    call.check(name, f"model {name!r}")
    model = find_model(session, name)
    if model.tags.get(PROMPT_TAG, "").lower() == "true":
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid model version source: '{uri}'. Prompt versions cannot be used as model version "
            "sources.",
        )
    if len(parts) == 1:
        aliases = aliases_of(session, model)
        if suffix not in aliases:
            raise Refused("INVALID_PARAMETER_VALUE", f"Registered model alias {suffix} not found.")
        return name, aliases[suffix]
    if suffix.isdecimal():
        return name, int(suffix)
    wanted = {stage.lower(): stage for stage in STAGES}.get(suffix.lower())
    numbers = [
        row.number
        for row in versions_of(session, name)
        if suffix.lower() == "latest" or row.mlflow_stage == wanted
    ]
    if not numbers:
        raise NotFound(f"model {name!r} has no version in {suffix!r}")
    return name, max(numbers)


def _logged_model(call: Call, session: Session, model: str, uri: str) -> LoggedModelRow:
    try:
        row = logged_models.find_model(session, model)
    except NotFound:
        _refuse(uri, "model_id")
    call.check(runs.find_run(session, row.run).project, f"model {model!r}")
    return row


def _run(call: Call, session: Session, run: str) -> Any:
    """Find a run by its id; None if it is not one of ours."""
    if not run:
        return None
    try:
        tracked = runs.find_run(session, run)
    except NotFound:
        return None
    call.check(tracked.project, f"run {run!r}")
    return tracked


def _check_path(uri: str) -> None:
    address = uri
    while (unquoted := unquote(address.replace("+", " "))) != address:
        address = unquoted
    path = re.sub("/+", "/", urlsplit(address).path.rstrip("/"))
    if "\0" in path or ".." in address.split("/") or "." in path.split("/"):
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Invalid model version source: '{uri}'. If supplying a source as an http, https, local file "
            "path, ftp, objectstore, or mlflow-artifacts uri, an absolute path must be provided without "
            "relative path references present. Please provide an absolute path.",
        )


def _is_ours(uri: str) -> bool:
    return urlsplit(uri).scheme == "mlflow-artifacts" or _PROXY.match(uri) is not None


def _is_within(uri: str, root: str) -> bool:
    return uri.rstrip("/") == root.rstrip("/") or uri.startswith(f"{root.rstrip('/')}/")


def _refuse(uri: str, field: str) -> NoReturn:
    raise Refused(
        "INVALID_PARAMETER_VALUE",
        f"Invalid model version source: '{uri}'. The {field} request parameter must identify the resource "
        "that contains the source.",
    )
