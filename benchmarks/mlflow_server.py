"""Halving's answers to MLflow's clients beside those of MLflow's own server on SQLite.

Their times are compared, and whether they are equal.
"""

import os
import signal
import statistics
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import Setting, in_child, run_json
from benchmarks.mlflow_asks import CLIENTS
from benchmarks.peers.compare import MLFLOW
from benchmarks.peers.installs import Installed, environment, install
from benchmarks.results import Part, Table, Target, number, spread
from benchmarks.server_process import running_server
from tests.ports import free_port
from tests.waiting import wait_for

_TEXT = f"""
`halving serve` on the embedded store, and `mlflow server` with its runs in SQLite and its artifacts in a
folder, with one worker and with as many as it starts by itself: each on an empty disk, one after the other,
in another order each round. The client is the same code for all: raw HTTP over one connection that stays
open, where no MlflowClient is named; {CLIENTS} clients are threads with a connection each. A batch is
acknowledged by Halving after its file is synced and by MLflow after SQLite's transaction. Searches go over
1,000 runs of five metrics and five params. p99 is of the calls of all rounds; of fewer than a hundred calls
it is the slowest. *Equal* compares what was answered with what Halving answered: runs with metrics, params
and tags in their order, histories, an artifact's bytes.
"""
_OURS = "Halving"
_NOT_COMPARED = {"searched"}


def measure(setting: Setting) -> Part:
    """Measure the seconds of each question to each server, and the ratio.

    A quick run takes MLflow's environment if it is there.
    """
    part = Part("mlflow", "MLflow's clients: Halving and MLflow's server on SQLite", _TEXT)
    installed = _install_mlflow(setting)
    names = [_OURS]
    version = ""
    if installed.python is None:
        part.missing.append(f"mlflow: {installed.reason}")
    else:
        names += setting.choose(["MLflow, 1 worker"], ["MLflow, 1 worker", "MLflow"])
        version = run_json(
            [str(installed.python), "-c", "import mlflow; print('\"' + mlflow.__version__ + '\"')"],
            cwd=setting.work,
        )
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    sizes = {
        "runs": setting.choose(20, 1_000),
        "calls": setting.choose(5, 100),
        "points": setting.choose(100, 10_000),
    }
    for turn in range(setting.choose(1, 3)):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            folder = setting.work / f"{turn}-{names.index(name)}"
            folder.mkdir()
            setting.settle()
            with _server(name, installed.python, folder) as port:
                rounds[name].append(in_child("benchmarks.mlflow_asks:ask", port=port, **sizes))
    part.tables = [times(rounds, version), equal(rounds)]
    if len(names) > 1:
        part.targets = targets(rounds, names[1])
    if "MlflowClient.log_batch, 100 metrics" not in rounds[_OURS][0]["seconds"]:
        part.missing.append("MlflowClient: mlflow-skinny is not installed beside Halving")
    return part


def _install_mlflow(setting: Setting) -> Installed:
    # any of these versions, if another part has installed it
    there = install(setting.home / "mlflow", MLFLOW, "mlflow", allowed=False)
    if there.python or setting.quick:
        return there
    return install(setting.home / "mlflow", MLFLOW, "mlflow")


def _server(name: str, python: Path | None, folder: Path) -> "AbstractContextManager[int]":
    if name == _OURS or python is None:
        return _halving(folder)
    return _mlflow(python, folder, ["--workers", "1"] if name.endswith("1 worker") else [])


@contextmanager
def _halving(folder: Path) -> Iterator[int]:
    with running_server(str(folder / "store"), settled=0) as (_, port):
        yield port


@contextmanager
def _mlflow(python: Path, folder: Path, options: Sequence[str]) -> Iterator[int]:
    """The port of MLflow's server on an empty folder."""
    port = free_port()
    places = [
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination",
        str(folder / "artifacts"),
    ]
    process = subprocess.Popen(
        [str(python), "-m", "mlflow", "server", *places, "--port", str(port), *options],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def answers() -> bool:
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health").status == 200)
        except OSError:
            return False

    try:
        wait_for(answers, 300, "MLflow's server answers")
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def times(rounds: Mapping[str, Sequence[Mapping[str, Any]]], version: str) -> Table:
    """Milliseconds of each question, by server and round, and the ratio of the others to ours.

    Args:
        rounds: what :func:`benchmarks.mlflow_asks.ask` gave, by server.
    """
    others = [name for name in rounds if name != _OURS]
    header = ["question", f"{_OURS}, ms", "p99, ms"]
    for name in others:
        if name == others[0]:
            header += [f"{name}, ms", "its p99, ms", "ratio"]
        else:
            header += [f"{name}, ms", "their p99, ms", "ratio to all"]
    note = ""
    if version:
        note = f"MLflow {version}. Medians of each round; a ratio above 1 is Halving's gain."
    table = Table(header, [], "A question", note)
    for question in rounds[_OURS][0]["seconds"]:
        ours = _of(rounds[_OURS], question)
        row = [question, spread(_medians(ours)), _p99(ours)]
        for name in others:
            theirs = _of(rounds[name], question)
            row += [spread(_medians(theirs)), _p99(theirs), f"{number(_ratio(ours, theirs))}x"]
        table.rows.append(row)
    return table


def equal(rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Whether every server gave the same answers in every round."""
    table = Table(["answer", "compared", "different"], [], "Answers")
    reference = rounds[_OURS][0]["answers"]
    for what, answer in reference.items():
        if what not in _NOT_COMPARED:
            others = [each["answers"][what] for results in rounds.values() for each in results]
            wrong = sum(other != answer for other in others) + (what == "artifact" and answer[0] != answer[1])
            table.rows.append([what, str(len(others)), str(wrong)])
    return table


def targets(rounds: Mapping[str, Sequence[Mapping[str, Any]]], other: str) -> list[Target]:
    """The questions that were promised to be faster, each as a ratio in the same round."""
    promised = []
    for question in rounds[_OURS][0]["seconds"]:
        if question.startswith(("log-batch, 100 metrics", "search", "MlflowClient")):
            pairs = zip(_of(rounds[other], question), _of(rounds[_OURS], question), strict=True)
            ratios = [statistics.median(theirs) / statistics.median(ours) for theirs, ours in pairs]
            promised.append(Target(f"{question}: times as fast as {other}", "x", ratios, 1.0, at_most=False))
    return promised


def _of(rounds: Sequence[Mapping[str, Any]], question: str) -> list[list[float]]:
    return [each["seconds"][question] for each in rounds]


def _medians(seconds: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.median(each) * 1000 for each in seconds]


def _ratio(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    return statistics.median(_medians(theirs)) / statistics.median(_medians(ours))


def _p99(seconds: Sequence[Sequence[float]]) -> str:
    every = sorted(spent * 1000 for each in seconds for spent in each)
    return number(every[min(len(every) - 1, int(0.99 * len(every)))])
