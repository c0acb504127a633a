"""Training code that logs to MLflow, unchanged: alone, and in a sweep.

    halving serve &
    python examples/mlflow_autologging.py         # four networks, each a run
    halving sweep sweeps/mlflow.yaml              # a sweep chooses the networks

The runs are on the page that compares runs. ``MLFLOW_TRACKING_URI`` chooses another server, as ever. It needs
``mlflow-skinny`` (or ``mlflow``) and scikit-learn.
"""

import os
from collections.abc import Mapping
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from halving import Run, TrainedRun

EXPERIMENT = "mlflow-digits"
Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def fit(params: Mapping[str, Any], train: Rows, validation: Rows) -> tuple[MLPClassifier, float]:
    """Train a network on ``(images, labels)``, images of 64 pixels; return it with its validation accuracy.

    Nothing here knows of a sweep: autologging records the params, the scores on the training rows and the
    model.
    """
    mlflow.sklearn.autolog(serialization_format="pickle", silent=True)
    network = MLPClassifier(
        (int(params["hidden"]),),
        learning_rate_init=params["lr"],
        alpha=params["alpha"],
        max_iter=30,
        random_state=0,
    )
    network.fit(*train)
    accuracy = float(network.score(*validation))
    mlflow.log_metric("val_accuracy", accuracy)
    for epoch, loss in enumerate(network.loss_curve_):
        mlflow.log_metric("loss", loss, step=epoch)
    return network, accuracy


def trial(run: Run) -> None:
    """A trial of a sweep: an MLflow run with the sweep and the trial in its tags."""
    _log_to_server()
    sweep, _, number = run.id.rpartition(".")
    for _ in run.epochs():
        with mlflow.start_run(run_name=run.id, tags={"halving.sweep": sweep, "halving.trial": number}):
            network, accuracy = fit(run.params, _rows(run, "train"), _rows(run, "validation"))
        run.report(val_accuracy=accuracy)
        run.save(
            weights=[layer.tolist() for layer in network.coefs_],
            biases=[layer.tolist() for layer in network.intercepts_],
        )


def predict(run: TrainedRun, table: pa.Table) -> NDArray[np.int64]:
    """The digit for every row."""
    layers = run.restore(weights=[], biases=[])
    (hidden, out), (hidden_bias, out_bias) = (
        [np.array(layer) for layer in layers[name]] for name in ("weights", "biases")
    )
    scores = np.maximum(_pixels(table) @ hidden + hidden_bias, 0) @ out + out_bias
    return scores.argmax(axis=1)


def main() -> None:
    """Train four networks."""
    _log_to_server()
    digits = load_digits()
    images, other_images, labels, other_labels = train_test_split(
        digits.data, digits.target, test_size=0.25, random_state=0
    )
    for hidden in (16, 64):
        for lr in (0.001, 0.01):
            with mlflow.start_run(run_name=f"{hidden} neurons, lr {lr:g}"):
                _, accuracy = fit(
                    {"hidden": hidden, "lr": lr, "alpha": 1e-4},
                    (images, labels),
                    (other_images, other_labels),
                )
            print(f"{hidden} neurons, lr {lr:g}: accuracy {accuracy:.3f}")


def _log_to_server() -> None:
    mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", "http://127.0.0.1:3001"))
    mlflow.set_experiment(EXPERIMENT)


def _rows(run: Run, split: str) -> Rows:
    table = run.dataset.read(split)
    return _pixels(table), table["label"].to_numpy()


def _pixels(table: pa.Table) -> NDArray[np.float64]:
    return (
        table["pixels"]
        .combine_chunks()
        .flatten()
        .to_numpy(zero_copy_only=False)
        .reshape(-1, 64)
        .astype(np.float64)
    )


if __name__ == "__main__":
    main()
