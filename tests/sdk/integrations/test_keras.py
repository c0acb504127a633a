"""Keras 3 with Halving's callback: real fits on the torch backend."""

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"  # read when keras is imported

import keras
import numpy as np
import pytest

import halving
from halving import AlreadyExists, InvalidInput, Store
from halving.integrations.keras import HalvingCallback
from tests.sdk.integrations.conftest import StoredRuns

# Keras's variables under numpy 2.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

STEPS = 4  # an epoch, of 8 samples


def fit(
    callback: HalvingCallback, epochs: int = 2, optimizer: Any = None, **changes: Any
) -> keras.callbacks.History:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=optimizer or keras.optimizers.SGD(0.125), loss="mse", metrics=["mae"])
    inputs = np.random.default_rng(0).normal(size=(8 * STEPS, 4)).astype("float32")
    targets = inputs.sum(1, keepdims=True)
    settings = {"batch_size": 8, "verbose": 0, "validation_data": (inputs, targets), **changes}
    return model.fit(inputs, targets, epochs=epochs, callbacks=[callback], **settings)


def test_a_fit_leaves_params_and_every_epoch_and_ends_finished(store: Store, stored_runs: StoredRuns) -> None:
    history = fit(HalvingCallback("p", root=store.root, config={"note": "x"})).history
    (run,) = stored_runs.runs()
    params = stored_runs.params(run)
    assert (params["epochs"], params["steps"], params["note"]) == (2, STEPS, "x")
    assert (params["optimizer"]["name"], params["optimizer"]["learning_rate"]) == ("SGD", 0.125)
    points = stored_runs.points(run)
    assert set(points) == {"train/loss", "train/mae", "val/loss", "val/mae", "epoch", "learning_rate"}
    for name, key in (
        ("loss", "train/loss"),
        ("mae", "train/mae"),
        ("val_loss", "val/loss"),
        ("val_mae", "val/mae"),
    ):
        assert points[key] == {STEPS: history[name][0], 2 * STEPS: history[name][1]}
    assert points["epoch"] == {STEPS: 1, 2 * STEPS: 2}
    assert set(points["learning_rate"].values()) == {0.125}
    assert stored_runs.ends(run) == ["finished"]


def test_batches_are_logged_as_often_as_asked_for(store: Store, stored_runs: StoredRuns) -> None:
    history = fit(HalvingCallback("p", root=store.root, every=2)).history
    points = stored_runs.points(stored_runs.runs()[0])
    assert sorted(points["batch/loss"]) == [2, 4, 6, 8]
    # Keras's means over the epoch so far, so that the last batch's are the epoch's.
    assert [points["batch/loss"][STEPS], points["batch/loss"][2 * STEPS]] == history["loss"]


def test_steps_are_those_of_the_optimizer_when_gradients_are_accumulated(
    store: Store, stored_runs: StoredRuns
) -> None:
    fit(
        HalvingCallback("p", root=store.root, every=1),
        optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    )
    points = stored_runs.points(stored_runs.runs()[0])
    assert sorted(points["batch/loss"]) == [0, 1, 2, 3, 4]
    assert sorted(points["train/loss"]) == [2, 4]


def test_a_schedule_is_seen_in_the_learning_rate(store: Store, stored_runs: StoredRuns) -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, decay_steps=STEPS, decay_rate=0.5)
    fit(HalvingCallback("p", root=store.root), optimizer=keras.optimizers.SGD(schedule))
    run = stored_runs.runs()[0]
    assert stored_runs.points(run)["learning_rate"] == pytest.approx({STEPS: 0.25, 2 * STEPS: 0.125})
    assert stored_runs.params(run)["optimizer"]["learning_rate"]["config"]["initial_learning_rate"] == 0.5


def test_another_fit_is_another_run(store: Store, stored_runs: StoredRuns) -> None:
    callback = HalvingCallback("p", root=store.root)
    fit(callback, epochs=1)
    fit(callback, epochs=3)
    assert sorted(stored_runs.params(run)["epochs"] for run in stored_runs.runs()) == [1, 3]
    assert callback.run is None


def test_a_run_is_continued_by_its_id_and_only_with_its_params(store: Store, stored_runs: StoredRuns) -> None:
    for began in (0, 1):
        fit(HalvingCallback("p", root=store.root, id="r"), initial_epoch=began)
    assert stored_runs.ends("r") == ["finished", "finished"]
    with pytest.raises(AlreadyExists, match="params never change"):
        fit(HalvingCallback("p", root=store.root, id="r"), epochs=9)


def test_a_run_of_the_callers_gets_the_points_and_stays_open(store: Store, stored_runs: StoredRuns) -> None:
    with halving.init("p", {"lr": 0.9}, store.root, id="mine") as run:
        fit(HalvingCallback(run=run))
        assert sorted(stored_runs.points("mine")["train/loss"]) == [STEPS, 2 * STEPS]
        assert stored_runs.ends("mine") == []
    assert stored_runs.params("mine") == {"lr": 0.9}


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "10"])
def test_an_interval_of_batches_that_is_none_is_refused(every: Any) -> None:
    with pytest.raises(InvalidInput, match=r"every .* is not accepted: give a positive integer or None"):
        HalvingCallback("p", every=every)
