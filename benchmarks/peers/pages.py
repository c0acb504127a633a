"""The same curves on Halving's page and on other trackers' pages, in one browser, in turn."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from benchmarks import page, server, server_process
from benchmarks.machine import CHECKOUT, ChildFailed, Setting, in_child, run_json
from benchmarks.peers.compare import MLFLOW, TENSORBOARD
from benchmarks.peers.installs import environment, install
from benchmarks.results import Part, Table, number, spread
from benchmarks.stores import PROJECT
from tests.browser import CHROMIUM, chromium
from tests.ports import free_port
from tests.waiting import wait_for

_TEXT = """
100 runs x 10 metrics x 1,000 points of noisy losses in each tracker's own files (MLflow's in SQLite), its
server newly started on this machine. *An answer* is what its page asks for to draw one metric of all runs,
sent by a client without a browser, after the same for another metric, so that no server pays for its first
imports. *A page* is opened in headless Chromium at the address that shows one metric of all runs, and is done
when for two seconds no request is under way and its main thread computes a tenth of the time at most; these
are not counted. optuna-dashboard knows one metric, a trial's intermediate values, and draws it among other
figures.
"""
_PROGRAM = (
    "import runpy, sys; sys.path.append(sys.argv[2]); runpy.run_module(sys.argv[3], run_name='__main__')"
)
_QUIET = 2.0
_IDLE = 0.1  # of a core
_OPTUNA_DASHBOARD = (("optuna-dashboard==0.21.0", "optuna==5.0.0"),)
_MAX_SECONDS = 240.0


@dataclass(frozen=True)
class Site:
    """A tracker's server with the runs.

    Attributes:
        name, version: in the table.
        command: with ``{port}``; runs in ``folder`` with ``variables``.
        ready: a path that answers once the runs can be read.
        request_of: path, body and headers of the request for one metric of all runs.
        points: how many points an answer has, of its body.
        path: of the page that shows that metric.
    """

    name: str
    version: str
    command: Sequence[str]
    folder: Path
    variables: Mapping[str, str]
    ready: Callable[[int], bool]
    request_of: Callable[[str], tuple[str, bytes | None, Mapping[str, str]]]
    points: Callable[[bytes], int]
    path: str


def measure(setting: Setting) -> Part:
    """Measure an answer and a page of each tracker; one that cannot be installed is named.

    A quick run installs nothing.
    """
    part = Part("pages", "One metric of 100 runs on the pages of trackers", _TEXT)
    sizes = {"runs": setting.choose(5, 100), "metrics": 10, "points": setting.choose(50, 1_000)}
    sites = [_halving(setting, sizes)]
    for make in (_tensorboard, _mlflow, _optuna_dashboard):
        try:
            sites.append(make(setting, sizes))
        except ChildFailed as error:
            part.missing.append(str(error))
    answers = Table(
        ["tracker", "version", "points", "MB", "server CPU, s", "s", "time ratio"], [], "An answer"
    )
    pages = Table(
        ["tracker", "version", "until it is drawn, s", "main thread, s", "time ratio"], [], "A page"
    )
    walls: list[list[float]] = []
    for site in sites:
        figures = [_measure_answer(setting, site) for _ in range(setting.choose(1, 3))]
        walls.append([each["s"] for each in figures])
        cells = [
            f"{figures[0]['points']:,}",
            number(figures[0]["bytes"] / 1e6),
            spread([each["cpu"] for each in figures]),
        ]
        answers.rows.append([site.name, site.version, *cells, spread(walls[-1]), _ratio(walls)])
    part.tables.append(answers)
    if not CHROMIUM.exists():
        part.missing.append(f"pages: no {CHROMIUM} on this machine")
        return part
    walls = []
    for site in sites:
        drawn = [_measure_page(setting, site) for _ in range(setting.choose(1, 3))]
        walls.append([seconds for seconds, _ in drawn])
        pages.rows.append(
            [site.name, site.version, spread(walls[-1]), spread([busy for _, busy in drawn]), _ratio(walls)]
        )
    part.tables.append(pages)
    return part


def _halving(setting: Setting, sizes: Mapping[str, int]) -> Site:
    root = str(setting.work / "halving")
    runs = in_child("benchmarks.stores:write_runs", root=root, segments=1, **sizes)
    in_child("benchmarks.stores:compact", root=root, runs=runs)
    headers = {"Accept": server.BINARY, "Content-Type": "application/json"}

    def request_of(metric: str) -> tuple[str, bytes, Mapping[str, str]]:
        return (
            "/api/v1/curves",
            json.dumps({"runs": [f"{PROJECT}/{run}" for run in runs], "keys": [metric]}).encode(),
            headers,
        )

    def ready(port: int) -> bool:
        return (
            int(json.loads(_get(port, f"/api/v1/runs?limit=1&project={quote(PROJECT)}"))["total"])
            == sizes["runs"]
        )

    def points(answer: bytes) -> int:
        length = int.from_bytes(answer[:4], "little")
        return sum(int(curve["rows"]) for curve in json.loads(answer[4 : 4 + length])["curves"])

    command = (sys.executable, "-c", server_process.SERVER, root, "{port}")
    path = f"/?top={sizes['runs']}&metrics=metric_0"
    return Site("Halving", "this commit", command, CHECKOUT, os.environ, ready, request_of, points, path)


def _tensorboard(setting: Setting, sizes: Mapping[str, int]) -> Site:
    python, folder, filled = _fill_peer(setting, "tensorboard", TENSORBOARD, "torch.utils.tensorboard", sizes)
    data = "/experiment/defaultExperimentId/data/plugin/timeseries"

    def request_of(metric: str) -> tuple[str, bytes, Mapping[str, str]]:
        return (
            f"{data}/timeSeries",
            urlencode({"requests": json.dumps([{"plugin": "scalars", "tag": metric}])}).encode(),
            {},
        )

    def ready(port: int) -> bool:
        return len(json.loads(_get(port, f"{data}/tags"))["scalars"]["runTagInfo"]) == sizes["runs"]

    def points(answer: bytes) -> int:
        return sum(len(each) for each in json.loads(answer)[0]["runToSeries"].values())

    command = (
        str(python),
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder / "data"),
        "--port",
        "{port}",
        "--samples_per_plugin",
        "scalars=1000",
    )
    return Site(
        "TensorBoard",
        filled["version"],
        command,
        folder,
        environment(folder),
        ready,
        request_of,
        points,
        "/#timeseries&tagFilter=metric_0",
    )


def _mlflow(setting: Setting, sizes: Mapping[str, int]) -> Site:
    python, folder, filled = _fill_peer(setting, "mlflow", MLFLOW, "mlflow", sizes)
    runs = filled["runs"]

    def request_of(metric: str) -> tuple[str, None, Mapping[str, str]]:
        # Its page asks for the histories of one metric of up to 100 runs at once, of each at most 320 points.
        chosen = [*(("run_ids", run) for run in runs), ("metric_key", metric), ("max_results", "320")]
        return f"/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?{urlencode(chosen)}", None, {}

    def ready(port: int) -> bool:
        return bool(_get(port, "/health"))

    def points(answer: bytes) -> int:
        return len(json.loads(answer)["metrics"])

    database = f"sqlite:///{folder / 'data'}"
    command = (
        str(python),
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        database,
        "--port",
        "{port}",
        "--workers",
        "1",
    )
    options = {
        "runs": json.dumps(runs),
        "metric": json.dumps("metric_0"),
        "experiments": json.dumps([filled["experiment"]]),
    }
    path = f"/#/metric?{urlencode({**options, 'plot_metric_keys': json.dumps(['metric_0'])})}"
    return Site(
        "MLflow", filled["version"], command, folder, environment(folder), ready, request_of, points, path
    )


def _optuna_dashboard(setting: Setting, sizes: Mapping[str, int]) -> Site:
    python, folder, filled = _fill_peer(
        setting, "optuna_dashboard", _OPTUNA_DASHBOARD, "optuna_dashboard", sizes
    )
    study = f"studies/{filled['study']}"

    def request_of(_: str) -> tuple[str, None, Mapping[str, str]]:
        return f"/api/{study}?after=0", None, {}

    def ready(port: int) -> bool:
        return bool(_get(port, "/api/studies"))

    def points(answer: bytes) -> int:
        return sum(len(trial["intermediate_values"]) for trial in json.loads(answer)["trials"])

    command = (str(python.parent / "optuna-dashboard"), f"sqlite:///{folder / 'data'}", "--port", "{port}")
    return Site(
        "optuna-dashboard",
        filled["version"],
        command,
        folder,
        environment(folder),
        ready,
        request_of,
        points,
        f"/dashboard/{study}",
    )


def _fill_peer(
    setting: Setting, name: str, choices: Sequence[Sequence[str]], imports: str, sizes: Mapping[str, int]
) -> tuple[Path, Path, dict[str, Any]]:
    """A tracker's interpreter, its folder whose ``data`` has the runs, and what filling it returned."""
    installed = install(setting.home / name, choices, imports, allowed=not setting.quick)
    if installed.python is None:
        raise ChildFailed(f"{name}: {installed.reason}")
    folder = setting.work / name
    folder.mkdir()
    arguments = json.dumps({"data": str(folder / "data"), **sizes})
    command = [
        str(installed.python),
        "-c",
        _PROGRAM,
        arguments,
        str(CHECKOUT),
        f"benchmarks.peers.fill_{name}",
    ]
    return installed.python, folder, run_json(command, cwd=folder, environment=environment(folder))


def _measure_answer(setting: Setting, site: Site) -> dict[str, float]:
    """Bytes, points, seconds, and CPU of the server with its children."""
    with _running(setting, site) as (process, port):
        _get(port, *site.request_of("metric_1"))
        before = _cpu(process)
        began = time.monotonic()
        body = _get(port, *site.request_of("metric_0"))
        took = time.monotonic() - began
        spent = _cpu(process) - before
    return {"s": took, "cpu": spent, "bytes": len(body), "points": site.points(body)}


def _measure_page(setting: Setting, site: Site) -> tuple[float, float]:
    """Seconds from navigation until the page rests, and seconds of its main thread."""
    with _running(setting, site) as (_, port), chromium() as browser:
        tab = browser.new_context(viewport=page.SIZE).new_page()
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        under_way: set[Any] = set()
        tab.on("request", lambda request: under_way.add(request))
        tab.on("requestfinished", lambda request: under_way.discard(request))
        tab.on("requestfailed", lambda request: under_way.discard(request))
        began = time.monotonic()
        busy = _task_seconds(session)
        tab.goto(f"http://127.0.0.1:{port}{site.path}", wait_until="commit")
        done = _wait_for_rest(site, tab, session, under_way)
        busy = _task_seconds(session) - busy
    return done - began, busy


def _wait_for_rest(site: Site, tab: Any, session: Any, under_way: Collection[Any]) -> float:
    """When the page began to rest."""
    began = time.monotonic()
    # looks at the clock and at the main thread's CPU, from the one after which the page may rest
    since = [(began, _task_seconds(session))]
    while True:
        tab.wait_for_timeout(50)
        now = time.monotonic()
        computed = _task_seconds(session)
        # A stream stays open, and of a worker's script no end is reported.
        if any(
            "/live" not in request.url and not request.url.endswith(".worker.js") for request in under_way
        ):
            since = []
        since.append((now, computed))
        while computed - since[0][1] > _IDLE * _QUIET:
            # a page that moves something computes a little all the time
            since.pop(0)
        if now - since[0][0] >= _QUIET:
            return since[0][0]
        if now - began > _MAX_SECONDS:
            raise ChildFailed(f"{site.name}: its page is not done after {_MAX_SECONDS:g} s")


def _task_seconds(session: Any) -> float:
    return float(
        next(
            each["value"]
            for each in session.send("Performance.getMetrics")["metrics"]
            if each["name"] == "TaskDuration"
        )
    )


@contextmanager
def _running(setting: Setting, site: Site) -> Iterator[tuple[int, int]]:
    """The process id and the port of a tracker's server that can read all runs."""
    port = free_port()
    command = [each.format(port=port) if "{port}" in each else each for each in site.command]
    setting.settle()
    process = subprocess.Popen(
        command,
        cwd=site.folder,
        env=dict(site.variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def answers() -> bool:
        try:
            return site.ready(port)
        except (OSError, KeyError):
            return False

    try:
        wait_for(answers, 300, f"{site.name}'s server has read the runs")
        yield process.pid, port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _get(port: int, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, dict(headers or {}))
    with urllib.request.urlopen(request, timeout=_MAX_SECONDS) as answer:
        return bytes(answer.read())


def _cpu(leader: int) -> float:
    """Seconds of CPU of all processes of a session."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _ratio(walls: Sequence[Sequence[float]]) -> str:
    return f"{number(statistics.median(walls[-1]) / statistics.median(walls[0]))}x"
