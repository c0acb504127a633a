"""A database, a folder and a server that MLflow itself has made: from an environment of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.installs import environment
from halving.query.runs import list_runs
from halving.store.store import Store
from tests.ports import free_port
from tests.sdk.imports.copies import outcomes, points, run_import
from tests.sdk.imports.tools import python_with, run_script
from tests.waiting import wait_for

LOGGING = """
import os, sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric

client = MlflowClient()
mlflow.set_experiment("My digits/größer")
tags = {"team": "vision", "mlflow.source.git.commit": "c0ffee"}
with mlflow.start_run(run_name="the first", tags=tags) as run:
    mlflow.log_params({"lr": 0.1, "layers": 3, "flag": True, "optimizer": "adam"})
    mlflow.log_params({"nested/name": "007", "big": 1e400})
    for step in range(20):
        mlflow.log_metric("train/loss", 1 / (step + 1), step=step, timestamp=1_700_000_000_000 + step)
    mlflow.log_metric("größe", 2.5, step=7)
    mlflow.log_metric("odd", float("nan"), step=1)
    Path("a.txt").write_text("hello")
    mlflow.log_artifact("a.txt")
    mlflow.log_artifact("a.txt", "deep/er")
    mlflow.log_dict({"a": 1}, "deep-er-a.txt")
experiment = mlflow.get_experiment_by_name("My digits/größer").experiment_id
many = client.create_run(experiment, run_name="many").info.run_id
for first in range(0, 26_000, 1_000):
    steps = range(first, first + 1_000)
    client.log_batch(many, metrics=[Metric("loss", float(n), 1_700_000_000_000 + n, n) for n in steps])
client.set_terminated(many)
running = client.create_run(experiment, run_name="running").info.run_id
client.log_metric(running, "loss", 1.0, step=0, timestamp=1_700_000_000_000)
client.log_text(running, "begun", "notes.txt")
failed = client.create_run(experiment, run_name="failed").info.run_id
client.set_terminated(failed, "FAILED")
killed = client.create_run(experiment, run_name="killed").info.run_id
client.set_terminated(killed, "KILLED")
client.delete_run(client.create_run(experiment).info.run_id)
client.delete_experiment(client.create_experiment("gone"))
client.create_registered_model("a model")
client.set_experiment_tag(experiment, "team", "vision")
client.set_experiment_tag(experiment, "goal", "digits")
data = mlflow.data.from_numpy(np.zeros(3), name="zeros")
with mlflow.start_run(run.info.run_id):
    mlflow.log_input(data, context="training")
for number in range(3):
    with mlflow.start_span(f"span {number}"):
        pass
mlflow.flush_trace_async_logging()
Path("running").write_text(running)
"""
MORE = """
import os, sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
from mlflow import MlflowClient

client, running = MlflowClient(), Path("running").read_text()
client.log_metric(running, "loss", 0.5, step=1, timestamp=1_700_000_000_001)
client.log_metric(running, "loss", 0.25, step=2, timestamp=1_600_000_000_000)
client.log_metric(running, "later", 3.0, step=1, timestamp=1_700_000_000_001)
client.log_text(running, mlflow.artifacts.load_text(f"runs:/{running}/notes.txt") + " and ended", "notes.txt")
client.set_terminated(running)
"""
STORES = {"database": "sqlite:///mlflow.db", "folder": "./mlruns", "server": "sqlite:///mlflow.db"}


@pytest.fixture(scope="module")
def python() -> Path:
    return python_with("mlflow", "mlflow==3.17.2")


@pytest.fixture(scope="module")
def mlflow_logs(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder in which MLflow logged, by the kind of its store."""
    folders = {}
    for kind in ("database", "folder"):
        folders[kind] = tmp_path_factory.mktemp(kind)
        run_script(python, LOGGING, folders[kind], STORES[kind])
    return {**folders, "server": folders["database"]}


@pytest.fixture(params=list(STORES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def logs(kind: str, mlflow_logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder in which MLflow logged, for the test alone. The test works in it."""
    shutil.copytree(mlflow_logs[kind], tmp_path / "logs")
    monkeypatch.chdir(tmp_path / "logs")
    return tmp_path / "logs"


@pytest.fixture(scope="module")
def server(
    python: Path, mlflow_logs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of MLflow's server on a copy of what it logged.

    It runs without its jobs, for which it would start eight more processes.
    """
    folder = shutil.copytree(mlflow_logs["server"], tmp_path_factory.mktemp("server") / "logs")
    port = free_port()
    command = [
        str(python),
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        STORES["server"],
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    with (folder / "server.log").open("w") as log:
        variables = environment(folder) | {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        server = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: server.poll() is not None or _answers(address), 240, "MLflow's server to answer")
        assert server.poll() is None, (folder / "server.log").read_text()
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.fixture
def source(kind: str, logs: Path, request: pytest.FixtureRequest) -> str:
    """What ``halving import mlflow`` is given."""
    return request.getfixturevalue("server") if kind == "server" else STORES[kind]


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def by_name(root: str) -> dict[str, Any]:
    return {info.tags.get("name", ""): info for info in list_runs(Store(root))}


KILLED = """
import os, signal, sys
from halving.cli.main import main
from halving.imports import foreign_run
from halving.store.store import Store, digest_of

foreign_run.PIECE_POINTS = 1_000
create, left = Store.create, [int(sys.argv[2])]

def dies(*given, **options):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    create(*given, **options)

Store.create = dies
main(["import", "mlflow", sys.argv[1], "--root", sys.argv[3]])
"""


def run_facts(root: str) -> dict[str, Any]:
    return {info.run: (info.status, len(info.attempts), info.params) for info in list_runs(Store(root))}


def artifact_names(root: str) -> list[str]:
    return sorted(path.name for path in Path(root).glob("runs/*/*/artifacts/*.json"))


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["database", "server"])
def test_imports_that_are_killed_or_run_at_once_take_all_and_nothing_twice(
    source: str, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They only read; the next test writes into the server's store, and so comes after this one."""
    whole = str(tmp_path / "whole")
    run_import(capsys, "mlflow", source, whole)

    def is_whole(root: str) -> None:
        assert points(root) == points(whole)
        assert run_facts(root) == run_facts(whole)
        assert artifact_names(root) == artifact_names(whole)

    for writes in (1, 3, 12):
        root = str(tmp_path / f"killed{writes}")
        done = subprocess.run(
            [sys.executable, "-c", KILLED, source, str(writes), root], capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL
        run_import(capsys, "mlflow", source, root)
        is_whole(root)
    root = str(tmp_path / "together")
    command = [sys.executable, "-m", "halving.cli.main", "import", "mlflow", source, "--root", root]
    importers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [importer.communicate(timeout=300)[0] for importer in importers]
    assert [importer.returncode for importer in importers] == [0, 0], outputs
    is_whole(root)


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
@pytest.mark.timeout(900)
def test_what_was_logged_is_there_and_what_is_new_comes_later_and_nothing_twice(
    kind: str,
    source: str,
    logs: Path,
    mlflow_logs: dict[str, Path],
    python: Path,
    root: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = run_import(capsys, "mlflow", source, root)
    names = {info.run: name for name, info in by_name(root).items()}
    assert {names[run]: counts for run, counts in outcomes(report).items()} == {
        "the first": ("new", 22, 0, 3),
        "many": ("new", 26_000, 0, 0),
        "running": ("new", 1, 0, 1),
        "failed": ("new", 0, 0, 0),
        "killed": ("new", 0, 0, 0),
    }
    assert report["not_taken"].pop("MLflow's own tags (mlflow.…)") >= 1  # such as mlflow.source.type
    used = {"contexts of datasets (for what a run used them)": 1}
    if kind == "folder":
        used = {"datasets that runs used": 1}
    left_out = {
        "deleted runs": 1,
        "deleted experiments": 1,
        "registered models": 1,
        "traces": 3,
        "tags of experiments": 2,
    }
    assert report["not_taken"] == left_out | used
    assert report["taken"].items() >= {"points": 22 + 26_000 + 1, "artifacts": 4, "params": 6}.items()
    first = by_name(root)["the first"]
    assert first.project == "My-digits-gr-er"
    assert first.params == {
        "lr": 0.1,
        "layers": 3,
        "flag": True,
        "optimizer": "adam",
        "nested/name": "007",
        "big": float("inf"),
    }
    assert (first.tags["team"], first.provenance["git"]["commit"]) == ("vision", "c0ffee")
    assert {name: info.status for name, info in by_name(root).items()} == {
        "the first": "finished",
        "many": "finished",
        "running": "running",
        "failed": "failed",
        "killed": "terminated",
    }
    of_first = [(key, step, value) for run, key, step, value, _ in points(root) if run == first.run]
    expected = [("train/loss", step, 1 / (step + 1)) for step in range(20)]
    assert of_first == sorted([*expected, ("größe", 7, 2.5), ("odd", 1, "nan")])
    many = by_name(root)["many"].run
    assert [(step, value, at) for run, _, step, value, at in points(root) if run == many] == [
        (step, float(step), 1_700_000_000_000 + step) for step in range(26_000)
    ]
    rows = [json.loads(path.read_text()) for path in Path(root).glob(f"runs/*/{first.run}/artifacts/*.json")]
    contents = {row["name"]: Store(root).get_blob(row["digest"]) for row in rows}
    assert {name: contents.pop(name) for name in ("a.txt", "deep/er/a.txt")} == {
        "a.txt": b"hello",
        "deep/er/a.txt": b"hello",
    }
    assert list(contents.values()) == [b'{\n  "a": 1\n}']

    assert {row[0] for row in outcomes(run_import(capsys, "mlflow", source, root)).values()} == {"unchanged"}
    for meta in logs.rglob("meta.yaml"):  # MLflow goes on with the copy, and not where it was made
        meta.write_text(meta.read_text().replace(str(mlflow_logs[kind]), str(logs)))
    run_script(python, MORE, logs, source if kind == "server" else STORES[kind])
    running = by_name(root)["running"].run
    report = run_import(capsys, "mlflow", source, root)
    said = report["not_taken"]
    again = outcomes(report)
    assert again.pop(running)[:2] == ("continued", 1 if kind == "server" else 3)
    assert {row[0] for row in again.values()} == {"unchanged"}
    grown = by_name(root)["running"]
    assert (grown.status, len(grown.attempts)) == ("finished", 1)
    values = [(key, value) for run, key, _, value, _ in points(root) if run == running]
    assert (
        said["artifacts that have another size since they were copied: what is copied never changes here"]
        == 1
    )
    if kind == "server":  # which orders by time: that the late value came before the first is seen
        assert values == [("later", 3.0), ("loss", 1.0)]
        assert said["new values of metrics that got values with earlier times since they were copied"] == 2
    else:
        assert values == [("later", 3.0), ("loss", 1.0), ("loss", 0.5), ("loss", 0.25)]
