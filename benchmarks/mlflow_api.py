"""MLflow's API: our server and MLflow's own on SQLite, asked the same by the same client in turn."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2

from benchmarks.machine import CHECKOUT, Setting, settle
from benchmarks.peers.compare import MLFLOW
from benchmarks.peers.installs import environment, install
from benchmarks.peers.servers import running
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.server import SERVER

_TEXT = """
Our server on an empty embedded store and MLflow's own (`mlflow server` with SQLite and a folder, one worker and, in the rows that say so,
its usual four) run at once on this machine, and one client, which keeps its connection, asks one after the other the same in turn. What is
written is acknowledged when it is durable: ours is synced Parquet and a commit, MLflow's a commit of SQLite. The runs that are searched
have 10 metrics, 10 params and 3 tags each. Both have to give the same answers.
"""
_BEGAN = 1_700_000_000_000
_FILTERS = {
    "all, the newest first": {},
    "a page of 100": {"max_results": 100},
    "metrics.m1 > X and tags.t1 = '3'": {"filter": "metrics.m1 > {high} and tags.t1 = '3'"},
    "metrics.m1 > X": {"filter": "metrics.m1 > {high}"},
    "params.p1 LIKE '%1%', by metrics.m0": {"filter": "params.p1 LIKE '%1%'", "order_by": ["metrics.m0 DESC"]},
    "all, by metrics.m3": {"order_by": ["metrics.m3 ASC"]},
}


@dataclass
class _Api:
    """A server of MLflow's API, and what was made in it."""

    name: str
    client: httpx2.Client
    experiment: str = ""
    run: str = ""

    def post(self, endpoint: str, **fields: Any) -> dict[str, Any]:
        return _answer(self.client.post(f"/api/2.0/mlflow/{endpoint}", json=fields))

    def get(self, endpoint: str, **fields: Any) -> dict[str, Any]:
        return _answer(self.client.get(f"/api/2.0/mlflow/{endpoint}", params=fields))

    def begin(self) -> str:
        return str(self.post("runs/create", experiment_id=self.experiment, start_time=_BEGAN)["run"]["info"]["run_id"])


def measure(setting: Setting) -> Part:
    """Milliseconds of each request, ours and MLflow's. A quick run installs nothing, and measures ours alone where MLflow is missing."""
    part = Part("mlflow", "MLflow's API beside MLflow's own server", _TEXT)
    runs, rounds, each = setting.choose(20, 1_000), setting.choose(1, 5), setting.choose(2, 20)
    with ExitStack() as stack:
        apis = _servers(setting, part, stack)
        for api in apis:
            _fill(api, runs)
        batches, single = _batch(100), _batch(1)
        table = Table(["request", *(f"{api.name}, ms" for api in apis), "time ratio"], [], "Requests one after the other")
        asked: dict[str, Callable[[_Api, int], Any]] = {
            "log-batch of 100 metrics": lambda api, turn: api.post("runs/log-batch", run_id=api.run, metrics=batches(turn)),
            "log-metric": lambda api, turn: api.post("runs/log-metric", run_id=api.run, **single(turn)[0]),
            "runs/get": lambda api, turn: api.get("runs/get", run_id=api.run),
            **{f"search {runs:,} runs: {name}": _search(fields, runs) for name, fields in _FILTERS.items()},
            "get-history": lambda api, turn: api.get("metrics/get-history", run_id=api.run, metric_key="m1"),
        }
        for name, ask in asked.items():
            times = _times(apis, ask, rounds, min(each, 3) if name.startswith("search") else each)
            table.rows.append([name, *(spread(one) for one in times), _ratio(times)])
            if len(times) > 1 and name.startswith(("log-batch", "search")):
                ratios = [theirs / ours for ours, theirs in zip(*times[:2], strict=True)]
                part.targets.append(Target(f"MLflow's time by ours: {name}", "x", ratios, 1.0, at_most=False))
        part.tables.append(table)
        _check(apis, runs)
        settle()
        together = Table(
            ["clients", *(f"{api.name}, metrics/s" for api in apis), "rate ratio"], [], "log-batch of 100 metrics, clients at once"
        )
        for clients in (1, 8):
            rates = [[_rate(api, clients, setting.choose(4, 200)) for _ in range(rounds)] for api in apis]
            ratio = number(statistics.median(rates[0]) / statistics.median(rates[-1])) + "x" if len(rates) > 1 else ""
            together.rows.append([str(clients), *(spread(one) for one in rates), ratio])
        part.tables.append(together)
    return part


def _servers(setting: Setting, part: Part, stack: ExitStack) -> list[_Api]:
    """Ours and, where it can be installed, MLflow's, both running until the stack ends."""
    command = (sys.executable, "-c", SERVER, str(setting.work / "store"), "{port}")
    _, port = stack.enter_context(running("Halving", command, CHECKOUT, os.environ, _is_ready))
    ports = {"Halving": port}
    installed = install(setting.home / "mlflow", MLFLOW, "mlflow", allowed=not setting.quick)
    if installed.python is None:
        part.missing.append(f"MLflow's own server: {installed.reason}")
    else:
        folder = setting.work / "mlflow"
        folder.mkdir()
        for name, workers in (("MLflow", "1"), ("MLflow, 4 workers", "4")):
            database, files = f"sqlite:///{folder}/{workers}.db", str(folder / f"files-{workers}")
            command = (
                str(installed.python),
                *("-m", "mlflow", "server", "--backend-store-uri", database, "--artifacts-destination", files),
                *("--workers", workers, "--port", "{port}"),
            )
            _, ports[name] = stack.enter_context(running(name, command, folder, environment(folder), _is_ready))
    settle()
    clients = {name: httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) for name, port in ports.items()}
    return [_Api(name, stack.enter_context(client)) for name, client in clients.items()]


def _is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/health", timeout=10).status_code == 200
    except httpx2.TransportError:
        return False


def _fill(api: _Api, runs: int) -> None:
    api.experiment = api.post("experiments/create", name="bench")["experiment_id"]
    for place in range(runs):
        started = {"start_time": _BEGAN + place, "run_name": f"run {place}"}
        run = api.post("runs/create", experiment_id=api.experiment, **started)["run"]["info"]["run_id"]
        metrics = [{"key": f"m{key}", "value": place / (key + 1), "timestamp": _BEGAN, "step": 0} for key in range(10)]
        params = [{"key": f"p{key}", "value": str(place * key)} for key in range(10)]
        tags = [{"key": f"t{key}", "value": str(place % 7)} for key in range(3)]
        api.post("runs/log-batch", run_id=run, metrics=metrics, params=params, tags=tags)
    other = api.post("experiments/create", name="logging")["experiment_id"]
    api.run = api.post("runs/create", experiment_id=other, start_time=_BEGAN)["run"]["info"]["run_id"]


def _batch(size: int) -> Callable[[int], list[dict[str, Any]]]:
    """Metrics of ten names, with new steps each time."""

    def made(turn: int) -> list[dict[str, Any]]:
        return [{"key": f"m{at % 10}", "value": at / 7, "timestamp": _BEGAN + turn, "step": turn * size + at} for at in range(size)]

    return made


def _search(fields: Mapping[str, Any], runs: int) -> Callable[[_Api, int], Any]:
    given = {name: value.format(high=0.49 * runs) if isinstance(value, str) else value for name, value in fields.items()}
    return lambda api, turn: api.post("runs/search", **{"experiment_ids": [api.experiment], "max_results": 1_000, **given})


def _times(apis: Sequence[_Api], ask: Callable[[_Api, int], Any], rounds: int, each: int) -> list[list[float]]:
    """Median milliseconds of each round, by server; the servers take turns."""
    found: list[list[float]] = [[] for _ in apis]
    for api in apis:
        ask(api, 0)  # its first imports are nobody's
    for turn in range(rounds):
        for api, own in zip(apis, found, strict=True):
            took = []
            for place in range(each):
                began = time.perf_counter()
                ask(api, 1 + turn * each + place)
                took.append(1_000 * (time.perf_counter() - began))
            own.append(statistics.median(took))
    return found


def _rate(api: _Api, clients: int, requests: int) -> float:
    """Metrics a second that clients at once log, each into a run of its own."""
    batch, names = _batch(100), [api.begin() for _ in range(clients)]

    def log(run: str) -> None:
        with httpx2.Client(base_url=api.client.base_url, timeout=300) as client:
            own = _Api(api.name, client)
            for turn in range(requests // clients):
                own.post("runs/log-batch", run_id=run, metrics=batch(turn))

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(log, names))
    return 100 * (requests // clients) * clients / (time.perf_counter() - began)


def _check(apis: Sequence[_Api], runs: int) -> None:
    """Hold the servers to the same answers.

    Raises:
        RuntimeError: they differ.
    """
    for name, fields in _FILTERS.items():
        found = [[run["info"]["run_name"] for run in _search(fields, runs)(api, 0).get("runs", [])] for api in apis]
        if any(other != found[0] for other in found):
            raise RuntimeError(f"search, {name}: the servers give {[len(one) for one in found]} runs, or not the same")
    histories = [api.get("metrics/get-history", run_id=api.run, metric_key="m1")["metrics"] for api in apis]
    if any(other != histories[0] for other in histories):
        raise RuntimeError(f"get-history: the servers give {[len(one) for one in histories]} values, or not the same")


def _answer(answer: httpx2.Response) -> dict[str, Any]:
    if answer.status_code != 200:
        raise RuntimeError(f"{answer.request.url}: {answer.status_code} {answer.text[:300]}")
    found: dict[str, Any] = answer.json()
    return found


def _ratio(times: Sequence[Sequence[float]]) -> str:
    """How much longer MLflow takes than ours."""
    return f"{number(statistics.median(times[1]) / statistics.median(times[0]))}x" if len(times) > 1 else ""
