"""The timed requests of a client of MLflow's API: the same code for every server.

It runs in a process of its own.
"""

import hashlib
import http.client
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

FILTER = "metrics.loss < 0.5 and params.optimizer = 'adam'"
ORDER = ["metrics.loss ASC"]
CLIENTS = 8
_METRICS = 100  # of a batch
_PAGE = 100
_BASE = "/api/2.0/mlflow/"
_ARTIFACT_BYTES = 10 << 20  # bytes of an artifact
_IDLE = 2.0  # seconds; servers close a connection that was idle for some

Timed = dict[str, list[float]]


class Caller:
    """Asks over one connection, which stays open while it is used."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self._used = time.monotonic()

    def post(self, endpoint: str, content: Mapping[str, Any]) -> Any:
        """A POST to an endpoint of runs, experiments or metrics."""
        return json.loads(self.send("POST", _BASE + endpoint, json.dumps(content).encode()))

    def get(self, endpoint: str, **query: str) -> Any:
        return json.loads(self.send("GET", f"{_BASE}{endpoint}?{urlencode(query)}"))

    def send(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> bytes:
        """The body of the answer.

        Raises:
            RuntimeError: it is not 200.
        """
        if time.monotonic() - self._used > _IDLE:
            self._connection.close()  # the next request opens it again
        self._connection.request(method, path, body, {"Content-Type": kind} if body is not None else {})
        answer = self._connection.getresponse()
        content = answer.read()
        self._used = time.monotonic()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:500]!r}")
        return content


def ask(*, port: int, runs: int, calls: int, points: int) -> dict[str, Any]:
    """Ask a server on an empty store.

    Args:
        runs: how many a search goes over.
        calls: how often a batch of 100 metrics is logged; the other questions are asked a share of that.
        points: of the history that is read.

    Returns:
        ``seconds``: of each call, by question. ``answers``: what was answered, in a form that every server
            must give alike.
    """
    caller = Caller(port)
    seconds = Timed()
    experiment = caller.post("experiments/create", {"name": "bench"})["experiment_id"]
    answers: dict[str, Any] = {}
    _log(caller, experiment, calls, seconds, answers)
    _history(caller, experiment, calls, points, seconds, answers)
    _at_once(port, caller, experiment, calls, seconds)
    _artifact(caller, experiment, calls, seconds, answers)
    _search(caller, _fill(caller, runs), calls, seconds, answers)
    _with_client(port, experiment, answers["searched"], calls, seconds, answers)
    return {"seconds": seconds, "answers": answers}


def _log(caller: Caller, experiment: str, calls: int, seconds: Timed, answers: dict[str, Any]) -> None:
    run = _begin(caller, experiment, "logs")
    for title, metrics, count in (
        ("log-batch, 100 metrics", _METRICS, calls),
        ("log-batch, 1,000 metrics", 1_000, calls // 5),
    ):
        bodies = [{"run_id": run, "metrics": _batch(step, metrics)} for step in range(count)]
        seconds[title] = [_time_of(partial(caller.post, "runs/log-batch", body)) for body in bodies]
    singles = [{"run_id": run, **_batch(step, 1)[0], "key": "single"} for step in range(calls)]
    seconds["log-metric"] = [_time_of(partial(caller.post, "runs/log-metric", body)) for body in singles]
    seconds["get-run"] = [_time_of(lambda: caller.get("runs/get", run_id=run)) for _ in range(calls)]
    answers["run"] = _comparable(caller.get("runs/get", run_id=run)["run"])


def _history(
    caller: Caller, experiment: str, calls: int, points: int, seconds: Timed, answers: dict[str, Any]
) -> None:
    run = _begin(caller, experiment, "history")
    for begins in range(0, points, 1_000):
        steps = range(begins, min(begins + 1_000, points))
        metrics = [
            {"key": "loss", "value": 1 / (step + 1), "timestamp": 1_000_000 + step, "step": step}
            for step in steps
        ]
        caller.post("runs/log-batch", {"run_id": run, "metrics": metrics})

    def read() -> Any:
        return caller.get("metrics/get-history", run_id=run, metric_key="loss")["metrics"]

    seconds[f"get-history, {points:,} points"] = [_time_of(read) for _ in range(max(2, calls // 10))]
    answers["history"] = [[point["timestamp"], int(point.get("step", 0)), point["value"]] for point in read()]


def _at_once(port: int, caller: Caller, experiment: str, calls: int, seconds: Timed) -> None:
    def log(run: str) -> list[float]:
        own = Caller(port)
        bodies = [{"run_id": run, "metrics": _batch(step, _METRICS)} for step in range(max(2, calls // 5))]
        return [_time_of(partial(own.post, "runs/log-batch", body)) for body in bodies]

    runs = [_begin(caller, experiment, f"client {place}") for place in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        seconds[f"log-batch, 100 metrics, {CLIENTS} clients at once"] = [
            spent for each in threads.map(log, runs) for spent in each
        ]


def _artifact(caller: Caller, experiment: str, calls: int, seconds: Timed, answers: dict[str, Any]) -> None:
    run = _begin(caller, experiment, "artifacts")
    root = f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts"
    # none is another's: ours are kept once
    contents = [random.Random(place).randbytes(_ARTIFACT_BYTES) for place in range(max(2, calls // 20))]
    seconds["upload of 10 MB"] = [
        _time_of(partial(caller.send, "PUT", f"{root}/file-{place}.bin", body, "application/octet-stream"))
        for place, body in enumerate(contents)
    ]
    read = caller.send("GET", f"{root}/{quote('file-0.bin')}")
    answers["artifact"] = [hashlib.sha256(content).hexdigest() for content in (read, contents[0])]


def _fill(caller: Caller, runs: int) -> str:
    """Make an experiment with so many runs, each with five metrics and five params."""
    experiment: str = caller.post("experiments/create", {"name": "searched"})["experiment_id"]
    source = random.Random(0)
    for place in range(runs):
        run = _begin(caller, experiment, f"run {place}", 1_700_000_000_000 + place)
        metrics = [
            {"key": key, "value": source.random(), "timestamp": 1_000_000, "step": 0}
            for key in ("loss", "a", "b", "c", "d")
        ]
        params = {
            "optimizer": source.choice(("adam", "sgd")),
            "lr": str(source.random()),
            "layers": "3",
            "width": "64",
            "seed": str(place),
        }
        listed = [{"key": key, "value": value} for key, value in params.items()]
        caller.post("runs/log-batch", {"run_id": run, "metrics": metrics, "params": listed})
    return experiment


def _search(caller: Caller, experiment: str, calls: int, seconds: Timed, answers: dict[str, Any]) -> None:
    def search(**more: Any) -> list[dict[str, Any]]:
        request = {"experiment_ids": [experiment], "max_results": 1_000, **more}
        runs: list[dict[str, Any]] = []
        while True:
            answer = caller.post("runs/search", request)
            runs += answer.get("runs", [])
            if not (token := answer.get("next_page_token")):
                return runs
            request["page_token"] = token

    variants: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "search, no filter": search,
        "search, filter and order": lambda: search(filter=FILTER, order_by=ORDER),
        "search, filter": lambda: search(filter=FILTER),
        "search, order by a metric": lambda: search(order_by=ORDER),
        "search, filter and order, first 10": lambda: _first(caller, experiment),
        "search, pages of 100, all of them": lambda: search(max_results=_PAGE),
        "search, filter, order, pages of 100": lambda: search(
            filter=FILTER, order_by=ORDER, max_results=_PAGE
        ),
    }
    seconds["the first search with a filter"] = [_time_of(variants["search, filter and order"])]
    for title, variant in variants.items():
        seconds[title] = [_time_of(variant) for _ in range(max(2, calls // 10))]
        answers[title] = [_comparable(run) for run in variant()]
    answers["searched"] = experiment


def _first(caller: Caller, experiment: str) -> list[dict[str, Any]]:
    request = {"experiment_ids": [experiment], "max_results": 10, "filter": FILTER, "order_by": ORDER}
    runs: list[dict[str, Any]] = caller.post("runs/search", request).get("runs", [])
    return runs


def _with_client(
    port: int, experiment: str, searched: str, calls: int, seconds: Timed, answers: dict[str, Any]
) -> None:
    """Ask the same by MLflow's own client, if its package is installed."""
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric
    except ImportError:
        return
    client = MlflowClient(f"http://127.0.0.1:{port}")
    run = client.create_run(experiment).info.run_id
    batches = [[Metric(**entity) for entity in _batch(step, _METRICS)] for step in range(max(2, calls // 2))]
    client.log_batch(run, metrics=batches[0])  # the connection
    seconds["MlflowClient.log_batch, 100 metrics"] = [
        _time_of(partial(client.log_batch, run, metrics=batch, synchronous=True)) for batch in batches
    ]
    title = "MlflowClient.search_runs, filter and order"
    seconds[title] = [
        _time_of(lambda: client.search_runs([searched], FILTER, order_by=ORDER))
        for _ in range(max(2, calls // 10))
    ]
    answers[title] = [
        entity.info.run_name for entity in client.search_runs([searched], FILTER, order_by=ORDER)
    ]


def _begin(caller: Caller, experiment: str, name: str, started: int = 1_700_000_000_000) -> str:
    made = caller.post(
        "runs/create",
        {"experiment_id": experiment, "run_name": name, "start_time": started, "user_id": "ada"},
    )
    return str(made["run"]["info"]["run_id"])


def _batch(step: int, count: int) -> list[dict[str, Any]]:
    """Metrics of 100 keys."""
    source = random.Random(step)
    now = 1_000_000 + step
    return [
        {
            "key": f"train/metric_{place % _METRICS}",
            "value": source.random(),
            "timestamp": now,
            "step": 10 * step + place // _METRICS,
        }
        for place in range(count)
    ]


def _time_of(question: Callable[[], object]) -> float:
    began = time.perf_counter()
    question()
    return time.perf_counter() - began


def _comparable(run: Mapping[str, Any]) -> list[Any]:
    """A run without what differs between servers: ids, times of changes, and MLflow's own tags."""
    data = run.get("data", {})
    info = run["info"]
    kept: Sequence[Any] = [
        sorted(
            [entry["key"], entry["value"], int(entry["timestamp"]), int(entry.get("step", 0))]
            for entry in data.get("metrics", [])
        ),
        sorted([entry["key"], entry["value"]] for entry in data.get("params", [])),
        sorted([entry["key"], entry["value"]] for entry in data.get("tags", [])),
    ]
    return [info["run_name"], info["status"], int(info["start_time"]), info["lifecycle_stage"], *kept]
