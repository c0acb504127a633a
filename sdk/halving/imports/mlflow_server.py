"""An MLflow tracking server, by its REST API (https://mlflow.org/docs/latest/api_reference/rest-api.html)."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlencode, urlsplit

from halving.imports.foreign_run import SourceUnreadable
from halving.imports.mlflow_source import Entry, Experiment, MlflowFile, MlflowRun
from halving.imports.reading import Unreadable, readable

_PAGE = 1_000  # runs or experiments
_HISTORY_PAGE = 25_000
_TRACES = 500  # a server's limit of one answer
_TRACED_EXPERIMENTS = 100  # in one request
_SECONDS = 120.0
_LOGIN = "; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _NoSuchEndpoint(SourceUnreadable):
    """The server does not know this path."""


class Server:
    """The runs of a tracking server.

    Args:
        address: ``http://host:port``, perhaps with a path and with ``user:password@``. Without the latter
            ``MLFLOW_TRACKING_USERNAME`` and ``MLFLOW_TRACKING_PASSWORD`` count, or ``MLFLOW_TRACKING_TOKEN``.
    """

    schemes: Collection[str] = ("", "file", "mlflow-artifacts", "http", "https")

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
        self._base = parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")
        self._headers = _authorization(parts.username, parts.password)

    def experiments(self) -> list[Experiment | Unreadable]:
        """The experiments that are not deleted."""
        return [
            readable(str(row.get("experiment_id", "an experiment")), partial(_experiment, row))
            for row in self._experiment_rows()
        ]

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun | Unreadable]:
        """The runs of an experiment that are not deleted, by the time of their start."""
        body = {
            "experiment_ids": [experiment.id],
            "max_results": _PAGE,
            "order_by": ["attributes.start_time ASC"],
        }
        for row in self._post_pages("runs/search", "runs", body):
            yield readable(str(row.get("info", {}).get("run_id", "a run")), partial(_run, row))

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        """All values of a metric, in the order of their times."""
        query = {"run_id": run.id, "metric_key": metric, "max_results": _HISTORY_PAGE}
        for row in self._get_pages("metrics/get-history", "metrics", query):
            yield Entry(int(row.get("step", 0)), int(row["timestamp"]), _number(row["value"]))

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        """All artifacts of a run."""
        folders = [""]
        while folders:
            query = {"run_id": run.id}
            if folder := folders.pop():
                query["path"] = folder
            for row in self._get_pages("artifacts/list", "files", query):
                if row.get("is_dir"):
                    folders.append(row["path"])
                    continue
                size = None
                if "file_size" in row:
                    size = int(row["file_size"])
                yield MlflowFile(row["path"], partial(self._fetch, run.id, row["path"]), size)

    def left_out(self) -> dict[str, int]:
        """Count what the server has and is not copied, by its name in plain words."""
        rows = list(self._experiment_rows())
        experiments = [row["experiment_id"] for row in rows if "experiment_id" in row]
        numbers = {
            "deleted experiments": self._count_deleted_experiments(),
            "deleted runs": self._count_deleted_runs(experiments),
            "tags of experiments": sum(len(row.get("tags", [])) for row in rows),
        }
        with contextlib.suppress(SourceUnreadable):  # a server without a registry
            numbers["registered models"] = self._count_registered_models()
        with contextlib.suppress(SourceUnreadable):  # before MLflow 3
            numbers["logged models"] = self._count_logged_models(experiments)
        with contextlib.suppress(SourceUnreadable):  # before MLflow 2.14
            numbers["traces"] = self._count_traces(experiments)
        return {reason: count for reason, count in numbers.items() if count}

    def _experiment_rows(self) -> Iterator[Any]:
        return self._post_pages("experiments/search", "experiments", {"max_results": _PAGE})

    def _count_deleted_experiments(self) -> int:
        body = {"max_results": _PAGE, "view_type": "DELETED_ONLY"}
        return sum(1 for _ in self._post_pages("experiments/search", "experiments", body))

    def _count_deleted_runs(self, experiments: list[str]) -> int:
        if not experiments:
            return 0
        body = {"experiment_ids": experiments, "run_view_type": "DELETED_ONLY", "max_results": _PAGE}
        return sum(1 for _ in self._post_pages("runs/search", "runs", body))

    def _count_registered_models(self) -> int:
        query = {"max_results": 100}
        return sum(1 for _ in self._get_pages("registered-models/search", "registered_models", query))

    def _count_logged_models(self, experiments: list[str]) -> int:
        if not experiments:
            return 0
        body = {"experiment_ids": experiments}
        return sum(1 for _ in self._post_pages("logged-models/search", "models", body))

    def _count_traces(self, experiments: list[str]) -> int:
        parts = [
            experiments[first : first + _TRACED_EXPERIMENTS]
            for first in range(0, len(experiments), _TRACED_EXPERIMENTS)
        ]
        try:
            return sum(1 for part in parts for _ in self._traces(part))
        except _NoSuchEndpoint:  # from MLflow 2.14 on there are traces, at another address until 3
            return sum(1 for part in parts for _ in self._traces_before_3(part))

    def _traces(self, experiments: list[str]) -> Iterator[Any]:
        locations = [
            {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
            for experiment in experiments
        ]
        body = {"locations": locations, "max_results": _TRACES}
        return self._post_pages("traces/search", "traces", body, version="3.0")

    def _traces_before_3(self, experiments: list[str]) -> Iterator[Any]:
        query = {"experiment_ids": experiments, "max_results": _TRACES}
        return self._get_pages("traces", "traces", query)

    def _get_pages(self, path: str, field: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """The items of a list that the server gives page by page, to requests by GET."""

        def fetch(query: Mapping[str, Any]) -> dict[str, Any]:
            with self._open(f"api/2.0/mlflow/{path}?{urlencode(query, doseq=True)}") as answer:
                return _json(answer, path)

        return _pages(fetch, field, query)

    def _post_pages(
        self, path: str, field: str, body: Mapping[str, Any], version: str = "2.0"
    ) -> Iterator[Any]:
        """The items of a list that the server gives page by page, to requests by POST."""

        def fetch(body: Mapping[str, Any]) -> dict[str, Any]:
            with self._open(f"api/{version}/mlflow/{path}", json.dumps(body).encode()) as answer:
                return _json(answer, path)

        return _pages(fetch, field, body)

    @contextmanager
    def _fetch(self, run: str, path: str) -> Iterator[bytes | Path]:
        with tempfile.NamedTemporaryFile() as copy:
            with self._open(f"get-artifact?{urlencode({'run_uuid': run, 'path': path})}") as answer:
                shutil.copyfileobj(answer, copy)
                announced = answer.headers.get("Content-Length")
            if announced is not None and copy.tell() != int(announced):
                # Reading in parts raises no error when the end is missing.
                raise SourceUnreadable(
                    f"{self._base} broke off in {path!r}, after {copy.tell()} of {announced} bytes: import "
                    "it again"
                )
            copy.flush()
            yield Path(copy.name)

    @contextmanager
    def _open(self, path: str, body: bytes | None = None) -> Iterator[http.client.HTTPResponse]:
        """Send a request, and give the server's answer.

        Raises:
            SourceUnreadable: the server does not answer, or refuses.
        """
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self._base}/{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                content = error.read(2_000).decode(errors="replace")
            message = f"{self._base} answers {error.code} to {path.partition('?')[0]}: {_message(content)}"
            if error.code in (401, 403):
                message += _LOGIN
            if error.code in (404, 405):
                raise _NoSuchEndpoint(message) from None
            raise SourceUnreadable(message) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # A ValueError comes from an answer that is no HTTP at all.
            if isinstance(error, SourceUnreadable):
                raise
            reason = getattr(error, "reason", error)
            raise SourceUnreadable(
                f"{self._base} does not answer ({reason}); is MLflow's server running there?"
            ) from None


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    user = unquote(user or "") or os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = unquote(password or "") or os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    if user:
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    if token:
        return {"Authorization": f"Bearer {token}"}
    return {}


def _pages(
    fetch: Callable[[Mapping[str, Any]], dict[str, Any]], field: str, request: Mapping[str, Any]
) -> Iterator[Any]:
    """The items in ``field`` of all pages; each page but the last has the token of the next one."""
    while True:
        page = fetch(request)
        yield from page.get(field, [])
        token = page.get("next_page_token")
        if not token:
            return
        request = {**request, "page_token": token}


def _experiment(row: dict[str, Any]) -> Experiment:
    return Experiment(row["experiment_id"], row["name"])


def _run(row: dict[str, Any]) -> MlflowRun:
    info = row["info"]
    data = row.get("data", {})
    tags = {tag["key"]: tag.get("value", "") for tag in data.get("tags", [])}
    inputs = row.get("inputs", {}).get("dataset_inputs", [])
    datasets = [dataset_input["dataset"] for dataset_input in inputs]
    ended = None
    if info.get("end_time"):
        ended = int(info["end_time"])
    return MlflowRun(
        id=info["run_id"],
        name=info.get("run_name") or tags.get("mlflow.runName", ""),
        status=info.get("status", "RUNNING"),
        started=int(info.get("start_time", 0)),
        ended=ended,
        artifact_uri=info.get("artifact_uri", ""),
        params={param["key"]: param.get("value", "") for param in data.get("params", [])},
        tags=tags,
        metrics=sorted({metric["key"] for metric in data.get("metrics", [])}),
        contexts=sum(len(dataset_input.get("tags", [])) for dataset_input in inputs),
        datasets=[f"{dataset.get('name', '')}@{dataset.get('digest', '')}" for dataset in datasets],
    )


def _number(value: Any) -> float:
    if isinstance(value, str) and value in _NUMBERS:
        return _NUMBERS[value]
    return float(value)


def _json(answer: IO[bytes], path: str) -> dict[str, Any]:
    """Parse the answer of a server.

    Raises:
        SourceUnreadable: it is no JSON object, as where something else than MLflow answers.
    """
    try:
        content = json.load(answer)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise SourceUnreadable(f"what answers to {path} is not MLflow's server: its answer is no JSON object")
    return content


def _message(content: str) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        if "<html" in content:
            return "a page, not MLflow's words; is the address MLflow's?"
        return content[:200].strip() or "nothing more"
