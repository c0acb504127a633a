"""MLflow's own client, unchanged, in an environment of its own, against a server in a process of its own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.installs import environment
from halving.query.curve_stats import fill_last
from halving.query.runs import list_runs, read_all, read_run
from halving.store.store import Store
from tests.sdk.imports.tools import python_with, run_script
from tests.server.mlflow.scripts import AGAIN
from tests.server.processes import ServerProcess
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

TRAINING = """
import math, os, sys
from pathlib import Path

os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

client = MlflowClient()
mlflow.set_experiment("My digits/größer")
tags = {"team": "vision", "mlflow.source.git.commit": "c0ffee"}
with mlflow.start_run(run_name="the first", tags=tags) as run:
    mlflow.log_params({"lr": 0.1, "layers": 3, "nested/name": "007"})
    for step in range(20):
        mlflow.log_metric("train/loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"größe": 2.5, "odd": math.nan, "most": math.inf}, step=7)
    mlflow.log_text("first", "deep/er/t.txt")
    mlflow.log_text("second", "deep/er/t.txt")
    mlflow.log_dict({"a": 1}, "x.json")
    mlflow.log_input(mlflow.data.from_numpy(np.ones((3, 2)), name="digits"), context="training")
first = run.info.run_id
data = client.get_run(first).data
assert data.params == {"lr": "0.1", "layers": "3", "nested/name": "007"}, data.params
assert data.metrics["most"] == math.inf, data.metrics
assert math.isnan(data.metrics["odd"]), data.metrics
assert data.metrics["größe"] == 2.5, data.metrics
history = client.get_metric_history(first, "train/loss")
assert [metric.value for metric in history] == [1 / (step + 1) for step in range(20)]
assert [one.path for one in client.list_artifacts(first)] == ["deep", "x.json"]
folder = Path(mlflow.artifacts.download_artifacts(run_id=first, artifact_path="deep"))
assert (folder / "er" / "t.txt").read_text() == "second"
assert client.get_run(first).inputs.dataset_inputs[0].dataset.name == "digits"

with mlflow.start_run(run_name="parent"):
    with mlflow.start_run(run_name="child", nested=True) as child:
        pass
    try:
        with mlflow.start_run(run_name="broken", nested=True):
            raise RuntimeError("diverged")
    except RuntimeError:
        pass
experiment = run.info.experiment_id
assert len(mlflow.search_runs([experiment], "tags.mlflow.parentRunId != ''", output_format="list")) == 2
failed = client.search_runs([experiment], "attributes.status = 'FAILED'")
assert [run.info.run_name for run in failed] == ["broken"]
on_digits = client.search_runs([experiment], "dataset.name = 'digits'")
assert [run.info.run_name for run in on_digits] == ["the first"]

for number in range(25):
    made = client.create_run(experiment, run_name=f"many-{number}").info.run_id
    metrics = [Metric("loss", 1 / (number + 1), 1_700_000_000_000, step) for step in range(40)]
    client.log_batch(made, metrics, [Param("n", str(number))], [RunTag("half", str(number % 2))])
    client.set_terminated(made)
chosen = "metrics.loss < 0.5 and tags.half = '0'"
page = client.search_runs([experiment], chosen, order_by=["metrics.loss ASC"], max_results=7)
rest = client.search_runs(
    [experiment], chosen, order_by=["metrics.loss ASC"], max_results=7, page_token=page.token
)
runs = [*page, *rest]
assert [run.data.params["n"] for run in runs] == [str(number) for number in range(24, 1, -2)], runs
assert rest.token is None

try:
    client.log_param(first, "lr", "0.2")
    raise SystemExit("a param was changed")
except MlflowException as error:
    assert error.error_code == "INVALID_PARAMETER_VALUE", error
client.delete_run(first)
deleted = client.search_runs([experiment], run_view_type=ViewType.DELETED_ONLY)
assert [run.info.run_id for run in deleted] == [first]
client.restore_run(first)
with mlflow.start_run(run_id=first):
    mlflow.log_metric("train/loss", 9, step=30)
assert client.get_run(first).data.metrics["train/loss"] == 9
other = client.create_experiment("other", tags={"a": "b"})
client.rename_experiment(other, "renamed")
client.delete_experiment(other)
client.restore_experiment(other)
assert [one.name for one in client.search_experiments(filter_string="name LIKE 'ren%'")] == ["renamed"]
Path("first").write_text(first)
"""

NAMES = """
import json, os, sys
from pathlib import Path
from posixpath import normpath

os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
from mlflow import MlflowClient
from requests import HTTPError

client = MlflowClient()
names = ["Confusion matrix (épreuve 2) 50%.csv", "a+b=c&d.txt", "日本語.json"]
names += ["model [best].pt", "it's.txt", "what?.txt"]
names += [".hidden", "A.txt", "a.txt"]
tree = {"folder/" + path: path for path in ("loss.txt", "deep/er/[1] é?.txt", "Deep/x", ".cache/y")}
for path, content in ({name: name for name in names} | tree).items():
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content)
with mlflow.start_run() as run:
    for name in names:
        mlflow.log_artifact(name)
    mlflow.log_artifacts("folder", "plots")
    mlflow.log_artifact("folder", "whole")
of_run = run.info.run_id
expected = {name: name for name in names} | {
    below + path.removeprefix("folder/"): content
    for below in ("plots/", "whole/folder/")
    for path, content in tree.items()
}
for number, folder in enumerate((".", "plots/..", "")):
    listed = {normpath(one.path) for one in client.list_artifacts(of_run, folder)}
    assert listed == {*names, "plots", "whole"}, (folder, listed)
    # Which this client downloads from no server: it would write beside its own folder.
    if folder == "plots/..":
        continue
    there = Path(f"back-{number}").absolute()
    there.mkdir()
    client.download_artifacts(of_run, folder, dst_path=str(there))
    files = [path for path in there.rglob("*") if path.is_file()]
    assert {path.relative_to(there).as_posix(): path.read_text() for path in files} == expected, folder
for folder in ("..", "plots/../.."):
    try:
        client.list_artifacts(of_run, folder)
        raise SystemExit(folder)
    except HTTPError as error:
        assert error.response.json()["error_code"] == "INVALID_PARAMETER_VALUE", error
Path("run").write_text(of_run)
Path("expected").write_text(json.dumps(expected))
"""

LOGGING = """
import os, sys
from pathlib import Path

os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow

with mlflow.start_run() as run:
    Path("run").write_text(run.info.run_id)
    for step in range(200):
        again(mlflow.log_metric, "loss", step / 7, step=step)
        Path("step").write_text(str(step))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return python_with("mlflow", "mlflow==3.17.2")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(str(tmp_path / "store"))
    yield process
    process.kill()


def test_a_training_that_logs_to_mlflow_logs_here(
    python: Path, server: ServerProcess, tmp_path: Path
) -> None:
    run_script(python, TRAINING, tmp_path / "work", server.address)
    store = Store(server.root)
    first = read_run(store, "My-digits-gr-er", (tmp_path / "work" / "first").read_text())
    (filled,) = fill_last(store, [first])
    assert first.params == {"lr": 0.1, "layers": 3, "nested/name": "007"}
    assert (first.tags["name"], first.tags["team"], first.status, len(first.attempts)) == (
        "the first",
        "vision",
        "finished",
        2,
    )
    assert first.provenance["git"]["commit"] == "c0ffee"
    assert (filled.summary["train/loss"], filled.summary["größe"], filled.summary["most"]) == (
        9.0,
        2.5,
        float("inf"),
    )
    statuses = [info.status for info in list_runs(store)]
    assert (len(statuses), statuses.count("failed")) == (29, 1)


def test_files_and_folders_have_the_names_that_they_have_at_home(
    python: Path, server: ServerProcess, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    run_script(python, NAMES, work, server.address)
    store = Store(server.root)
    rows = read_all(store, f"runs/project=Default/{(work / 'run').read_text()}/artifacts")
    contents = {row["name"]: store.get_blob(row["digest"]).decode() for row in rows}
    assert contents == json.loads((work / "expected").read_text())


def test_servers_that_are_killed_lose_no_value_that_a_client_logged(
    python: Path, server: ServerProcess, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "script.py").write_text(AGAIN + LOGGING)
    command = [str(python), "script.py", server.address]
    with subprocess.Popen(command, cwd=work, env=environment(work)) as client:
        for reached in (20, 60, 100):
            wait_for(
                lambda step=reached: _last_step(work) >= step or client.poll() is not None,
                120,
                "the client logs",
            )
            server.kill()
            server.start()
        assert client.wait(200) == 0
    store = Store(server.root)
    (filled,) = fill_last(store, [read_run(store, "Default", (work / "run").read_text())])
    assert (filled.status, filled.summary["loss"]) == ("finished", 199 / 7)
    import halving

    rows = halving.sql("select step, value from points order by step", root=server.root).to_pylist()
    assert {(row["step"], row["value"]) for row in rows} == {(step, step / 7) for step in range(200)}


def _last_step(work: Path) -> int:
    file = work / "step"
    text = file.read_text() if file.exists() else ""
    return int(text) if text else -1
