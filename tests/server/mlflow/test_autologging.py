"""MLflow's autologging of the frameworks, unchanged, in processes of their own."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.installs import environment
from tests.backends import CHECKOUT
from tests.server import plain_http
from tests.server.processes import ServerProcess
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

# To say which packages a model needs, MLflow loads each in a process of its own, which takes longer than to
# train it. Killed at once, it gives its defaults; scikit-learn's first model has it as it comes.
WITHOUT_PACKAGES = {"MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT": "0"}
# What is asked before it is there: the experiment, and whether a name in a run is a folder.
ASKED_FIRST = {"404 GET /api/2.0/mlflow/experiments/get-by-name"}
# Scripts are forked from a process that has imported what most of them need, which took longer than the rest
# of them.
FORKS = """
import json, os, sys
import mlflow, requests, torch
for line in sys.stdin:
    script, variables, arguments = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(os.path.dirname(script))
    os.environ.clear()
    os.environ.update(variables)
    said = os.open("said", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.argv = [script, *arguments]
    exec(compile(open(script).read(), script, "exec"))
    sys.exit()
"""
BEGIN = """
import os, sys
from pathlib import Path

os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
import requests

send = requests.Session.send

def note(self, request, **options):
    answer = send(self, request, **options)
    with Path(sys.argv[3]).open("a") as file:
        file.write(f"{answer.status_code} {request.method} {request.path_url.partition('?')[0]}\\n")
    return answer

requests.Session.send = note  # autologging makes a mere warning of a request that failed
from mlflow import MlflowClient

client = MlflowClient()
experiment = mlflow.set_experiment(sys.argv[2]).experiment_id

def models():
    return mlflow.search_logged_models(experiment_ids=[experiment], output_format="list")

def history(run, key):
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, key)]
"""

SKLEARN = """
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

mlflow.sklearn.autolog(serialization_format="pickle")
rows, classes = load_iris(return_X_y=True)
with mlflow.start_run() as run:
    trained = LogisticRegression(C=0.5, max_iter=200).fit(rows, classes)
    score = trained.score(rows, classes)
data = client.get_run(run.info.run_id)
assert data.data.params["C"] == "0.5" and data.data.metrics["LogisticRegression_score_rows"] == score, data
assert data.data.metrics["training_accuracy_score"] == score
assert [one.dataset.name for one in data.inputs.dataset_inputs] == ["dataset"], data.inputs
assert {one.path for one in client.list_artifacts(run.info.run_id)} >= {"estimator.html"}
(model,) = models()
assert (model.status, model.source_run_id, model.params["C"]) == ("READY", run.info.run_id, "0.5"), model
assert {one.key: one.value for one in model.metrics}["training_accuracy_score"] == score
assert [one.model_id for one in data.outputs.model_outputs] == [model.model_id]
version = mlflow.register_model(f"models:/{model.model_id}", "iris")
client.set_registered_model_alias("iris", "champion", version.version)
assert version.run_id == run.info.run_id
for address in (f"models:/{model.model_id}", "models:/iris/1", "models:/iris@champion"):
    assert (mlflow.sklearn.load_model(address).predict(rows) == trained.predict(rows)).all(), address
assert (mlflow.pyfunc.load_model("models:/iris@champion").predict(rows) == trained.predict(rows)).all()

os.environ["MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT"] = "0"
with mlflow.start_run() as search:
    GridSearchCV(LogisticRegression(max_iter=300), {"C": [0.1, 1, 10]}, cv=2).fit(rows, classes)
children = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{search.info.run_id}'")
assert sorted(float(child.data.params["C"]) for child in children) == [0.1, 1, 10], children
assert "best_C" in client.get_run(search.info.run_id).data.params
Path("run").write_text(run.info.run_id)
"""

LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
mlflow.pytorch.autolog()

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, rows):
        return self.layer(rows)
    def training_step(self, batch, place):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, place):
        self.log("val_loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,))), batch_size=16)
net = Net()
with mlflow.start_run() as run:
    trainer = lightning.Trainer(
        max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu"
    )
    trainer.fit(net, loader, loader)
data = client.get_run(run.info.run_id).data
assert data.params["lr"] == "0.1" and data.params["optimizer_name"] == "SGD", data.params
assert [step for step, _ in history(run, "train_loss")] == [0, 1, 2], history(run, "train_loss")
assert history(run, "val_loss")[-1] == (2, data.metrics["val_loss"])
assert {one.path for one in client.list_artifacts(run.info.run_id)} >= {"model_summary.txt"}
(model,) = models()
train_loss = [(metric.step, metric.value) for metric in model.metrics if metric.key == "train_loss"]
assert train_loss == history(run, "train_loss")
loaded = mlflow.pytorch.load_model(f"models:/{model.model_id}")
rows = torch.ones(1, 4)
assert torch.equal(loaded(rows), net.cpu()(rows))
Path("run").write_text(run.info.run_id)
"""

TORCH = """
import torch

torch.manual_seed(0)
mlflow.pytorch.autolog()
net, rows, wanted = torch.nn.Linear(4, 1), torch.randn(64, 4), torch.randn(64, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with mlflow.start_run() as run:
    mlflow.log_param("lr", 0.1)
    for step in range(5):
        loss = ((net(rows) - wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mlflow.log_metric("train_loss", loss.item(), step=step)
    mlflow.pytorch.log_model(net, name="net", serialization_format="pickle")
assert [step for step, _ in history(run, "train_loss")] == [0, 1, 2, 3, 4]
assert history(run, "train_loss")[4][1] < history(run, "train_loss")[0][1]
(model,) = models()
assert torch.equal(mlflow.pytorch.load_model(f"models:/{model.model_id}")(rows), net(rows))
Path("run").write_text(run.info.run_id)
"""

TRANSFORMERS = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
mlflow.transformers.autolog()

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, place):
        words = torch.tensor([1, 2, 3, place % 5])
        labels = torch.tensor(place % 2)
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": labels}

small = BertConfig(
    vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
options = dict(num_train_epochs=2, per_device_train_batch_size=4, logging_steps=1, learning_rate=0.01)
options |= dict(use_cpu=True, disable_tqdm=True)
arguments = TrainingArguments("out", report_to="mlflow", save_strategy="no", **options)
with mlflow.start_run() as run:
    model = BertForSequenceClassification(small)
    trainer = Trainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows())
    trainer.train()
    trainer.evaluate()
data = client.get_run(run.info.run_id).data
assert data.params["learning_rate"] == "0.01" and data.params["num_train_epochs"] == "2", data.params
assert len(data.params) > 100, len(data.params)
assert [step for step, _ in history(run, "loss")] == list(range(1, 9)), history(run, "loss")
assert "eval_loss" in data.metrics and "train_loss" in data.metrics, data.metrics
Path("run").write_text(run.info.run_id)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(str(tmp_path_factory.mktemp("server") / "store"))
    yield process
    process.kill()


@pytest.fixture(scope="module")
def run_fork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    """Run Python source in a folder, and hold it to its exit status."""
    variables = environment(tmp_path_factory.mktemp("forks"))
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def run(source: str, folder: Path, *arguments: str) -> None:
            script = folder / "script.py"
            script.write_text(source)
            process.stdin.write(json.dumps([str(script), environment(folder), arguments]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "0\n", (folder / "said").read_text()

        yield run
        process.stdin.close()


@pytest.mark.parametrize(
    ("name", "script", "param", "metric", "points"),
    [
        ("sklearn", SKLEARN, "C", "training_accuracy_score", 1),
        ("lightning", LIGHTNING, "lr", "train_loss", 3),
        ("torch", TORCH, "lr", "train_loss", 5),
        ("transformers", TRANSFORMERS, "learning_rate", "loss", 8),
    ],
    ids=["sklearn", "lightning", "torch", "transformers"],
)
def test_what_a_framework_logs_by_itself_is_here(
    server: ServerProcess,
    run_fork: Callable[..., None],
    tmp_path: Path,
    name: str,
    script: str,
    param: str,
    metric: str,
    points: int,
) -> None:
    answers = tmp_path / "answers"
    without = "" if name == "sklearn" else f"import os\nos.environ.update({WITHOUT_PACKAGES})\n"
    run_fork(without + BEGIN + script, tmp_path, server.address, name, str(answers))
    lines = answers.read_text().splitlines()
    assert {line for line in lines if not line.startswith("200 ")} <= ASKED_FIRST
    assert len(lines) > 10
    run = (tmp_path / "run").read_text()
    query = {"filter": f"run = {run} and status = finished", "columns": f"params.{param},metrics.{metric}"}
    runs: list[dict[str, Any]] = []

    def is_indexed() -> bool:
        runs[:] = plain_http.get(f"{server.address}/api/v1/runs", params=query).json()["runs"]
        return bool(runs)

    wait_for(is_indexed, 120, "the run is in the index")
    assert runs[0]["project"] == name
    values = runs[0]["values"]
    assert values[f"params.{param}"] is not None
    wanted = {"run": f"{name}/{run}", "key": metric}
    (curve,) = plain_http.get(
        f"{server.address}/api/v1/curves", params=wanted, headers={"Accept": "application/json"}
    ).json()["curves"]
    assert (curve["points"], curve["value"][-1]) == (points, values[f"metrics.{metric}"])


def test_the_example_shows_on_the_compare_page_and_in_a_sweep(server: ServerProcess, tmp_path: Path) -> None:
    places = {
        "HALVING_ROOT": server.root,
        "DAGSTER_HOME": str(tmp_path),
        "MLFLOW_TRACKING_URI": server.address,
    }
    variables = {**environment(tmp_path), **WITHOUT_PACKAGES, **places}
    spec = tmp_path / "mlflow.yaml"
    spec.write_text(
        (CHECKOUT / "sweeps" / "mlflow.yaml").read_text().replace("max_trials: 6", "max_trials: 2")
    )
    for command in (["examples/mlflow_autologging.py"], ["-m", "halving.cli.main", "sweep", str(spec)]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=CHECKOUT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (study,) = plain_http.get(f"{server.address}/api/v1/hpo/studies").json()["studies"]
    assert study["trials"] == 2
    runs: list[dict[str, Any]] = []

    def are_indexed() -> bool:
        query = {
            "filter": "project = mlflow-digits and status = finished",
            "columns": "metrics.val_accuracy",
            "limit": "100",
        }
        runs[:] = plain_http.get(f"{server.address}/api/v1/runs", params=query).json()["runs"]
        return len(runs) == 4 + 2 * study["trials"]

    wait_for(are_indexed, 120, "the runs are in the index")
    of_trials = {
        run["trial"]: run["values"]["metrics.val_accuracy"]
        for run in runs
        if run["sweep"] and "." in run["run"]
    }
    of_mlflow = {
        run["trial"]: run["values"]["metrics.val_accuracy"]
        for run in runs
        if run["sweep"] and "." not in run["run"]
    }
    assert of_trials == of_mlflow
    assert {run["sweep"] for run in runs} == {None, study["id"]}
