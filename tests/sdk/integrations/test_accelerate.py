"""Accelerate with Halving's tracker: real loops on the CPU."""

from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.tracking import register_tracker_class

from halving import InvalidInput, Store, init
from halving.integrations.accelerate import HalvingTracker
from halving.query.runs import read_run
from tests.sdk.imports.copies import media
from tests.sdk.integrations.conftest import StoredRuns

STEPS = 5


def train(log_with: Any, project: str = "ignored", **more: Any) -> Accelerator:
    torch.manual_seed(0)
    accelerator = Accelerator(log_with=log_with, cpu=True)
    accelerator.init_trackers(project, config={"lr": 0.1, "layers": 2}, **more)
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(STEPS):
        inputs = torch.randn(8, 4)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"train/loss": loss.item()}, step=2 * step)
    return accelerator


def test_a_loop_leaves_params_and_points_and_ends_finished(store: Store, stored_runs: StoredRuns) -> None:
    tracker = HalvingTracker("p", root=store.root, config={"note": "x", "lr": 0.2}, tags={"team": "vision"})
    accelerator = train(tracker)
    assert accelerator.get_tracker("halving", unwrap=True) is tracker.tracker
    accelerator.end_training()
    (run,) = stored_runs.runs()
    assert stored_runs.params(run) == {"lr": 0.2, "layers": 2, "note": "x"}
    assert list(stored_runs.points(run)["train/loss"]) == [0, 2, 4, 6, 8]
    assert stored_runs.ends(run) == ["finished"]
    assert read_run(store, "p", run).tags == {"team": "vision"}


def test_a_registered_tracker_is_named_like_those_of_accelerate(
    store: Store, stored_runs: StoredRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate import tracking

    monkeypatch.setattr(tracking, "LOGGER_TYPE_TO_CLASS", dict(tracking.LOGGER_TYPE_TO_CLASS))
    monkeypatch.setattr("accelerate.accelerator.LOGGER_TYPE_TO_CLASS", tracking.LOGGER_TYPE_TO_CLASS)
    register_tracker_class(HalvingTracker)
    train("halving", "p", init_kwargs={"halving": {"root": store.root, "id": "named"}}).end_training()
    assert stored_runs.runs() == ["named"]
    assert len(stored_runs.points("named")["train/loss"]) == STEPS


def test_values_without_a_step_follow_each_other_and_media_are_kept(
    store: Store, stored_runs: StoredRuns
) -> None:
    accelerator = Accelerator(log_with=HalvingTracker("p", root=store.root, id="a"), cpu=True)
    accelerator.init_trackers("ignored")
    accelerator.log({"loss": 1.0})
    accelerator.log({"loss": 0.5, "nested": {"a": 2}, "text": "words"})
    tracker = accelerator.get_tracker("halving")
    tracker.log_images({"samples": [np.zeros((4, 4, 3), np.uint8)] * 2}, step=7)
    tracker.log_table("rows", columns=["a", "b"], data=[[1, "x"]], step=8)
    accelerator.end_training()
    points = stored_runs.points("a")
    assert points["loss"] == {0: 1.0, 1: 0.5}
    assert points["nested/a"] == {1: 2.0}
    assert [(key, step, kind) for key, step, kind, _ in media(store.root)] == [
        ("rows", 8, "table"),
        ("samples/0", 7, "image"),
        ("samples/1", 7, "image"),
        ("text", 1, "text"),
    ]


def test_a_run_of_the_caller_stays_open(store: Store, stored_runs: StoredRuns) -> None:
    with init("p", id="mine", root=store.root, config={"own": 1}) as run:
        train(HalvingTracker(run=run)).end_training()
        run.log({"after": 1}, step=100)
    assert stored_runs.params("mine") == {"own": 1}
    assert stored_runs.points("mine")["after"] == {100: 1.0}


def test_a_tracker_without_a_project_is_refused() -> None:
    with pytest.raises(InvalidInput, match="project"):
        HalvingTracker()
