"""The table of MLflow's endpoints, and why some are not supported."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from server.mlflow import (
    artifacts,
    datasets,
    experiments,
    history,
    logged_models,
    model_search,
    model_versions,
    recording,
    registered_models,
    registry_search,
    runs,
    search,
)
from server.mlflow.call import Call

AnswerFunction = Callable[[Call], dict[str, Any] | bytes]


class Endpoint(NamedTuple):
    """A supported endpoint.

    Attributes:
        answer: answers a call with a message, or with its JSON.
        is_logged: whether each call is in the write log. What training code logs many times a second is in
            the run's own files.
        publishes: whether it changes what the store says of models.
        reads: whether a POST changes nothing, because it asks for more than fits into a URL.
        looks: whether it asks the catalog about many runs, and so takes turns with other questions.
        about: for the table in the documentation.
    """

    answer: AnswerFunction
    is_logged: bool = False
    publishes: bool = False
    reads: bool = False
    looks: bool = False
    about: str = ""


_PRESIGNED = "artifacts go through the server: clients need none of the store's credentials"

ENDPOINTS: dict[tuple[str, str], Endpoint] = {
    ("POST", "experiments/create"): Endpoint(
        experiments.create, is_logged=True, about="an experiment is a project"
    ),
    ("GET", "experiments/get"): Endpoint(experiments.get),
    ("GET", "experiments/get-by-name"): Endpoint(experiments.get_by_name),
    ("GET", "experiments/search"): Endpoint(experiments.search),
    ("POST", "experiments/search"): Endpoint(experiments.search, reads=True),
    ("POST", "experiments/search-datasets"): Endpoint(
        datasets.search, reads=True, looks=True, about="those that runs have logged"
    ),
    ("POST", "experiments/update"): Endpoint(
        experiments.update, is_logged=True, about="the name; the project stays"
    ),
    ("POST", "experiments/delete"): Endpoint(
        experiments.delete,
        is_logged=True,
        about="with its runs, into the trash (the shipped policy removes them after 30 days)",
    ),
    ("POST", "experiments/restore"): Endpoint(experiments.restore, is_logged=True),
    ("POST", "experiments/set-experiment-tag"): Endpoint(experiments.set_tag, is_logged=True),
    ("POST", "experiments/delete-experiment-tag"): Endpoint(experiments.delete_tag, is_logged=True),
    ("POST", "runs/create"): Endpoint(runs.create),
    ("GET", "runs/get"): Endpoint(runs.get),
    ("POST", "runs/update"): Endpoint(
        runs.update, about="one that runs again after its end begins another attempt"
    ),
    ("POST", "runs/delete"): Endpoint(runs.delete, is_logged=True),
    ("POST", "runs/restore"): Endpoint(runs.restore, is_logged=True),
    ("POST", "runs/search"): Endpoint(search.search, reads=True, looks=True),
    ("POST", "runs/log-batch"): Endpoint(recording.log_batch),
    ("POST", "runs/log-metric"): Endpoint(recording.log_metric),
    ("POST", "runs/log-parameter"): Endpoint(recording.log_parameter),
    ("POST", "runs/log-inputs"): Endpoint(recording.log_inputs, about="datasets and models"),
    ("POST", "runs/log-model"): Endpoint(
        recording.log_model, about="by MLflow 2: noted in a tag; MLflow 3 sends logged models"
    ),
    ("POST", "runs/set-tag"): Endpoint(recording.set_tag),
    ("POST", "runs/delete-tag"): Endpoint(recording.delete_tag),
    ("GET", "metrics/get-history"): Endpoint(history.get_history, about="until retention drops the points"),
    ("GET", "metrics/get-history-bulk-interval"): Endpoint(history.get_history_bulk_interval),
    ("GET", "artifacts/list"): Endpoint(artifacts.list_of_run),
    ("POST", "runs/outputs"): Endpoint(logged_models.log_outputs),
    ("POST", "logged-models"): Endpoint(logged_models.create, about="without a run it gets one of its own"),
    ("POST", "logged-models/search"): Endpoint(
        model_search.search, reads=True, about="clauses joined by AND"
    ),
    ("GET", "logged-models/{model_id}"): Endpoint(logged_models.get),
    ("PATCH", "logged-models/{model_id}"): Endpoint(logged_models.finalize),
    ("DELETE", "logged-models/{model_id}"): Endpoint(
        logged_models.delete, is_logged=True, about="its files stay"
    ),
    ("POST", "logged-models/{model_id}/params"): Endpoint(logged_models.log_params),
    ("PATCH", "logged-models/{model_id}/tags"): Endpoint(logged_models.set_tags),
    ("DELETE", "logged-models/{model_id}/tags/{tag_key}"): Endpoint(logged_models.delete_tag),
    ("GET", "logged-models/{model_id}/artifacts/directories"): Endpoint(logged_models.list_files),
    ("POST", "registered-models/create"): Endpoint(registered_models.create, is_logged=True, publishes=True),
    ("GET", "registered-models/get"): Endpoint(registered_models.get),
    ("GET", "registered-models/search"): Endpoint(registry_search.search_models),
    ("PATCH", "registered-models/update"): Endpoint(
        registered_models.update, is_logged=True, publishes=True, about="the description"
    ),
    ("POST", "registered-models/rename"): Endpoint(
        registered_models.rename, is_logged=True, publishes=True, about="not a sweep's"
    ),
    ("DELETE", "registered-models/delete"): Endpoint(
        registered_models.delete, is_logged=True, publishes=True, about="not a sweep's"
    ),
    ("GET", "registered-models/get-latest-versions"): Endpoint(registered_models.get_latest_versions),
    ("POST", "registered-models/get-latest-versions"): Endpoint(
        registered_models.get_latest_versions, reads=True
    ),
    ("POST", "registered-models/set-tag"): Endpoint(
        registered_models.set_tag, is_logged=True, publishes=True
    ),
    ("DELETE", "registered-models/delete-tag"): Endpoint(
        registered_models.delete_tag, is_logged=True, publishes=True
    ),
    ("POST", "registered-models/alias"): Endpoint(
        registered_models.set_alias, is_logged=True, publishes=True, about="`champion` promotes"
    ),
    ("DELETE", "registered-models/alias"): Endpoint(
        registered_models.delete_alias, is_logged=True, publishes=True
    ),
    ("GET", "registered-models/alias"): Endpoint(registered_models.get_by_alias),
    ("POST", "model-versions/create"): Endpoint(model_versions.create, is_logged=True, publishes=True),
    ("GET", "model-versions/get"): Endpoint(model_versions.get),
    ("GET", "model-versions/search"): Endpoint(registry_search.search_versions),
    ("PATCH", "model-versions/update"): Endpoint(
        model_versions.update, is_logged=True, publishes=True, about="the description"
    ),
    ("POST", "model-versions/transition-stage"): Endpoint(
        model_versions.transition_stage, is_logged=True, publishes=True, about="Production is our champion"
    ),
    ("DELETE", "model-versions/delete"): Endpoint(
        model_versions.delete, is_logged=True, publishes=True, about="not a sweep's"
    ),
    ("GET", "model-versions/get-download-uri"): Endpoint(model_versions.get_download_uri),
    ("POST", "model-versions/set-tag"): Endpoint(model_versions.set_tag, is_logged=True, publishes=True),
    ("DELETE", "model-versions/delete-tag"): Endpoint(
        model_versions.delete_tag, is_logged=True, publishes=True
    ),
}
"""By method and path below ``/api/2.0/mlflow/``."""

PROXY: dict[tuple[str, str], str] = {
    ("GET", "artifacts"): "list",
    ("GET", "artifacts/<path:artifact_path>"): "get",
    ("PUT", "artifacts/<path:artifact_path>"): "put",
    ("DELETE", "artifacts/<path:artifact_path>"): "delete",
    ("POST", "mpu/create/<path:artifact_path>"): "upload in parts",
    ("POST", "mpu/complete/<path:artifact_path>"): "upload in parts",
    ("POST", "mpu/abort/<path:artifact_path>"): "upload in parts",
}
"""Of the proxy of artifacts, below ``/api/2.0/mlflow-artifacts/``: they are routes, because their bodies are
streams.
"""

PAGE: dict[tuple[str, str], Endpoint] = {
    ("GET", "metrics/get-history-bulk"): Endpoint(history.get_history_bulk),
}
"""Of MLflow's own page, which its descriptors do not name; by method and path as above."""

NOT_YET = "not yet"
REASONS: dict[str, str] = {
    "artifacts/presigned": _PRESIGNED,
    "presigned": _PRESIGNED,
    "traces": "traces of language models are not runs",
    "trace": "traces of language models are not runs",
    "get-online-trace-details": "traces of language models are not runs",
    "unified-traces": "traces of language models are not runs",
    "assessments": "traces of language models are not runs",
    "workspaces": "a token is limited to projects instead",
    "datasets": "evaluation datasets of language models; the datasets that runs log are taken",
    "scorers": "evaluation of language models",
    "issues": "evaluation of language models",
    "review-queues": "evaluation of language models",
    "label-schemas": "evaluation of language models",
    "prompt-optimization": "evaluation of language models",
    "gateway": "a gateway to language models",
    "endpoints": "a gateway to language models",
    "secrets": "a gateway to language models",
    "webhooks": f"{NOT_YET}: nobody is told of changes of the registry",
}
"""Why an endpoint is not answered, by the beginning of its path; the longest counts."""


_NAMED = re.compile(r"(logged-models)/(?!search$)([^/]+)(/tags/(.+)|/.*)?")


def find_endpoint(method: str, path: str) -> tuple[Endpoint | None, dict[str, str]]:
    """Find the endpoint for a path, and the parameters in the path."""
    match = _NAMED.fullmatch(path)
    if match is None:
        return ENDPOINTS.get((method, path)) or PAGE.get((method, path)), {}
    named = {"model_id": match[2]}
    rest = match[3] or ""
    if match[4]:
        named["tag_key"] = match[4]
        rest = "/tags/{tag_key}"
    return ENDPOINTS.get((method, f"{match[1]}/{{model_id}}{rest}")), named


def reason_of(path: str) -> str | None:
    """Why an MLflow endpoint is not supported; None for a path that is no endpoint of MLflow."""
    prefix = max((prefix for prefix in REASONS if path.startswith(prefix)), key=len, default="")
    return REASONS.get(prefix)
