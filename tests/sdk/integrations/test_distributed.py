"""Accelerate, Lightning and Hugging Face's Trainer on two ranks, in a gang's trial and in a script.

They train unchanged, and leave one run.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import ModelCheckpoint

import halving
from halving import Run, Store
from halving.integrations.huggingface import HalvingCallback
from halving.integrations.lightning import HalvingLogger
from halving.trial.messages import Granted, Stopped
from tests.gangs import run_in_gang, run_ranks
from tests.sdk.integrations.conftest import StoredRuns, record_only_what_is_logged
from tests.sdk.integrations.huggingface_trainings import training
from tests.sdk.integrations.lightning_trainings import BATCHES, Line, trainer
from tests.sdk.trial_process.attempts import context

EPOCHS = 3

pytestmark = pytest.mark.slow


def linear() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def rows(epoch: int) -> torch.Tensor:
    """Of all ranks."""
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(epoch))


def loss_of(model: Any, inputs: torch.Tensor) -> torch.Tensor:
    return ((model(inputs) - 1) ** 2).mean()


def train(run: Run) -> None:
    """One model by Accelerate and one by Fabric, each as their documentation has it."""
    accelerator = Accelerator(cpu=True)
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    assert (
        (accelerator.num_processes, accelerator.process_index)
        == (fabric.world_size, fabric.global_rank)
        == (2, run.rank)
    )
    accelerated, accelerated_optimizer = accelerator.prepare(*linear())
    fabric_model, fabric_optimizer = fabric.setup(*linear())
    for epoch in run.epochs(EPOCHS):
        own = rows(epoch).chunk(2)[run.rank]
        for model, optimizer, backward in (
            (accelerated, accelerated_optimizer, accelerator.backward),
            (fabric_model, fabric_optimizer, fabric.backward),
        ):
            optimizer.zero_grad()
            backward(loss_of(model, own))
            optimizer.step()
        run.report(score=float(accelerator.reduce(loss_of(accelerated, own).detach(), "mean")))
        run.save(one=accelerator.unwrap_model(accelerated), two=fabric_model.module)
    torch.save([accelerated.module.weight, fabric_model.module.weight], f"weights-{run.rank}.pt")


def as_script(folder: Path) -> None:
    """Accelerate makes the process group, and ``halving.init`` joins it."""
    Accelerator(cpu=True)
    with pytest.MonkeyPatch.context() as patch:
        record_only_what_is_logged(patch)
        with halving.init("p", root=folder / "store", system_metrics=None) as run:
            train(run)


def train_alone() -> torch.Tensor:
    """The weights that one process gets."""
    model, optimizer = linear()
    for epoch in range(1, EPOCHS + 1):
        optimizer.zero_grad()
        loss_of(model, rows(epoch)).backward()
        optimizer.step()
    return model.weight


def weights(folder: Path) -> torch.Tensor:
    """Of both models on both ranks."""
    return torch.stack([weight for rank in range(2) for weight in torch.load(folder / f"weights-{rank}.pt")])


def test_accelerate_and_fabric_train_in_a_gangs_trial_as_one_process_does(
    store: Store, tmp_path: Path
) -> None:
    heard, status = run_in_gang(context(store), f"{__name__}:train", 2, EPOCHS, Granted(EPOCHS, True))
    assert status == 0, heard
    assert isinstance(heard[-1], Stopped)
    assert torch.allclose(weights(tmp_path), train_alone())


def test_accelerate_and_fabric_train_in_a_script_as_one_process_does(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    run_ranks(2, as_script, tmp_path)
    assert torch.allclose(weights(tmp_path), train_alone())
    (run,) = stored_runs.runs()
    assert list(stored_runs.points(run)["score"]) == [1, 2, 3]
    assert stored_runs.ends(run) == ["finished"]


def fit(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        record_only_what_is_logged(patch)
        logger = HalvingLogger(
            "p", root=folder / "store", id="lightning", log_model=True, system_metrics=None
        )
        settings = {
            "devices": 2,
            "strategy": "ddp",
            "enable_checkpointing": True,
            "callbacks": [ModelCheckpoint(folder)],
        }
        trainer(logger, folder, **settings).fit(Line())
        training(
            HalvingCallback("p", root=folder / "store", id="trainer", system_metrics=None), folder
        ).train()
        with halving.init("p", root=folder / "store", id="own", system_metrics=None) as run:
            trainer(HalvingLogger(run=run), folder, devices=2, strategy="ddp").fit(Line())


def test_loggers_and_callbacks_leave_one_run_of_a_training_on_two_ranks(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    run_ranks(2, fit, tmp_path)
    assert stored_runs.runs() == ["lightning", "own", "trainer"]
    assert [stored_runs.ends(run) for run in stored_runs.runs()] == [["finished"]] * 3
    steps = BATCHES  # in two epochs, of half the batches on each rank
    assert (
        list(stored_runs.points("lightning")["train/loss"])
        == list(stored_runs.points("own")["train/loss"])
        == list(range(steps))
    )
    assert len(stored_runs.artifacts("lightning")) == 1
    assert list(stored_runs.points("trainer")["eval/loss"]) == [2, 4]
