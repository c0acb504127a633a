"""Hugging Face's Trainer with Halving's callback: a tiny model from its configuration, trained on the CPU."""

from pathlib import Path

import pytest
from transformers import TrainerState

import halving
from halving import AlreadyExists, Store
from halving.integrations.huggingface import HalvingCallback
from tests.sdk.integrations.conftest import StoredRuns
from tests.sdk.integrations.huggingface_trainings import STEPS, Sentences, training


def test_a_training_leaves_params_and_every_point_and_ends_finished(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    trainer = training(HalvingCallback("p", root=store.root, config={"note": "x"}), tmp_path)
    trainer.train()
    (run,) = stored_runs.runs()
    params = stored_runs.params(run)
    assert (params["learning_rate"], params["num_train_epochs"], params["note"]) == (1e-3, 2, "x")
    assert (params["model"]["hidden_size"], params["model"]["model_type"]) == (16, "bert")
    assert not any(
        name in params or name in params["model"]
        for name in ("output_dir", "hub_token", "transformers_version")
    )
    points = stored_runs.points(run)
    assert list(points["train/loss"]) == [2, 4, 6, 8]
    assert list(points["eval/loss"]) == [STEPS, 2 * STEPS]
    assert {"train/learning_rate", "train/grad_norm", "train/train_loss", "eval/runtime", "epoch"} <= set(
        points
    )
    logged = trainer.state.log_history
    assert points["train/loss"] == {entry["step"]: entry["loss"] for entry in logged if "loss" in entry}
    assert points["eval/loss"] == {
        entry["step"]: entry["eval_loss"] for entry in logged if "eval_loss" in entry
    }
    assert stored_runs.ends(run) == ["finished"]


def test_what_comes_after_the_training_is_the_next_attempt_of_its_run(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    callback = HalvingCallback("p", root=store.root)
    trainer = training(callback, tmp_path, num_train_epochs=1)
    trainer.train()
    trainer.evaluate()
    trainer.predict(Sentences())
    assert callback.run is not None
    callback.run.finish()
    (run,) = stored_runs.runs()
    points = stored_runs.points(run, attempt=2)
    assert list(points["eval/loss"]) == list(points["test/loss"]) == [STEPS]


@pytest.mark.slow
def test_another_training_is_another_run(store: Store, stored_runs: StoredRuns, tmp_path: Path) -> None:
    callback = HalvingCallback("p", root=store.root)
    for rate in (1e-3, 1e-4):
        trainer = training(callback, tmp_path, num_train_epochs=1, eval_strategy="no", learning_rate=rate)
        trainer.train()
    assert sorted(stored_runs.params(run)["learning_rate"] for run in stored_runs.runs()) == [1e-4, 1e-3]
    assert [stored_runs.ends(run) for run in stored_runs.runs()] == [["finished"], ["finished"]]


@pytest.mark.slow
def test_a_run_is_continued_by_its_id_from_another_folder_but_only_with_its_params(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    for folder in ("here", "there"):
        training(HalvingCallback("p", root=store.root, id="r"), tmp_path / folder, num_train_epochs=1).train()
    assert stored_runs.ends("r") == ["finished", "finished"]
    with pytest.raises(AlreadyExists, match="params never change"):
        training(HalvingCallback("p", root=store.root, id="r"), tmp_path, num_train_epochs=5).train()


def test_a_run_of_the_callers_gets_the_points_and_stays_open(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    with halving.init("p", {"lr": 0.9}, store.root, id="mine") as run:
        callback = HalvingCallback(run=run)
        training(callback, tmp_path, num_train_epochs=1).train()
        assert callback.run is run
        assert list(stored_runs.points("mine")["train/loss"]) == [2, 4]
        assert stored_runs.ends("mine") == []
    assert stored_runs.params("mine") == {"lr": 0.9}


def test_only_world_process_zero_opens_a_run(store: Store) -> None:
    callback = HalvingCallback("p", root=store.root)
    state = TrainerState(is_world_process_zero=False)
    callback.on_train_begin(None, state, None)
    callback.on_log(None, state, None, logs={"loss": 1.0})
    callback.on_predict(None, state, None, metrics={"test_loss": 1.0})
    callback.on_train_end(None, state, None)
    assert store.names("") == []


def test_an_evaluation_alone_opens_a_run_of_its_own(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    callback = HalvingCallback("p", root=store.root)
    training(callback, tmp_path).evaluate()
    assert callback.run is not None
    callback.run.finish()
    (run,) = stored_runs.runs()
    assert stored_runs.params(run)["model"]["hidden_size"] == 16
    assert list(stored_runs.points(run)["eval/loss"]) == [0]
