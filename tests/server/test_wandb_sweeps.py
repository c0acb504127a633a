"""``wandb.sweep`` and ``wandb.agent`` on a store and on a server: the search decides, the function trains."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import halving.wandb as wandb
from halving import Store
from halving.query.runs import list_runs, read_run
from halving.wandb import sweep_studies, sweeps
from halving.wandb.errors import UsageError
from resources.backend import Backend
from resources.scheduling.scheduler import Scheduler
from tests.server.processes import server_of

pytestmark = pytest.mark.slow

METRIC = {"name": "loss", "goal": "minimize"}


@pytest.fixture(params=["store", "server"])
def place(
    request: pytest.FixtureRequest, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backend]:
    """The catalog and the store that sweeps and runs go to: by this process, and by a server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    if request.param == "store":
        monkeypatch.setenv("HALVING_ROOT", backend.store.root)
        yield backend
    else:
        with server_of(backend.store.root) as server:
            monkeypatch.setenv("HALVING_URL", server.address)
            yield backend


def config(**changes: Any) -> dict[str, Any]:
    return {"method": "random", "metric": METRIC, "parameters": {"lr": {"min": 0.0, "max": 1.0}}, **changes}


def trials(backend: Backend, sweep: str) -> list[Any]:
    return list(Scheduler(backend.catalog, sweep).state().trials)


def test_each_trial_is_a_run_with_its_params_and_the_search_has_its_result(place: Backend) -> None:
    sweep = wandb.sweep(config(run_cap=3), project="mnist")
    trained = []

    def train() -> None:
        with wandb.init(config={"epochs": 2, "lr": 99}) as run:
            trained.append((run.id, run.sweep_id, wandb.config.lr))
            for epoch in range(wandb.config.epochs):
                wandb.log({"loss": wandb.config.lr + 1 / (epoch + 1)})

    wandb.agent(f"entity/mnist/{sweep}", train)
    assert [name for name, _, _ in trained] == [f"{sweep}.{number:04d}" for number in range(3)]
    assert {study for _, study, _ in trained} == {sweep}
    for trial, (name, _, lr) in zip(trials(place, sweep), trained, strict=True):
        run = read_run(place.store, "mnist", name)
        assert (run.status, run.params["lr"], run.params["epochs"]) == ("finished", lr, 2)
        assert run.tags["wandb_sweep"] == sweep
        assert trial.results[-1].values == (pytest.approx(lr + 0.5),)
        assert 0 <= lr <= 1
    assert wandb.run is None


def test_a_grid_is_trained_point_by_point_to_its_end(place: Backend) -> None:
    parameters = {"opt": {"parameters": {"name": {"values": ["a", "b"]}}}, "depth": {"min": 1, "max": 2}}
    sweep = wandb.sweep(config(method="grid", parameters=parameters), project="mnist")
    trained = []

    def train() -> None:
        wandb.init()
        trained.append((wandb.config["opt"]["name"], wandb.config.depth))
        wandb.log({"loss": 1.0})

    wandb.agent(sweep, train)
    assert sorted(trained) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert {run.status for run in list_runs(place.store)} == {"finished"}


def test_a_trial_that_is_worse_at_a_band_ends_at_its_next_log(place: Backend) -> None:
    stopping = {"type": "hyperband", "min_iter": 2, "eta": 2}
    sweep = wandb.sweep(config(early_terminate=stopping), project="mnist")
    losses = iter([1.0, 5.0, 0.5])
    logged = []

    def train() -> None:
        loss = next(losses)
        logged.append(0)
        with wandb.init():
            for _ in range(10):
                wandb.log({"loss": loss, "epoch": 1})
                logged[-1] += 1

    wandb.agent(sweep, train, count=3)
    # The band of 2 is compared at the third value, as W&B does.
    assert logged == [10, 2, 10]
    assert [str(trial.status) for trial in trials(place, sweep)] == ["completed", "stopped", "completed"]
    assert [read_run(place.store, "mnist", f"{sweep}.000{number}").status for number in range(3)] == [
        "finished",
        "stopped",
        "finished",
    ]


def test_a_function_that_raises_fails_its_trial_alone(
    place: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = wandb.sweep(config(), project="mnist")
    calls = []

    def train() -> None:
        calls.append(None)
        wandb.init()
        if len(calls) == 1:
            raise ArithmeticError("no gradient")
        if len(calls) == 3:
            return  # without having logged the metric
        wandb.log({"loss": 1.0})

    wandb.agent(sweep, train, count=3)
    assert [str(trial.status) for trial in trials(place, sweep)] == ["failed", "completed", "failed"]
    assert [read_run(place.store, "mnist", f"{sweep}.000{number}").status for number in range(3)] == [
        "failed",
        "finished",
        "failed",
    ]
    err = capsys.readouterr().err
    assert "ArithmeticError: no gradient" in err
    assert "has logged no number as 'loss', the metric of its sweep" in err


def test_an_agent_whose_function_always_fails_stops_after_three(place: Backend) -> None:
    sweep = wandb.sweep(config(), project="mnist")

    def train() -> None:
        raise RuntimeError("never")

    wandb.agent(sweep, train)
    assert [str(trial.status) for trial in trials(place, sweep)] == ["failed"] * 3


def test_a_run_that_is_opened_again_within_the_function_is_the_trials_run(place: Backend) -> None:
    sweep = wandb.sweep(config(run_cap=1), project="mnist")

    def train() -> None:
        wandb.init().finish()
        wandb.init()
        wandb.log({"loss": 0.25})

    wandb.agent(sweep, train)
    run = read_run(place.store, "mnist", f"{sweep}.0000")
    assert (len(run.attempts), run.status) == (2, "finished")
    assert [trial.results[-1].values for trial in trials(place, sweep)] == [(0.25,)]


def test_ctrl_c_gives_the_trial_back_and_ends_the_agent(place: Backend) -> None:
    sweep = wandb.sweep(config(run_cap=1), project="mnist")
    trained = []

    def train() -> None:
        trained.append(wandb.init().id)
        if len(trained) == 1:
            raise KeyboardInterrupt
        wandb.log({"loss": 0.5})

    wandb.agent(sweep, train)
    assert trained == [f"{sweep}.0000"]
    assert wandb.run is None
    wandb.agent(sweep, train)
    assert trained == [f"{sweep}.0000"] * 2
    assert [trial.results[-1].values for trial in trials(place, sweep)] == [(0.5,)]


AGENT = """
import sys, time
import halving.wandb as wandb
from halving.wandb import sweep_studies, sweep_trial

sweep_studies.LEASE_SECONDS = sweep_trial.LEASE_SECONDS = 1.0
def train():
    wandb.init()
    wandb.log({"loss": 0.5})
    print("training", flush=True)
    time.sleep(600)
wandb.agent(sys.argv[1], train)
"""


def test_the_trial_of_a_killed_agent_is_trained_by_another_one(
    place: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = wandb.sweep(config(run_cap=1), project="mnist")
    if isinstance(sweep_studies.open_studies(), sweep_studies._OfServer):
        command = [sys.executable, "-c", AGENT, sweep]
    else:
        command = [sys.executable, "-c", "import commands.studies as s; s.LEASE_SECONDS = 1.0" + AGENT, sweep]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGKILL)
    trained = []

    def train() -> None:
        with wandb.init() as run:
            trained.append(run.id)
            wandb.log({"loss": 0.125})

    wandb.agent(sweep, train)
    assert trained == [f"{sweep}.0000"]
    assert [trial.results[-1].values for trial in trials(place, sweep)] == [(0.125,)]
    assert len(read_run(place.store, "mnist", trained[0]).attempts) == 2


def test_a_wrong_sweep_is_refused_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    monkeypatch.setenv("HALVING_ROOT", str(root))
    with pytest.raises(UsageError, match="method = None is not accepted"):
        wandb.sweep({"parameters": {"lr": {"value": 1}}})
    assert not root.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "function = None is not accepted"),
        ({"function": print, "count": 0}, "count = 0 is not accepted"),
    ],
)
def test_an_agent_says_what_it_needs(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sweeps.agent("mnist-1", **arguments)


def test_an_agent_of_no_sweep_names_it(place: Backend) -> None:
    with pytest.raises(UsageError, match="no sweep 'nets-1'"):
        wandb.agent("ann/nets/nets-1", print)


def test_a_sweep_is_read_from_w_and_bs_yaml(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_ROOT", backend.store.root)
    path = tmp_path / "sweep.yaml"
    path.write_text("method: grid\nname: layers\nproject: nets\nparameters:\n  depth:\n    values: [1, 2]\n")
    sweep = wandb.sweep(path)
    assert sweep.startswith("layers-")
    spec = Scheduler(backend.catalog, sweep).spec
    assert (spec.project, spec.name, spec.strategy.name) == ("nets", "layers", "grid")
    assert isinstance(backend.store, Store)


def test_the_trainers_hyperparameter_search_of_w_and_b_runs_unchanged(
    backend: Backend, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "search.py").write_text(TRAINER)
    environment = {**os.environ, "HALVING_ROOT": backend.store.root}
    command = [sys.executable, "-m", "halving.cli.main", "run", "--as-wandb", "search.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    best, sweep = done.stdout.splitlines()[-1].split()
    assert best in {f"{sweep}.0000", f"{sweep}.0001"}
    state = Scheduler(backend.catalog, sweep).state()
    assert [str(trial.status) for trial in state.trials] == ["completed", "completed"]
    for trial in state.trials:
        run = read_run(backend.store, "bert", f"{sweep}.{trial.number:04d}")
        assert run.summary["eval/loss"] == pytest.approx(trial.results[-1].values[0])
        assert run.status == "finished"


TRAINER = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
config = BertConfig(vocab_size=50, **sizes)
rows = [{"input_ids": torch.randint(0, 50, (6,)), "labels": torch.tensor(row % 2)} for row in range(8)]
arguments = TrainingArguments(
    output_dir="out", max_steps=2, logging_steps=1, report_to="wandb", save_strategy="no", use_cpu=True,
    eval_strategy="steps", eval_steps=2, disable_tqdm=True,
)
trainer = Trainer(
    args=arguments,
    model_init=lambda: BertForSequenceClassification(config),
    train_dataset=rows,
    eval_dataset=rows,
)
space = {
    "method": "random",
    "metric": {"name": "eval/loss", "goal": "minimize"},
    "parameters": {"learning_rate": {"distribution": "uniform", "min": 1e-6, "max": 1e-4}},
}
best = trainer.hyperparameter_search(
    direction="minimize", backend="wandb", hp_space=lambda trial: space, n_trials=2, project="bert"
)
print(best.run_id, best.run_summary)
"""
